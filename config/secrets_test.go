package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for in, want := range map[string]string{
		"plain":                "plain",
		"$1 and $$":            "$1 and $$",
		"${env:HOSTNAME}":      "node-1",
		"a-${env:HOSTNAME}-b":  "a-node-1-b",
		"$${env:HOSTNAME}":     "${env:HOSTNAME}",
		"$$${env:HOSTNAME}":    "$${env:HOSTNAME}",
		"${env:TWO}${env:TEN}": "210",
		"${env:YAML}":          "x: [1, *y]\n# \"z\"",
		"${file:" + write("plain", "s3cret") + "}":              "s3cret",
		"${file:" + write("newline", "s3cret\n") + "}":          "s3cret",
		"${file:" + write("windows", "s3cret\r\n") + "}":        "s3cret",
		"${file:" + write("two", "s3cret\n\n") + "}":            "s3cret\n",
		"${file:" + write("node-1", "s3cret") + "}":             "s3cret",
		"${file:" + dir + "/${env:HOSTNAME}}":                   "s3cret",
		"${file:" + write("reference", "${env:HOSTNAME}") + "}": "${env:HOSTNAME}", // not looked at again
	} {
		got, _, f := resolve(in, false)
		require.Nil(t, f, in)
		require.Equal(t, want, got, in)
	}
	for in, want := range map[string]string{
		"${file:" + write("empty", "") + "}":                          "the file is empty",
		"${file:" + write("line", "\n") + "}":                         "the file is empty",
		"${file:" + write("latin1", "\xe9") + "}":                     "the file is not UTF-8 text",
		"${file:" + write("large", strings.Repeat("a", 65<<10)) + "}": "the file is larger than 64 KiB",
		"${file:" + dir + "}":                                         "not a file",
		"${file:" + dir + "/none}":                                    "no such file or directory",
		"${file:${env:EMPTY}/none}":                                   "EMPTY is empty",
		"${env:NO_SUCH}":                                              "NO_SUCH is not set",
		"${env:}":                                                     "neither",
		"${env:a-b}":                                                  "neither",
		"${vault:x}":                                                  "neither",
		"${":                                                          "neither",
		"${env:HOSTNAME":                                              "neither",
	} {
		_, _, f := resolve(in, false)
		require.NotNil(t, f, in)
		require.Contains(t, f.What, want, in)
	}
}

// A secret may have any characters: within a DSN of words they stand for themselves.
func TestSecretsInDSNsOfWords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for _, secret := range []string{`it's`, `back\slash`, `two words`, `'quoted'`, `=`, `\'`} {
		require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
		for _, form := range []string{"host=/run user=u password=${file:%s} dbname=d", "host=/run user=u dbname=d password=${file:%s}", "host=/run user=u dbname=d password = '${file:%s}'"} {
			c, err := Parse("node.yaml", fmt.Appendf(nil, "pools: {a: {dsn: \""+form+"\"}}", file))
			require.NoError(t, err, secret)
			dsn, err := pgx.ParseConfig(c.Pools["a"].DSN)
			require.NoError(t, err, secret)
			require.Equal(t, []string{secret, "d"}, []string{dsn.Password, dsn.Database})
			shown, err := c.Show()
			require.NoError(t, err)
			require.Contains(t, string(shown), "${file:"+file+"}")
			require.NotContains(t, string(shown), dsnEscapes.Replace(secret)+"'")
		}
	}
	_, _, f := resolve("password=${env:NO_SUCH}", true)
	require.NotNil(t, f)
}

// Several DSNs may stand on one line: a password ends with the quotes that it is in.
func TestDSNsOnOneLine(t *testing.T) {
	t.Parallel()
	c, err := Parse("node.yaml", []byte(`pools: {one: {dsn: "postgres://u:pw12@/a?host=/run"}, two: {dsn: 'postgres://u:pw34@/b?host=/run'}, three: {dsn: "postgres://u@/c?host=/run"}}`))
	require.NoError(t, err)
	require.Len(t, c.Pools, 3)
	_, err = Parse("node.yaml", []byte(`pools: {one: {dsn: postgres://u:p,w: x@/a?host=/run}}`))
	require.ErrorContains(t, err, "a password has fallen apart here")
	require.NotContains(t, err.Error(), "w: x")
}

func TestMaskDSN(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://h/db":                                    "postgres://h/db",
		"postgres://h:5432/db":                               "postgres://h:5432/db",
		"postgres://u@h/db":                                  "postgres://u@h/db",
		"postgres://u:p@h/db":                                "postgres://u:***@h/db",
		"postgres://u:p%40q@h:1,h2:2/db?sslmode=disable":     "postgres://u:***@h:1,h2:2/db?sslmode=disable",
		"postgres://u:p@q@h/db":                              "postgres://u:***@h/db",
		"postgres://[::1]:5432/db":                           "postgres://[::1]:5432/db",
		"postgres://[::1]/db?user=u@h":                       "postgres://[::1]/db?user=u@h",
		"postgres://u:p@[::1]/db":                            "postgres://u:***@[::1]/db",
		"postgres:///db?host=/run&application_name=a:b@c":    "postgres:///db?host=/run&application_name=a:b@c",
		"postgres://u:p/q@h/db":                              "postgres://u:***@h/db",
		"postgres://u:p@/?q@h/db?a=b@c":                      "postgres://u:***@h/db?a=b@c",
		"postgres://h:5432/db?user=u@h":                      "postgres://h:5432/db?user=u@h",
		"postgres://u@h/db?password=p&sslpassword=q&a=b":     "postgres://u@h/db?password=***&sslpassword=***&a=b",
		"postgres://u@h/db?p%61ssword=p":                     "postgres://u@h/db?p%61ssword=***",
		"postgres://u:${env:PW}@h/db":                        "postgres://u:${env:PW}@h/db",
		"postgres://u:${file:/run/pw}@h/db":                  "postgres://u:${file:/run/pw}@h/db",
		"postgres://u:x${env:PW}@${env:H}/db":                "postgres://u:***@${env:H}/db",
		"host=h password=p dbname=d":                         "host=h password=*** dbname=d",
		`host=h password = 'p \' q' dbname=d`:                "host=h password = *** dbname=d",
		"host=h password=${env:PW} dbname=d":                 "host=h password=${env:PW} dbname=d",
		"host=h password='${env:PW}' sslpassword=${env:Q}z ": "host=h password='${env:PW}' sslpassword=*** ",
		"host=h options='-c a.b=x://u:p@h' dbname=d":         "host=h options='-c a.b=x://u:p@h' dbname=d",
		"${env:DSN}": "${env:DSN}",
	} {
		require.Equal(t, want, maskDSN(in))
	}
}

// Every value of this file may come from a reference.
const referring = `node: {name: %s, listen: %s, log: {level: %s, format: %s}}
cluster: {bind: %s, advertise: %s, join: [%s], keys: [%s, %s], label: %s, insecure: %s, profile: %s}
pools: {a: {dsn: %s, max_conns: %s}, b: {dsn: %s, tenant_dsn: %s}}
tenants: {static: {acme: %s, globex: {pool: a, schema: %s, role: %s}}, table: {pool: %s, query: %s, cache: %s}, schema: %s, role: %s}
acquire: {batch: %s, idle_wait: %s, lock: {ttl: %s, renew_every: %s}, session: {ttl: %s, heartbeat_every: %s}}
execution: {workers: %s, timeout: %s, retry: %s, retention: %s, finish_within: %s}
handlers: {http_request: {allow: [%s]}}
`

// What a value may be so that the file comes further than its shape.
var plausible = []string{
	"node-1", "127.0.0.1:8080", "info", "json", "0.0.0.0:7946", "10.0.0.1", "seed:7946", "AAECAwQFBgcICQoLDA0ODw==", "AQIDBAUGBwgJCgsMDQ4PEA==",
	"tenure", "true", "lan", "postgres://u@h/db", "20", "postgres://u@h2/db", "postgres://u@pooler/db", "a", "s", "r", "a", "SELECT $1", "30s", "t_{tenant}", "r_{tenant}",
	"2000", "2s", "8s", "2s", "15s", "3s", "64", "15m", "R5/PT5M", "24h", "60s", "10.0.0.0/8",
}

func TestReferencesNeverLeak(t *testing.T) {
	// Letters of which no word of ours is made.
	body := rapid.StringOfN(rapid.RuneFrom([]rune("qxzjkvwQXZJKVW0123456789")), 12, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		var secrets []string
		args := make([]any, len(plausible))
		for i, p := range plausible {
			value := p
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				s := body.Draw(t, "secret")
				secrets = append(secrets, s)
				// In the forms that come furthest: a host, a pattern, a number, an address.
				value = rapid.SampledFrom([]string{
					"%s", "%s:7946", "%s_{tenant}", "postgres://u:%s@h/db", "postgres://%s@h:x/db", "host=h password=%s", "R5/%s", "PT5M,%s", "%s\x07", "pg_%s",
				}).Draw(t, "form")
				value = fmt.Sprintf(value, s)
			} else if rapid.IntRange(0, 9).Draw(t, "number") == 0 {
				s := fmt.Sprint(rapid.IntRange(1e9, 9e9).Draw(t, "secret number"))
				secrets = append(secrets, s)
				value = s + rapid.SampledFrom([]string{"", "ms", "s"}).Draw(t, "unit")
			}
			name := fmt.Sprintf("LEAK_%d", i)
			require.NoError(t, os.Setenv(name, value))
			args[i] = `"${env:` + name + `}"`
		}
		c, err := Parse("node.yaml", fmt.Appendf(nil, referring, args...))
		text := ""
		if err == nil {
			shown, showErr := c.Show()
			require.NoError(t, showErr)
			text = string(shown)
		} else {
			faults, jsonErr := json.Marshal(err)
			require.NoError(t, jsonErr)
			text = err.Error() + string(faults)
		}
		for _, s := range secrets {
			for i := 0; i+6 <= len(s); i++ {
				require.NotContains(t, strings.ToLower(text), strings.ToLower(s[i:i+6]), "a piece of %q", s)
			}
		}
	})
}

func TestLiteralPasswordsNeverLeak(t *testing.T) {
	t.Parallel()
	password := rapid.StringOfN(rapid.RuneFrom([]rune(`qxzjkvw0123456789QXZ@:/?#%&=,;!$~+._-{}[]`)), 8, 16, -1)
	rapid.Check(t, func(t *rapid.T) {
		s := password.Filter(func(s string) bool { return !portThenPath.MatchString(s) && !queryBegin.MatchString(s) }).Draw(t, "password")
		dsn := fmt.Sprintf(rapid.SampledFrom([]string{
			"postgres://app:%s@db:5432/x?sslmode=disable", "postgres://:%s@db/x", "postgresql://app:%s@db,db2/x", "postgres://app@db/x?password=%s",
			"host=db password='%s' dbname=x", "host=db dbname=x password=%s", "host=db sslpassword = '%s'", "postgres://app:%s@db:port/x", "postgres://app:%s @db",
		}).Filter(func(form string) bool { return !strings.Contains(form, "?password") || !strings.ContainsAny(s, "&#") }).Draw(t, "dsn"), s)
		quoted := rapid.SampledFrom([]string{"'" + strings.ReplaceAll(dsn, "'", "''") + "'", `"` + dsn + `"`, dsn, "'" + dsn, `"` + dsn}).Draw(t, "quotes")
		file := fmt.Sprintf(rapid.SampledFrom([]string{
			"pools:\n  a:\n    dsn: %s\n", "pools:\n  a:\n    dsn: %s\n    max_con: 5\n", "pools:\n  a: {dsn: %s, max_con: 5}\n", "pools:\n  a: {max_con: 5, dsn: %s}\n",
			"pools:\n  a:\n    dns: %s\n", "pools: {a: %s}\n", "pools: %s\n", "node: {name: %s}\n", "pools:\n  a:\n    dsn: x\n    dsn: %s\n", "pools:\n  a:\n    max_conns: %s\n",
			"pools:\n  a:\n    dsn: %s\n   b: 1\n", "acquire: {idle_wait: %s}\n", "%s\n", "cluster: {keys: [%s]}\n",
		}).Draw(t, "file"), quoted)
		if rapid.Bool().Draw(t, "key alone") && !strings.ContainsAny(s, ",[]{}:") { // without quotes these end a text
			file = fmt.Sprintf(rapid.SampledFrom([]string{
				"pools:\n  a:\n    host: x\n    password: %s\n", "cluster: {keys: %s}\n", "cluster: {key: %s}\n", "cluster:\n  keys: [%s, x]\n", "cluster:\n  keys:\n    - %s\n", "pools:\n  a: {user: x, password: '%s'}\n",
				"pools:\n  a:\n    pasword: %s\n", "pools:\n  a: {dsn: x, passwrod: '%s'}\n", "secert: %s\n", "node: {passphrase: %s}\n",
			}).Draw(t, "named"), s)
		}
		c, err := Parse("node.yaml", []byte(file))
		text := ""
		if err == nil {
			shown, showErr := c.Show()
			require.NoError(t, showErr)
			text = string(shown)
		} else {
			faults, jsonErr := json.Marshal(err)
			require.NoError(t, jsonErr)
			text = err.Error() + string(faults)
		}
		require.NotContains(t, text, s, "in %s", file)
		require.NotContains(t, text, s[:6], "in %s", file)
		require.NotContains(t, text, s[len(s)-6:], "in %s", file)
	})
}

// Keys of encryption are shown nowhere, whether they are good or not.
func TestKeysOfEncryptionAreHidden(t *testing.T) {
	t.Parallel()
	const secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	const file = "pools: {a: {dsn: postgres://u@h/d}}\nencryption:\n  keys:\n    - k1:%s\n  tenants:\n    token: {keys: ['k2:%[1]s']}\n"
	c, err := Parse("node.yaml", fmt.Appendf(nil, file, secret))
	require.NoError(t, err)
	shown, err := c.Show()
	require.NoError(t, err)
	require.NotContains(t, string(shown), "AAECAw")
	require.Contains(t, string(shown), "${env:TENURE_ENCRYPTION_KEY_1}")
	require.Contains(t, string(shown), "token:", "a tenant's name is none")
	require.Contains(t, string(shown), "${env:TENURE_ENCRYPTION_KEY_token_1}")
	names := map[string]bool{}
	for _, path := range []string{"cluster.keys[0]", "encryption.keys[0]", "encryption.keys[1]", "encryption.tenants.a.keys[0]", "encryption.tenants.A.keys[0]", "encryption.tenants.a.keys[1]",
		"encryption.tenants.a-b.keys[0]", "encryption.tenants.a_b.keys[0]", "encryption.tenants.a.b.keys[0]", "encryption.tenants.a_2d_b.keys[0]", "encryption.tenants.a--b.keys[0]", "encryption.tenants.keys[0].keys[0]"} {
		name := keyVariable(path)
		require.Regexp(t, "^[A-Za-z_][A-Za-z0-9_]*$", name, path)
		require.False(t, names[name], path)
		names[name] = true
	}
	require.True(t, names["TENURE_CLUSTER_KEY_1"])
	_, err = Parse("node.yaml", fmt.Appendf(nil, file, strings.TrimSuffix(secret, "8=")))
	require.ErrorContains(t, err, "encryption.keys[0] ")
	require.ErrorContains(t, err, "encryption.tenants.token.keys[0] ")
	require.NotContains(t, err.Error(), "AAECAw")
}
