package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

// The page is followed with its table, its configuration and its commands: the application's table says where
// a tenant lives, and the tenant moves with its jobs and its data, which the table says then.
func TestTenantsPage(t *testing.T) {
	t.Parallel()
	bin, err := devpg.Find()
	require.NoError(t, err)
	for _, program := range []string{"pg_dump", "pg_restore"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			t.Skip("not installed: ", err)
		}
	}
	server := pgtest.Server(t, devpg.Options{TCP: true})
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "bin", "tenure"), "./cmd/tenure")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	var yaml, sql, console []string
	for _, b := range blocks(t, "tenants.md") {
		switch b.language {
		case "yaml":
			yaml = append(yaml, b.text)
		case "sql":
			sql = append(sql, b.text)
		case "console":
			console = append(console, b.text)
		}
	}
	require.Equal(t, []int{2, 1, 3}, []int{len(yaml), len(sql), len(console)})
	db := map[string]*pgx.Conn{}
	for _, name := range []string{"main", "main2"} {
		require.NoError(t, server.CreateDatabase(t.Context(), name))
		db[name], err = pgx.Connect(t.Context(), server.DSN(name))
		require.NoError(t, err)
		defer db[name].Close(t.Context())
	}
	run := func(pool, sql string) {
		_, err := db[pool].PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err)
	}
	value := func(pool, sql string) (text string) {
		require.NoError(t, db[pool].QueryRow(t.Context(), sql).Scan(&text))
		return text
	}
	run("main", "CREATE SCHEMA app; "+sql[0]+"; CREATE SCHEMA acme; CREATE TABLE acme.note (text text); INSERT INTO acme.note VALUES ('mine')")
	pools := "pools:\n  main2: {dsn: \"${env:NEW_URL}\"}\n"
	require.Contains(t, yaml[1], "pools:\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("node: {name: n, listen: 127.0.0.1:0}\n"+strings.Replace(yaml[1], "pools:\n", pools, 1)), 0o600))

	shell := openShell(t, dir)
	type_ := func(command string) string {
		printed, code := shell.run(t, command)
		require.Zero(t, code, "%s\n%s", command, printed)
		return printed
	}
	type_(fmt.Sprintf("export PATH=%q:$PATH DATABASE_URL=%q OLD_URL=%[2]q NEW_URL=%q", bin, server.DSN("main"), server.DSN("main2")))
	type_("tenure migrate")
	type_(`tenure enqueue mail.send '{}' --tenant acme --in 1h`)
	printed, code := shell.run(t, `tenure enqueue mail.send '{}' --tenant nobody`)
	require.NotZero(t, code)
	require.Contains(t, printed, "nobody")
	for command := range strings.Lines(console[1]) {
		type_(strings.TrimSpace(command))
	}
	require.Equal(t, "main2", value("main", "SELECT pool FROM app.customer WHERE id = 'acme'"))
	require.Equal(t, "mine", value("main2", "SELECT text FROM acme.note"))
	require.Equal(t, "mail.send", value("main2", "SELECT kind FROM tenure.timer_job"))
	type_(strings.TrimSpace(console[0])) // it is there
	type_(`tenure enqueue mail.send '{}' --tenant acme`)
	require.Equal(t, "acme", value("main2", "SELECT tenant_id FROM tenure.job"))

	type_(`tenure schedules set nightly mail.send --tenant acme --rule "0 7 * * *"`)
	run("main", "DELETE FROM app.customer WHERE id = 'acme'")
	type_("tenure serve >serve.log 2>&1 & node=$!")
	require.Contains(t, type_(strings.TrimSpace(console[2])), "2 jobs are cancelled")
	type_("kill $node; wait $node")
	require.Equal(t, "0", value("main2", "SELECT count(*)::text FROM tenure.schedule"))
}
