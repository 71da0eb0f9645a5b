package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/operate"
)

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	for args, why := range map[string]string{
		"jobs":                        "list, rerun, resume, retry, run, show",
		"jobs lsit":                   "did you mean list?",
		"srve":                        "did you mean serve?",
		"config chekc":                "did you mean check?",
		"serve now":                   "unknown command",
		"migrate --bogus":             "unknown flag: --bogus",
		"migrate --pool p9":           `pool "p9" is not under pools in the configuration, which has: p1`,
		"jobs list -o xml":            "choose table or json",
		"jobs list --state ready":     `--state "ready" is not one of waiting, claimed, running`,
		"jobs list --limit 0":         "--limit 0: 1 to 10000",
		"jobs list --pool p9":         `pool "p9"`,
		"jobs show":                   "accepts 1 arg",
		"jobs watch abc":              `"abc" is not a job id`,
		"jobs show abc":               `"abc" is not a job id`,
		"jobs retry 1 x":              `"x" is not a job id`,
		"jobs cancel -- -5":           `"-5" is not a job id`,
		"jobs retry":                  "say which: --group, --kind",
		"jobs retry 1 --kind k":       "not both",
		"jobs retry --all --kind k":   "--all goes with",
		"jobs retry --kind=":          "--kind is empty",
		"jobs retry --all --rate 0":   "--rate 0: must be more than 0",
		"jobs delete":                 "say which: --group",
		"jobs delete 1":               "a single dead letter ends by: tenure jobs cancel 1",
		"jobs delete --older x":       "--older",
		"jobs delete --all --pool p9": `pool "p9"`,
		"jobs suspend":                "say which: --tenant",
		"jobs suspend 1 --all":        "not both",
		"jobs suspend --all --kind k": "leave out --tenant",
		"jobs suspend --queue=":       "--queue is empty",
		"jobs suspend 1 --until noon": "is not a time",
		"jobs resume --all --pool p9": `pool "p9"`,
		"jobs suspend 1 --until 2001-01-01T00:00:00Z": "is in the past",
		"jobs change 1":                             "say what is to change",
		"jobs change 1 --priority 1001":             "-1000 to 1000",
		"jobs change 1 --max-attempts 0":            "1 to 1000",
		"jobs change 1 --timeout 1us":               "must be 1ms or more",
		"jobs change 1 --in x":                      "--in",
		"jobs change 1 --at x --in 1s":              "[at in]",
		"enqueue a":                                 "accepts 2 arg",
		"enqueue a {}":                              `"tenant" not set`,
		"enqueue a {} --tenant=":                    "tenant id is empty",
		"enqueue a|b {} --tenant P1":                "kind",
		"enqueue a {] --tenant P1":                  "not valid JSON",
		"enqueue a - --tenant P1":                   "not valid JSON",
		"enqueue a {} --tenant P1 --in 5":           "no unit",
		"enqueue a {} --tenant P1 --in -5s":         "past",
		"enqueue a {} --tenant P1 --at noon":        "is not a time",
		"enqueue a {} --tenant P1 --in 1s --at x":   "[at in]",
		"enqueue a {} --tenant P1 --priority 1001":  "-1000 to 1000",
		"enqueue a {} --tenant P1 --max-attempts 0": "1 to 1000",
		"enqueue a {} --tenant P1 --unique=":        "key is empty",
		"enqueue a {} --tenant P1 --meta []":        "not a JSON object",
		"enqueue a {} --tenant P1 --meta null":      "not a JSON object",
		"enqueue a {} --tenant P1 --meta {}{}":      "not a JSON object",
		"enqueue a {} --tenant P1 --queue a|b":      "queue",
		"tenants":                                   "freeze, limit, list, move, reassign, thaw",
		"tenants move P1":                           `"to" not set`,
		"tenants move --to p1":                      "accepts 1 arg",
		"tenants move P1 --to p1 --wait 0s":         "must be more than 0",
		"tenants move P1 --to p1 --wait 5":          "missing unit",
		"tenants freeze":                            "accepts 1 arg",
		"demo --jobs 0":                             "1 to 1000000",
		"demo --tenants 2":                          "at least one per pool",
		"demo --dsn postgres://x:hunter2@[":         "cannot be read as a Postgres connection string",
	} {
		r := b.fails(exitUsage, strings.Fields(args)...)
		require.Contains(t, r.errors, why, args)
		require.Contains(t, r.errors, "\nusage: tenure", args)
		require.Empty(t, r.out, args)
	}
	require.Empty(t, rows(b.ok("jobs", "list")))
}

// A variable of the shell that is not set chooses nothing, and not everything.
func TestWhatIsEmptyIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"jobs delete --kind k --pool=", "jobs cancel --tenant= --kind k", "external acquire t --worker w --tenant="} {
		r := command(t.Context(), "", append(strings.Fields(args), "--server", "http://127.0.0.1:1")...)
		require.Equal(t, exitUsage, r.code, args+r.errors)
		require.Contains(t, r.errors, "empty", args)
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help", "jobs"}, {"version"}, {"enqueue", "-h"}, {"completion", "bash"}} {
		r := command(t.Context(), "", args...)
		require.Zero(t, r.code)
		require.NotEmpty(t, r.out)
		require.Empty(t, r.errors)
	}
}

// The help of each command begins with what it does, also where there is more to say of it.
func TestHelpBeginsWithWhatACommandDoes(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		require.Regexp(t, "^[A-Z].*[^.]$", cmd.Short, args)
		first, rest, _ := strings.Cut(command(t.Context(), "", args...).out, "\n")
		require.Equal(t, cmd.Short+".", first, args)
		require.Regexp(t, `^\n([A-Z#-]|Usage:)`, rest, args)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{now: time.Now}))
}

// A program that asks which version it has before it does anything reads it either way.
func TestVersion(t *testing.T) {
	t.Parallel()
	text := command(t.Context(), "", "version")
	require.Zero(t, text.code)
	require.Equal(t, text, command(t.Context(), "", "--version"))
	var v jsonVersion
	r := command(t.Context(), "", "version", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(r.out), &v), r.errors)
	require.Equal(t, v.String()+"\n", text.out)
	require.Equal(t, operate.LedgerVersion(), v.LedgerVersion)
}

// The shell completes what a command line may go on with.
func TestCompletion(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!")
	b.sql("p1", `INSERT INTO tenure.node_session (session_id, node, member, kinds, expires_at)
		VALUES (gen_random_uuid(), 'n', 'm', '{invoice.print,mail.send}', clock_timestamp() + interval '1 hour')`)
	b.run("queues", "freeze", "mail") // in p1
	b.run("kinds", "freeze", "invoice/send")
	for args, want := range map[string]string{
		"queues thaw m":           "mail",
		"kinds thaw i":            "invoice/send",
		"jobs list --state d":     "dead done",
		"jobs list --pool p":      "p1 p2",
		"jobs retry --tenant P":   "P1 P2",
		"jobs cancel --bogus":     "",
		"jobs list --kind inv":    "invoice.print",
		"enqueue mail":            "mail.send",
		"pools freeze p2":         "p2",
		"pools drain p1 p":        "",
		"tenants move P1 --to p1": "p1",
		"jobs list -o j":          "json",
		"tenants why P":           "P1 P2",
	} {
		words := strings.Fields(args)
		r := command(t.Context(), "", append([]string{"__complete", "--config", b.path}, words...)...)
		var got []string
		for line := range strings.SplitSeq(r.out, "\n") {
			if line != "" && !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "_") {
				got = append(got, line)
			}
		}
		require.Equal(t, want, strings.Join(got, " "), args)
	}
}

// What goes to a file, or where NO_COLOR is set, has no colours.
func TestPaint(t *testing.T) {
	require.Equal(t, "x", paint(&strings.Builder{}, red, "x"))
	terminal, err := os.Open("/dev/null") // a device, as terminals are
	require.NoError(t, err)
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("CI", "")
	t.Setenv("NO_COLOR", "")
	require.Equal(t, "\x1b[31mx\x1b[0m", paint(terminal, red, "x"))
	t.Setenv("NO_COLOR", "1")
	require.Equal(t, "x", paint(terminal, red, "x"))
}

func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing.yaml")
	for _, args := range [][]string{{"serve"}, {"migrate"}, {"locks"}, {"config", "show"}, {"config", "check"}} {
		r := command(t.Context(), "", append(args, "--config", path)...)
		require.Equal(t, exitUsage, r.code)
		require.Empty(t, r.out)
		require.Contains(t, r.errors, "name the file with --config or $TENURE_CONFIG")
		require.Equal(t, args[0] == "serve", strings.Contains(r.errors, config.Minimal))
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("good.yaml", "pools: {main: {dsn: '"+nowhere+"'}}\n")
	for _, args := range [][]string{{good}, {"--config", good}} {
		r := command(t.Context(), "", append([]string{"config", "check"}, args...)...)
		require.Equal(t, result{0, "ok\n", ""}, r)
	}
	bad := write("bad.yaml", `pools:
  main:
    dsn: `+nowhere+`
    max_con: 5
acquire:
  lock: {ttl: 5 minutes}
tenants:
  static: {acme: mian}
`)
	want := strings.ReplaceAll(`FILE:4:5: error: pools.main.max_con is an unknown key
      = did you mean max_conns?
FILE:6:15: error: acquire.lock.ttl is not a duration
      = write 90s, 5m, 1h30m or PT5M
FILE:8:18: error: tenants.static.acme.pool is not under pools
      = did you mean main?
3 problems in FILE
`, "FILE", bad)
	require.Equal(t, result{exitUsage, "", want}, command(t.Context(), "", "config", "check", bad))
	// The same faults keep every other command from doing anything.
	for _, args := range [][]string{{"serve"}, {"migrate"}, {"jobs", "list"}, {"config", "show"}, {"enqueue", "a", "{}", "--tenant", "acme"}} {
		require.Equal(t, result{exitUsage, "", want}, command(t.Context(), "", append(args, "--config", bad)...))
	}
	r := command(context.Background(), "", "config", "check", bad, "-o", "json")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.out, `"path": "pools.main.max_con"`)
	require.Equal(t, want, r.errors)
	r = command(t.Context(), "", "config", "check", good, "-o", "json")
	require.JSONEq(t, `{"file": "`+good+`", "faults": []}`, r.out)
}

func TestConfigShow(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1!")
	out := b.ok("config", "show")
	require.Contains(t, out, "dsn: postgres://app:***@127.0.0.1:1/nowhere")
	require.Contains(t, out, "heartbeat_every: 500ms")
	require.Contains(t, out, "retention: 24h0m0s")
}
