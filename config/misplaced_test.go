package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection string may be pasted below any key. Its password is not shown by whatever
// prints the configuration or its faults, and no node starts with it there.
func TestMisplacedPasswordsNeverLeak(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	places := []string{
		"tenants: {role: %s, static: {a: main}}", "tenants: {schema: %s, static: {a: main}}", "tenants: {static: {a: %s}}",
		"tenants: {static: {a: {pool: main, schema: %s}}}", "tenants: {static: {a: {pool: main, role: %s}}}", "tenants: {static: {%s: main}}",
		"tenants: {table: {pool: %s, query: SELECT $1}}",
		"node: {name: %s}", "node: {listen: %s}", "node: {log: {level: %s}}", "node: {wrong: %s}", "wrong: %s", "%s: wrong",
		"cluster: {label: %s}", "cluster: {bind: %s}", "cluster: {advertise: %s}", "cluster: {profile: %s}", "cluster: {join: [%s]}", "cluster: {keys: [%s]}",
		"acquire: {batch: %s}", "execution: {retry: %s}", "execution: {timeout: %s}", "handlers: {http_request: {allow: [%s]}}",
	}
	for _, dsn := range []string{
		"postgres://u:hunter2@h/db", "postgresql://u:x/hunter2@h/db", "postgres://h/db?user=u&password=hunter2", "jdbc:postgresql://h/db?password=hunter2",
		"host=h password=hunter2", "host=h password='x hunter2'", "u:hunter2@h:5432/db", "//u:hunter2@h/db",
	} {
		for _, place := range places {
			text := ok + fmt.Sprintf(place, "'"+strings.ReplaceAll(dsn, "'", "''")+"'") + "\n"
			_, err := Parse("node.yaml", []byte(text))
			require.Error(t, err, text)
			require.NotContains(t, err.Error(), secret, text)
			asJSON, jsonErr := json.Marshal(err)
			require.NoError(t, jsonErr)
			require.NotContains(t, string(asJSON), secret, text)
		}
		c, err := Parse("node.yaml", []byte(ok))
		require.NoError(t, err)
		c.Tenants.Role, c.Node.Name = dsn, dsn // by a program
		shown, err := c.Show()
		require.NoError(t, err)
		require.NotContains(t, string(shown), secret)
		require.NotContains(t, c.Validate().Error(), secret)
	}
}

// Values of the right form that are none: each is an error with its place and what to do.
func TestTraps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"an unknown placeholder": {ok + `tenants: {role: "t_{tenat}"}`, `
node.yaml:2:17: error: "t_{tenat}" has {tenat}, which stands for nothing
    2 | tenants: {role: "t_{tenat}"}
      |                 ^
      = did you mean {tenant}?`},
		"a placeholder without its end": {ok + `tenants: {schema: "t_{tenant"}`, `
node.yaml:2:19: error: "t_{tenant" has {tenant, which stands for nothing
    2 | tenants: {schema: "t_{tenant"}
      |                   ^
      = did you mean {tenant}?`},
		"a placeholder with two ends": {ok + `tenants: {role: "{tenant}}"}`, `
node.yaml:2:17: error: "{tenant}}" has }, which stands for nothing
    2 | tenants: {role: "{tenant}}"}
      |                 ^
      = did you mean {tenant}?`},
		"the same for one tenant": {ok + `tenants: {static: {a: {pool: main, role: "r_{tenant"}}}`, `
node.yaml:2:42: error: "r_{tenant" has {tenant, which is replaced in tenants.role only
    2 | tenants: {static: {a: {pool: main, role: "r_{tenant"}}}
      |                                          ^
      = write the name itself, or leave it out to have the pattern tenants.role`},
		"a placeholder where none is replaced": {ok + `tenants: {static: {a: {pool: main, schema: "s_{tenant}"}}}`, `
node.yaml:2:44: error: "s_{tenant}" has {tenant}, which is replaced in tenants.schema only
    2 | tenants: {static: {a: {pool: main, schema: "s_{tenant}"}}}
      |                                            ^
      = write the name itself, or leave it out to have the pattern tenants.schema`},
		"a shell's variable": {"pools: {main: {dsn: $DATABASE_URL}}", `
node.yaml:1:21: error: $DATABASE_URL is not replaced by anything
    1 | pools: {main: {dsn: $DATABASE_URL}}
      |                     ^
      = did you mean ${env:DATABASE_URL}?`},
		"a shell's variable for the password": {"pools:\n  main:\n    dsn: postgres://app:$DB_PASSWORD@db/app", `
node.yaml:3:10: error: the password, or part of it, looks like a shell's variable, which nothing replaces
    3 |     dsn: postgres://app:***@db/app
      |          ^
      = write ${env:NAME} for a variable; if the $ is the password's own, write it as %24`},
		"the same where nothing is percent-encoded": {`pools: {main: {dsn: "host=db password=$HUNTER22 user=app"}}`, `
node.yaml:1:21: error: the password, or part of it, looks like a shell's variable, which nothing replaces
    1 | pools: {main: {dsn: "host=db password=*** user=app"}}
      |                     ^
      = write ${env:NAME} for a variable; if the $ is the password's own, put the DSN into a file and write ${file:/path}`},
		"a shell's variable for another part": {"pools: {main: {dsn: 'postgres://app:hunter2@$DB_HOST/app'}}", `
node.yaml:1:21: error: $DB_HOST is not replaced by anything
    1 | pools: {main: {dsn: 'postgres://app:***@$DB_HOST/app'}}
      |                     ^
      = did you mean ${env:DB_HOST}?`},
		"a pool's settings not indented": {"pools:\n  main:\n  dsn: ${env:DATABASE_URL}\ntenants: {static: {a: main}}", `
node.yaml:3:3: error: "dsn" stands where a name under pools belongs
    3 |   dsn: ${env:DATABASE_URL}
      |   ^
      = indent it by two spaces more, so that it stands below main`},
		"a pool without a name": {"pools:\n  dsn: ${env:DATABASE_URL}\ntenants: {static: {a: main}}", `
node.yaml:2:3: error: "dsn" stands where a name under pools belongs
    2 |   dsn: ${env:DATABASE_URL}
      |   ^
      = write a name above it, and indent it below that:  pools: {main: {dsn: …}}`},
		"tenants not indented": {ok + "tenants:\n  static:\n  acme: main", `
node.yaml:4:3: error: unknown key "acme"
    4 |   acme: main
      |   ^
      = indent it by two spaces more, so that it stands below static`},
		"a section indented too far": {"pools:\n  main:\n    dsn: ${env:DATABASE_URL}\n    tenants: {static: {a: main}}", `
node.yaml:4:5: error: unknown key "tenants"
    4 |     tenants: {static: {a: main}}
      |     ^
      = it is a section of its own: begin it at the left margin`},
	} {
		_, err := Parse("node.yaml", []byte(c.in))
		require.EqualError(t, err, strings.TrimPrefix(c.want, "\n")+"\n1 problem in node.yaml; nothing was changed", name)
	}
	_, err := Parse("node.yaml", []byte("pools:\nmain:\n  dsn: ${env:DATABASE_URL}\ntenants: {static: {a: main}}"))
	require.ErrorContains(t, err, "so that it stands below pools")
	require.ErrorContains(t, err, "there is no pool yet: name it under pools")
	require.NotContains(t, err.Error(), "pools are: \n")
	_, err = Parse("node.yaml", []byte(`pools: {main: {dsn: "postgres://app:pa$WORDy@db/app"}}`))
	require.NoError(t, err, "a password may have a $")
}
