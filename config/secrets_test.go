package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/routing"
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
		"${file:" + dir + "/none}":                                    "/none}: no such file or directory",
		"${file:none}":                                                "a part of its path",
		"${file:${env:EMPTY}/none}":                                   "EMPTY, which is empty",
		"${env:NO_SUCH}":                                              "NO_SUCH, which is not set",
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
	require.ErrorContains(t, err, "1:35: error: pools.one has a name here that may be the rest of a value which ended at a comma\n      = put the whole value in quotes")
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

// A secret is put into every value and every name of a file that has all keys, as it is and by a
// reference, in forms that come far, and the file is broken in every sort of way. No error and no
// print has more than a few letters of it; where it would be shown, no node starts.
func TestSecretsAreNotTold(t *testing.T) {
	const secret = "qXzJ7kvwQ9xZj4KV" // letters of which no word of ours is made
	const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	dsns := []string{
		"postgres://u:%s@h/db", "postgresql://u:x/%s@h/db", "postgres://h/db?user=u&password=%s", "jdbc:postgresql://h/db?password=%s", "postgres://u:%s@h:port/db",
		"host=h password=%s", "host=h password='x %s'", "u:%s@h:5432/db", "//u:%s@h/db", `{"dsn": "u:%s@h"}`,
	}
	others := []string{"%s", "%s:7946", "%s_{tenant}", "R5/%s", "PT5M,%s", "10.0.0.0/%s", "pg_%s", "$%s", "${%s", "${file:%s}", "http://%s\x01", "{\"a\": %s}", "* %s * * *", "2026-%s", "k1:%s"}
	data, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	full := regexp.MustCompile(`(?m)^ *#.*\n|^\n| +# .*$`).ReplaceAll(setting.ReplaceAll(data, []byte("$1$2")), nil)
	type leaf struct {
		*yaml.Node
		path string // "" of a key
	}
	leaves := func() (root *yaml.Node, all []leaf) {
		root, syntax := parseYAML(full)
		require.Nil(t, syntax)
		var walk func(n *yaml.Node, path string)
		walk = func(n *yaml.Node, path string) {
			for i, child := range n.Content {
				at := fmt.Sprintf("%s[%d]", path, i)
				if n.Kind == yaml.MappingNode {
					at = ""
					if i%2 == 1 {
						at = join(path, n.Content[i-1].Value)
					}
				}
				walk(child, at)
				if child.Kind == yaml.ScalarNode {
					all = append(all, leaf{child, at})
				}
			}
		}
		walk(root, "")
		return root, all
	}
	// untold checks what is said of a file, and of what has been read from it.
	untold := func(t require.TestingT, file string, mayShow bool) error {
		c, err := Parse("node.yaml", []byte(file))
		said := ""
		if err != nil {
			asJSON, jsonErr := json.Marshal(err)
			require.NoError(t, jsonErr)
			said = err.Error() + string(asJSON)
		} else if !mayShow {
			shown, showErr := c.Show()
			require.NoError(t, showErr)
			said = string(shown)
		}
		said = strings.ToLower(said)
		for _, s := range []string{strings.ToLower(secret), strings.ToLower(key)} {
			for i := 0; i+6 <= len(s); i++ {
				require.NotContains(t, said, s[i:i+6], file)
			}
		}
		return err
	}

	root, all := leaves()
	for i, n := range all {
		was := *n.Node
		passes := holdsDSN(n.path) || strings.HasPrefix(n.path, "tenants.table.")
		for j, form := range append(dsns, others...) {
			value, isDSN := fmt.Sprintf(form, secret), slices.Contains(dsns, form)
			if n.path == "" && !isDSN || testing.Short() && (i+j)%4 != 0 { // a name is told
				continue
			}
			require.NoError(t, os.Setenv("LEAK", value))
			for _, text := range []string{value, "${env:LEAK}"} {
				n.SetString(text)
				file, err := yaml.Dump(root)
				require.NoError(t, err)
				err = untold(t, string(file), !isDSN && text == value)
				require.True(t, err != nil || !isDSN || passes, string(file))
			}
		}
		*n.Node = was
	}

	rapid.Check(t, func(t *rapid.T) {
		root, all := leaves()
		i := rapid.IntRange(0, len(all)-1).Filter(func(i int) bool { return all[i].path != "" }).Draw(t, "value")
		form := rapid.SampledFrom(dsns).Draw(t, "form")
		all[i].SetString(fmt.Sprintf(form, secret))
		all[i].Style = rapid.SampledFrom([]yaml.Style{0, yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle}).Draw(t, "style")
		dumped, err := yaml.Dump(root)
		require.NoError(t, err)
		file := string(dumped)
		if rapid.Bool().Draw(t, "line") {
			file = fmt.Sprintf(rapid.SampledFrom([]string{
				"pools: {a: {dsn: %s, max_con: 5}}", "pools: {a: {max_con: 5, dsn: %s}}", "pools: {a: %s, b: x}", "pools: [%s]", "pools: %s", "%s", "tenants: {static: {a: %s}}", "cluster: {keys: [%s, x]}", "cluster: {keys: %s}",
				"pools:\n  a:\n    dsn: %s\n    dsn: x", "pools:\n  a:\n    dns: %s", "pools:\n  a: {user: x, password: %s}", "secert: %s", "acquire: {lock: {ttl: %s}}",
			}).Draw(t, "form of the line"), all[i].Value) + "\n"
		}
		for range rapid.IntRange(0, 1).Draw(t, "breaks") {
			at := rapid.IntRange(0, len(file)).Draw(t, "at")
			if s := strings.Index(file, secret); s >= 0 && rapid.Bool().Draw(t, "near") {
				at = max(0, min(len(file), s+rapid.IntRange(-6, len(secret)+6).Draw(t, "off")))
			}
			what := rapid.SampledFrom([]string{"\t", ": ", ", ", "'", `"`, "{", "}", "[", "]", "&a ", "*a ", "!x ", "\x01", "\xff", "\n---\n", "%%", "@", "#", " #", "|", ">", "- ", "? ", "=", "${", "\\"}).Draw(t, "what")
			file = file[:at] + what + file[at:]
		}
		_ = untold(t, file, true)
	})

	c := Default()
	for _, form := range dsns { // by a program
		dsn := fmt.Sprintf(form, secret)
		c.Tenants.Role, c.Node.Name, c.Pools = dsn, dsn, map[string]routing.PoolConfig{"a": {DSN: dsn}}
		shown, err := c.Show()
		require.NoError(t, err)
		require.NotContains(t, string(shown), secret)
		require.NotContains(t, c.Validate().Error(), secret)
	}
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

// Names with the form of an address are names, in braces too, as long as they hold no password.
func TestNamesOfTheFormOfAddresses(t *testing.T) {
	t.Parallel()
	c, err := Parse("node.yaml", []byte(`
pools: {main: {dsn: '${env:DATABASE_URL}'}}
tenants: {static: {'https://acme.example': {pool: main, schema: acme}, 'urn:tenant:a b@c': {pool: main, schema: abc}}}
limits: {kinds: {'a://b': {max_running: 3}}}
`))
	require.NoError(t, err)
	require.Len(t, c.Tenants.Static, 2)
	for _, name := range []string{"postgres://u:hunter2@h/db", "u:hunter2@h:5432/db", "host=h password=hunter2"} {
		_, err := Parse("node.yaml", []byte("pools: {main: {dsn: '${env:DATABASE_URL}'}}\ntenants: {static: {'"+name+"': {pool: main, schema: acme}}}\n"))
		require.ErrorContains(t, err, "tenants.static has a connection string where a name belongs")
		require.NotContains(t, err.Error(), "hunter2")
	}
}
