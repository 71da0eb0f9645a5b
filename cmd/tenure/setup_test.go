package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

// mainEnv makes this test binary the tenure command: for what needs a process.
const mainEnv = "TENURE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	pgtest.Main(m)
}

// nowhere is the address of a database that does not answer.
const nowhere = "postgres://app:hunter2@127.0.0.1:1/nowhere"

// bed is a configuration file and the databases it names.
type bed struct {
	t    *testing.T
	path string
	dsn  map[string]string // by pool
}

// setup makes a bed with these pools, migrated, each with a tenant of its name in
// capitals. A name with an exclamation mark is a pool that does not answer, one
// with a question mark a database that is not migrated.
func setup(t *testing.T, pools ...string) *bed {
	b := &bed{t: t, path: filepath.Join(t.TempDir(), "node.yaml"), dsn: map[string]string{}}
	var text strings.Builder
	text.WriteString("node: {name: test, listen: 127.0.0.1:0}\n" +
		"acquire: {idle_wait: 200ms, lock: {ttl: 2s, renew_every: 400ms}, session: {ttl: 3s, heartbeat_every: 500ms}}\n" +
		"execution: {finish_within: 5s}\n" +
		"handlers: {http_request: {allow: [127.0.0.1/32]}, sql_exec: {enabled: true}}\npools:\n")
	for i, pool := range pools {
		name := strings.TrimRight(pool, "?!")
		switch {
		case strings.HasSuffix(pool, "!"):
			b.dsn[name] = nowhere
		case strings.HasSuffix(pool, "?"):
			b.dsn[name] = pgtest.Database(t)
		default:
			b.dsn[name] = storetest.DSN(t, name, i+1)
		}
		fmt.Fprintf(&text, "  %s: {dsn: %q, max_conns: 8}\n", name, b.dsn[name])
	}
	text.WriteString("tenants:\n  static:\n")
	for name := range b.dsn {
		fmt.Fprintf(&text, "    %s: {pool: %s, schema: t}\n", strings.ToUpper(name), name)
	}
	require.NoError(t, os.WriteFile(b.path, []byte(text.String()), 0o600))
	return b
}

// config adds to the end of the configuration, which is tenants.
func (b *bed) config(text string) {
	b.t.Helper()
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(b.t, err)
	_, err = f.WriteString(text)
	require.NoError(b.t, errors.Join(err, f.Close()))
}

// result is what a command left behind.
type result struct {
	code        int
	out, errors string
}

// run runs a command on the bed's configuration.
func (b *bed) run(args ...string) result { return b.runWith("", args...) }

func (b *bed) runWith(stdin string, args ...string) result {
	b.t.Helper()
	r := command(b.t.Context(), stdin, append(args, "--config", b.path)...)
	require.NotContains(b.t, r.out+r.errors, "hunter2")
	require.NotContains(b.t, r.out+r.errors, "goroutine ")
	return r
}

func command(ctx context.Context, stdin string, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// farLine is what a command that takes long says now and then: on a slow machine any may.
var farLine = regexp.MustCompile(`(?m)^\w+ \d+ of \d+ pools, .* time left: .*\n`)

// ok runs a command that succeeds without a word to stderr, but how far it is, and returns its output.
func (b *bed) ok(args ...string) string {
	b.t.Helper()
	r := b.run(args...)
	require.Zero(b.t, r.code, r.errors)
	require.Empty(b.t, farLine.ReplaceAllString(r.errors, ""))
	return r.out
}

// list runs a command that prints a list as JSON, and reads its items.
func (b *bed) list(args ...string) (items []map[string]any) {
	b.t.Helper()
	var all struct{ Items []map[string]any }
	require.NoError(b.t, json.Unmarshal([]byte(b.ok(append(args, "-o", "json")...)), &all))
	require.NotNil(b.t, all.Items)
	return all.Items
}

// fails runs a command that fails.
func (b *bed) fails(code int, args ...string) result {
	b.t.Helper()
	r := b.run(args...)
	require.Equal(b.t, code, r.code, "out: %s\nerrors: %s", r.out, r.errors)
	require.NotEmpty(b.t, r.errors)
	return r
}

// enqueue adds a job and returns its id.
func (b *bed) enqueue(args ...string) string {
	b.t.Helper()
	return strings.TrimSpace(b.ok(append([]string{"enqueue"}, args...)...))
}

// sql runs statements in a pool's database.
func (b *bed) sql(pool, statements string) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dsn[pool])
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	_, err = conn.Exec(b.t.Context(), statements)
	require.NoError(b.t, err)
}

// patience is for what takes milliseconds on an idle machine.
const (
	patience = 30 * time.Second
	tick     = 20 * time.Millisecond
)

// fields splits a table's line into its cells.
func fields(line string) []string {
	var cells []string
	for cell := range strings.SplitSeq(strings.TrimSpace(line), "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells
}

// rows are the lines of a table without its head.
func rows(table string) (out [][]string) {
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		out = append(out, fields(line))
	}
	return out
}
