package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

// document is what the API's description says of requests.
type document struct {
	Paths      map[string]map[string]operationOf
	Components struct{ Schemas map[string]schema }
}

type operationOf struct {
	Parameters []struct {
		Name, In string
		Required bool
		Schema   schema
	}
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]schema
	Required   []string
	Items      *schema
}

func readDocument(t *testing.T) (d document) {
	text, err := os.ReadFile("../../web/internal/api/openapi.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func (d *document) resolve(s schema) schema {
	if s.Ref != "" {
		return d.Components.Schemas[filepath.Base(s.Ref)]
	}
	return s
}

// Each command of the table is one that there is, with arguments and flags that it has, and each request is one
// of the API's document, with all that this asks for and nothing else.
func TestRemoteCommandsAreRequests(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{now: time.Now})
	d := readDocument(t)
	for name, forms := range calls {
		cmd, rest, err := root.Find(strings.Fields(name))
		require.NoError(t, err, name)
		require.Empty(t, rest, name)
		require.NotNil(t, cmd.RunE, name)
		for _, c := range forms {
			what := name + ": " + c.method + " " + c.path
			o, known := d.Paths["/api/v1"+c.path][strings.ToLower(c.method)]
			require.True(t, known, what)
			body := d.resolve(o.RequestBody.Content["application/json"].Schema)
			given := strings.Fields(c.args)
			for flag, field := range fieldsOf(c.body) {
				require.NotNil(t, cmd.Flags().Lookup(flag), "%s: --%s", what, flag)
				require.Contains(t, body.Properties, field, what)
				if flagIsRequired(cmd, flag) {
					given = append(given, field)
				}
			}
			parameters := map[string]bool{}
			for _, p := range o.Parameters {
				parameters[p.Name] = true
				if p.Required {
					require.Contains(t, append(given, c.when), p.Name, what)
				}
			}
			for flag, field := range fieldsOf(c.query) {
				require.NotNil(t, cmd.Flags().Lookup(flag), "%s: --%s", what, flag)
				require.True(t, parameters[field], "%s: %s", what, field)
			}
			for _, field := range body.Required {
				require.Contains(t, given, field, what)
			}
			for _, arg := range strings.Fields(c.args) {
				require.True(t, strings.Contains(c.path, "{"+arg+"}") || body.Properties[arg].Ref != "" || slices.Contains(body.Required, arg), "%s: %s", what, arg)
			}
			if c.when != "" {
				require.NotNil(t, cmd.Flags().Lookup(c.when), what)
			}
			answer := d.resolve(o.Responses["200"].Content["application/json"].Schema)
			if items, isList := answer.Properties["items"]; isList {
				for _, column := range strings.Fields(c.columns) {
					require.Contains(t, d.resolve(*items.Items).Properties, column, what)
				}
				require.NotEmpty(t, c.columns, what)
			}
		}
	}
}

func flagIsRequired(cmd *cobra.Command, flag string) bool {
	return slices.Contains(cmd.Flags().Lookup(flag).Annotations[cobra.BashCompOneRequiredFlag], "true")
}

// What cannot be had with --server is said in the document.
func TestRemoteLeavesOutWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## From elsewhere: --server\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var left []string
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		name := nameOf(cmd)
		switch forms := calls[name]; {
		case cmd.RunE == nil || cmd.Hidden || cmd.Annotations[onlyHolds] != "" || !cmd.HasParent() || alone[name]:
		case forms == nil:
			left = append(left, "`tenure "+name+"`")
		default:
			cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				sent := f.Name == "output" || slices.ContainsFunc(forms, func(c call) bool {
					return c.when == f.Name || fieldsOf(c.query)[f.Name] != "" || fieldsOf(c.body)[f.Name] != ""
				})
				if !sent {
					left = append(left, "`tenure "+name+" --"+f.Name+"`")
				}
			})
		}
	}
	look(newRoot(&app{now: time.Now}))
	require.Greater(t, len(left), 10)
	for _, one := range left {
		group, _, _ := strings.Cut(strings.TrimPrefix(one, "`tenure "), " ")
		if !strings.Contains(section, "`tenure "+group+"`") || calls[strings.Trim(group, "`")] != nil {
			require.Contains(t, section, one)
		}
	}
}

type elsewhere struct {
	t   *testing.T
	env *jobtest.Env
	url string
	dir string
}

type mail struct{}

func (mail) Kind() string { return "mail.send" }

type broken struct{}

func (broken) Kind() string { return "mail.broken" }

// serveAPI serves the dashboard and the API of a node, to two tokens.
func serveAPI(t *testing.T) *elsewhere {
	env := jobtest.New(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex"), jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(context.Context, *job.Job[mail]) error { return nil })
		job.Handle(r, func(context.Context, *job.Job[broken]) error { return job.Discard(errors.New("no such address: 17")) })
	}))
	admin, support := makeToken(), makeToken()
	h, err := web.Handler(env.Client(), web.Settings{Tokens: map[string]config.Token{
		"admin": {SHA256: admin.Hash, Role: "admin", Args: true}, "support": {SHA256: support.Hash, Role: "operate", Tenants: []tenancy.ID{"acme"}},
	}})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	e := &elsewhere{t, env, server.URL, t.TempDir()}
	for name, token := range map[string]jsonToken{"admin": admin, "support": support, "stranger": makeToken()} {
		require.NoError(t, os.WriteFile(filepath.Join(e.dir, name), []byte(token.Secret+"\n"), 0o600))
	}
	return e
}

// as runs a command with a token. No word of it stands in what is printed.
func (e *elsewhere) as(token string, args ...string) result {
	e.t.Helper()
	path := filepath.Join(e.dir, token)
	r := command(e.t.Context(), "", append(args, "--server", e.url, "--token-file", path)...)
	secret, err := os.ReadFile(path)
	require.NoError(e.t, err)
	require.NotContains(e.t, r.out+r.errors, strings.TrimSpace(string(secret)))
	return r
}

func (e *elsewhere) ok(args ...string) string {
	e.t.Helper()
	r := e.as("admin", args...)
	require.Zero(e.t, r.code, "%v: %s", args, r.errors)
	require.Empty(e.t, r.errors, args)
	return r.out
}

// What people do to jobs, from a machine that has no configuration: there is none in this directory.
func TestRemoteJobs(t *testing.T) {
	t.Parallel()
	require.NoFileExists(t, defaultConfig)
	e := serveAPI(t)
	id := strings.TrimSpace(e.ok("enqueue", "mail.send", `{"n": 9007199254740993}`, "--tenant", "acme", "--in", "PT1H", "--priority", "3", "--tag", "eu", "--tag", "x",
		"--correlation", "order-1", "--unique", "u", "--unique-for", "1h", "--timeout", "90s", "--meta", `{"big": 9007199254740993}`, "--exclusive", "k", "--skip-retrying"))
	shown := e.ok("jobs", "show", id)
	for _, want := range []string{`id +` + id, `state +scheduled`, `priority +3`, `tags +eu, x`, `correlation id +order-1`, `unique key +u`, `timeout ms +90000`, `exclusive key +k`,
		`args +\{"n": ?9007199254740993\}`, `created at +\d{4}-\S+ \(`} {
		require.Regexp(t, `(?m)^`+want, shown)
	}
	var j map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ok("jobs", "show", id, "-o", "json")), &j))
	require.Equal(t, "scheduled", j["state"])
	again := e.as("admin", "enqueue", "mail.send", "{}", "--tenant", "acme", "--unique", "u")
	require.Zero(t, again.code)
	require.Equal(t, id+"\n", again.out)
	require.Contains(t, again.errors, "nothing was added")
	other := strings.TrimSpace(e.ok("enqueue", "mail.send", "{}", "--tenant", "globex"))

	table := e.ok("jobs", "list")
	require.Equal(t, []string{"ID", "STATE", "TENANT", "KIND", "QUEUE", "POOL", "ATTEMPT", "CREATED AT", "ERROR"}, fields(strings.SplitN(table, "\n", 2)[0]))
	require.Len(t, rows(table), 2)
	require.Equal(t, id, rows(e.ok("jobs", "list", "--tag", "eu", "--tag", "x", "--state", "scheduled", "--correlation", "order-1"))[0][0])
	page := e.as("admin", "jobs", "list", "--limit", "1")
	require.Zero(t, page.code)
	_, after, more := strings.Cut(page.errors, "--after ")
	require.True(t, more, page.errors)
	after, _, _ = strings.Cut(after, ",")
	require.NotEqual(t, rows(page.out)[0][0], rows(e.ok("jobs", "list", "--limit", "1", "--after", after))[0][0])

	require.Contains(t, e.ok("jobs", "why", id), "2")
	require.Equal(t, "id "+id+": done\n", e.ok("jobs", "change", id, "--priority", "7", "--timeout", "1500ms"))
	require.Equal(t, "id "+id+": done\nid "+other+": done\n", e.ok("jobs", "suspend", id, other, "--until", "2040-01-01T00:00:00Z"))
	require.Regexp(t, `resume at +2040`, e.ok("jobs", "show", id))
	require.Regexp(t, `priority +7`, e.ok("jobs", "show", id))
	require.Regexp(t, `resumed +1\n`, e.ok("jobs", "resume", "--tenant", "acme"))
	require.Equal(t, "id "+other+": done\n", e.ok("jobs", "resume", other))
	require.Regexp(t, `suspended +2\n`, e.ok("jobs", "suspend", "--all"))
	require.Regexp(t, `resumed +2\n`, e.ok("jobs", "resume", "--all"))
	require.Regexp(t, `operations +[0-9a-f-]{36}`, e.ok("jobs", "cancel", "--tenant", "acme", "--state", "scheduled", "--rate", "2.5"))
	operations := rows(e.ok("operations", "list"))
	require.Len(t, operations, 2, "one in each pool")
	require.Equal(t, []string{"cancel", "acme"}, []string{operations[0][3], operations[0][4]})
	require.Contains(t, e.ok("operations", "show", operations[0][0], "-o", "json"), `"per_second": 2.5`)
	e.ok("operations", "cancel", operations[0][0])
	require.Regexp(t, `(?s)id +`+other+`\nrunning +false`, e.ok("jobs", "cancel", other))

	for args, why := range map[string]string{
		"jobs list --state bogus":                       "bogus",
		"jobs list --limit 1001":                        "query.limit",
		"jobs cancel --all --kind a":                    "or all, and none of these (422",
		"enqueue a {} --tenant acme --unique-for 1h":    "key",
		"enqueue a {} --tenant acme --skip-retrying":    "exclusive_key, which is missing",
		"limits set --tenant acme --rate 0":             "422",
		"jobs show x":                                   "path.id",
		"tenants weight acme 0":                         "body.weight",
		"schedules list --tenant acme --every-tenant=1": "[every-tenant tenant]",
	} {
		r := e.as("admin", strings.Fields(args)...)
		require.Equal(t, exitUsage, r.code, "%s: %s", args, r.errors)
		require.Contains(t, r.errors, why, args)
	}

	// One that fails keeps none of the others from being done.
	r := e.as("admin", "jobs", "retry", "4711", id)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errors, "id 4711: there is no such thing, or this token does not reach it (404 Not Found)")
	require.Regexp(t, `^id +`+id+`\nalready +false\n$`, r.out)
	e.env.Drain(t)
	e.ok("enqueue", "mail.broken", "{}", "--tenant", "acme")
	e.env.Drain(t)
	dead := rows(e.ok("jobs", "dead", "--kind", "mail.broken", "--older", "0s"))
	require.Len(t, dead, 1)
	require.Equal(t, "discard: no such address: #", dead[0][len(dead[0])-1])
	require.Contains(t, e.ok("jobs", "retry", "--group", dead[0][0], "--rate", "10", "--background"), "operations")
	require.Contains(t, e.as("admin", "jobs", "delete", "--group", dead[0][0]).errors, "with --server this needs --background")
}

// What people do to tenants, pools and schedules, and look at.
func TestRemotePlaces(t *testing.T) {
	t.Parallel()
	e := serveAPI(t)
	require.Equal(t, "tenant acme: done\n", e.ok("tenants", "freeze", "acme"))
	require.Regexp(t, `acme +pool-1 +frozen`, e.ok("tenants", "list"))
	require.Contains(t, e.ok("tenants", "why", "acme"), "tenure tenants thaw acme")
	e.ok("tenants", "thaw", "acme")
	e.ok("tenants", "weight", "acme", "3")
	e.ok("tenants", "limit", "acme", "--max-running", "5")
	require.Regexp(t, `acme +pool-1 +active +3`, e.ok("tenants", "list"))
	e.ok("limits", "set", "--tenant", "acme", "--kind", "mail.send", "--rate", "10", "--per", "1m")
	require.Regexp(t, `mail.send .* 60000`, e.ok("limits", "list"))
	e.ok("limits", "delete", "--tenant", "acme", "--kind", "mail.send")
	require.NotContains(t, e.ok("limits", "list"), "mail.send")
	again := e.as("admin", "limits", "delete", "--tenant", "acme", "--kind", "mail.send")
	require.Equal(t, exitFailed, again.code)
	require.Contains(t, again.errors, "404")
	e.ok("pools", "freeze", "pool-1")
	require.Regexp(t, `pool-1 +frozen`, e.ok("pools", "list"))
	e.ok("pools", "thaw", "pool-1")
	e.ok("queues", "freeze", "mail")
	require.Regexp(t, `mail +pool-1 +\d`, e.ok("queues", "list"))
	e.ok("queues", "thaw", "mail")
	e.ok("kinds", "freeze", "mail/send")
	require.Len(t, rows(e.ok("kinds", "list")), 2)
	e.ok("kinds", "thaw", "mail/send")
	require.Empty(t, rows(e.ok("kinds", "list")))
	require.Len(t, rows(e.ok("locks")), 2)
	require.Contains(t, e.ok("locks", "history", "--pool", "pool-1", "--limit", "5"), "frozen")
	e.ok("nodes")

	_, err := e.env.Client().Operator().Schedules().Set(t.Context(), tenure.Schedule{Tenant: "acme", Name: "hourly", Args: tenure.RawArgs{Name: "mail.send", Payload: []byte("{}")}, Rule: "PT1H"})
	require.NoError(t, err)
	require.Equal(t, "name hourly: done\n", e.ok("schedules", "pause", "hourly", "--tenant", "acme"))
	require.Equal(t, "paused", rows(e.ok("schedules", "list", "--tenant", "acme"))[0][2])
	e.ok("schedules", "resume", "hourly", "--tenant", "acme")
	require.Regexp(t, `(?m)^state +active$`, e.ok("schedules", "show", "hourly", "--tenant", "acme"))
	require.Regexp(t, `job +\d+`, e.ok("schedules", "run", "hourly", "--tenant", "acme"))
	require.Contains(t, e.as("admin", "schedules", "delete", "hourly", "--every-tenant").errors, "404")
	e.ok("schedules", "delete", "hourly", "--tenant", "acme")
	require.Contains(t, e.as("admin", "schedules", "show", "hourly").errors, "with --server this needs --tenant or --every-tenant")
	require.Empty(t, rows(e.ok("batches", "list")))
	require.Contains(t, e.ok("audit", "--action", "tenant.freeze", "-o", "json"), `"who": "token:admin"`)
	require.Len(t, rows(e.ok("audit", "--tenant", "acme", "--action", "tenant.freeze")), 1)

	doctor := e.as("admin", "doctor")
	require.Contains(t, doctor.out, "pools were examined")
	require.Equal(t, doctor.code == exitFailed, strings.Contains(doctor.errors, "there is something to mend"))
}

func TestRemoteScopes(t *testing.T) {
	t.Parallel()
	e := serveAPI(t)
	mine := strings.TrimSpace(e.ok("enqueue", "mail.send", `{"secret": 1}`, "--tenant", "acme"))
	theirs := strings.TrimSpace(e.ok("enqueue", "mail.send", "{}", "--tenant", "globex"))
	r := e.as("support", "jobs", "list")
	require.Zero(t, r.code, r.errors)
	require.Equal(t, mine, rows(r.out)[0][0])
	require.Len(t, rows(r.out), 1)
	require.NotContains(t, e.as("support", "jobs", "show", mine).out, "secret")
	for want, args := range map[string][]string{
		"this token does not reach it (404 Not Found)":                     {"jobs", "cancel", theirs},
		"(403 Forbidden): ask whoever runs the node for a token":           {"tenants", "freeze", "acme"},
		"this token does not reach it (404 Not Found) ":                    {"enqueue", "mail.send", "{}", "--tenant", "globex"},
		"this token does not reach it (404 Not Found)  ":                   {"tenants", "why", "globex"},
		"(403 Forbidden): ask whoever runs the node for a token with the ": {"doctor"},
	} {
		r := e.as("support", args...)
		require.Equal(t, exitFailed, r.code, args)
		require.Contains(t, r.errors, strings.TrimSpace(want), args)
		require.Empty(t, r.out, args)
	}
	r = e.as("stranger", "jobs", "list")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errors, "(401 Unauthorized): give the secret of a token that the node knows, by --token-file or $TENURE_TOKEN")
	require.Equal(t, "waiting", e.state(theirs))
}

func (e *elsewhere) state(id string) string {
	var j struct{ State string }
	require.NoError(e.t, json.Unmarshal([]byte(e.ok("jobs", "show", id, "-o", "json")), &j))
	return j.State
}

// What cannot be meant, or cannot be had, is refused before anything is sent.
func TestRemoteRefuses(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(server.Close)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	odd := filepath.Join(t.TempDir(), "odd")
	require.NoError(t, os.WriteFile(odd, []byte("hunter2 hunter2"), 0o600))
	here := "--server " + server.URL
	for args, why := range map[string]string{
		"serve " + here:                                           "tenure serve needs the databases' configuration",
		"migrate " + here:                                         "tenure migrate needs the databases' configuration",
		"tenants move acme --to p2 " + here:                       "tenure tenants move needs the databases' configuration",
		"jobs watch 1 " + here:                                    "needs the databases' configuration",
		"jobs list --config x.yaml " + here:                       "leave out one",
		"jobs show 1 --reveal " + here:                            "--reveal cannot be had with --server",
		"jobs cancel 1 --tenant acme " + here:                     "--tenant cannot be had with --server",
		"jobs cancel --kind a --tenant= " + here:                  "--tenant is empty",
		"jobs cancel --all --pool p1 " + here:                     "--pool cannot be had with --server",
		"jobs cancel --kind a --rate 0 " + here:                   "--rate 0: must be more than 0",
		"jobs suspend --all --until 2001-01-01T00:00:00Z " + here: "is in the past",
		"enqueue a {} --tenant a --max-attempts 0 " + here:        "--max-attempts 0: must be more than 0",
		"jobs change 1 --in 5m " + here:                           "--in cannot be had with --server",
		"jobs change 1 --timeout 0s " + here:                      "one at least",
		"enqueue a {} --tenant a --in 1us " + here:                "whole number",
		"enqueue a {} --tenant a --at noon " + here:               "--at: \"noon\" is not a time",
		"enqueue a {] --tenant a " + here:                         "not valid JSON",
		"enqueue a {} " + here:                                    `"tenant" not set`,
		"jobs show .. " + here:                                    `id "..": there is none`,
		"tenants weight acme much " + here:                        `weight "much": a whole number`,
		"doctor --pool p1 " + here:                                "--pool cannot be had with --server",
		"jobs list --server http://10.0.0.1":                      "http is for this machine only",
		"jobs list --server http://localhost.example":             "http is for this machine only",
		"jobs list --server ftp://127.0.0.1":                      "is no address of a node",
		"jobs list --server tenure.example":                       "is no address of a node",
		"jobs list --server https://u:hunter2@localhost":          "is no address of a node",
		"jobs list --token-file x":                                "go with --server, which is missing",
		"jobs list --token-file " + empty + " " + here:            "it is empty",
		"jobs list --token-file " + odd + " " + here:              "this is no secret of a token",
		"jobs list --token-file /does/not/exist " + here:          "--token-file: open",
		"jobs list --ca-file " + empty + " " + here:               "there is no certificate in it",
		"config show " + here:                                     "needs the databases' configuration",
		"tenants list --server https://localhost/?a=hunter2":      "is no address of a node",
	} {
		r := command(t.Context(), "", strings.Fields(args)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.errors, why, args)
		require.NotContains(t, r.errors, "hunter2", args)
		require.Empty(t, r.out, args)
	}
	require.Zero(t, asked)
	require.Zero(t, command(t.Context(), "", "version", "--server", server.URL).code)
}

// What stands behind the address may be no node, half of one, or nobody.
func TestRemoteAnswers(t *testing.T) {
	t.Parallel()
	leaked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked = true }))
	t.Cleanup(other.Close)
	mux := http.NewServeMux()
	answer := func(pattern string, status int, text string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		})
	}
	answer("GET /ops/api/v1/tenants", 200, `{"items":[{"tenant":"a\u001b[31m","weight":1}],"incomplete":true}`)
	answer("POST /ops/api/v1/jobs/resume", 200, `{"resumed":3,"complete":false}`)
	answer("PUT /ops/api/v1/limits", 422, `{"status":422,"detail":"validation failed","errors":[{"location":"body.rate","message":"too many"}]}`)
	answer("GET /ops/api/v1/nodes", 200, `<html>`)
	answer("GET /ops/api/v1/locks", 200, `{"items":[{"pool":"p","epoch":12,"frozen":false,"answers":false}],"version":"1"}`)
	answer("GET /ops/api/v1/locks/changes", 200, `[]`)
	mux.HandleFunc("GET /ops/api/v1/pools", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/api/v1/pools", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("POST /ops/api/v1/pools/p/freeze", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	ask := func(args string) result {
		return command(t.Context(), "", append(strings.Fields(args), "--server", server.URL+"/ops/")...)
	}
	for args, want := range map[string]result{
		"tenants list":                    {exitFailed, "TENANT  POOL  STATE  WEIGHT  OTHER\na [31m  -     -      1       -\n", "the output is incomplete"},
		"jobs resume --all":               {exitFailed, "resumed   3\ncomplete  false\n", "run this again"},
		"limits set --tenant a --rate 10": {exitUsage, "", "validation failed; body.rate too many (422 Unprocessable Entity)"},
		"nodes":                           {exitFailed, "", "answers with 200 OK, and not as a node's API does"},
		"locks history":                   {exitFailed, "", "is no JSON object"},
		"locks":                           {exitFailed, "POOL  NODE  HOLDER  EPOCH  SINCE  REMAINING SECONDS  RESERVED FOR  FROZEN  ANSWERS\np     -     -       12     -      -                  -             false   false\n", "the output is incomplete"},
		"pools list":                      {exitFailed, "", "redirects are not followed"},
		"pools freeze p":                  {exitFailed, "", "it may have been done all the same"},
		"doctor":                          {exitFailed, "", "404 Not Found"},
	} {
		r := ask(args)
		require.Equal(t, want.code, r.code, args)
		require.Equal(t, want.out, r.out, args)
		require.Contains(t, r.errors, want.errors, args)
	}
	require.False(t, leaked, "the token went to somebody else")
	server.Close()
	r := ask("pools freeze p")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errors, server.URL+"/ops does not answer")
	require.Contains(t, r.errors, "check the address")
}

// A configuration that is there is not read, not even by the shell that completes a pool, or to look whether it has one.
func TestRemoteReadsNoConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(path, []byte("pools: {mine: {dsn: '"+nowhere+"'}}\n"), 0o600))
	t.Setenv(configEnv, path)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"items":[{"id":"1","pool":"` + r.FormValue("pool") + `"}]}`))
	}))
	t.Cleanup(server.Close)
	complete := []string{"__complete", "jobs", "list", "--pool", ""}
	require.Contains(t, command(t.Context(), "", complete...).out, "mine")
	require.NotContains(t, command(t.Context(), "", append([]string{complete[0], "--server", server.URL}, complete[1:]...)...).out, "mine")
	r := command(t.Context(), "", "jobs", "list", "--pool", "theirs", "--server", server.URL)
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.out, "theirs")
}

// The environment names a node as well, and a configuration that is named goes before it.
func TestRemoteEnvironment(t *testing.T) {
	var tokens []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"items":[],"incomplete":false}`))
	}))
	t.Cleanup(server.Close)
	t.Setenv(serverEnv, server.URL)
	t.Setenv(tokenEnv, "hunter2")
	r := command(t.Context(), "", "tenants", "list")
	require.Equal(t, exitFailed, r.code, "nobody knows its certificate")
	require.Contains(t, r.errors, "certificate by --ca-file")
	require.Contains(t, command(t.Context(), "", "pools", "freeze", "p").errors, "certificate by --ca-file")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	r = command(t.Context(), "", "tenants", "list", "--ca-file", ca)
	require.Zero(t, r.code, r.errors)
	require.Equal(t, []string{"Bearer hunter2"}, tokens)
	r = command(t.Context(), "", "tenants", "list", "--config", "missing.yaml")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.errors, "missing.yaml")
}
