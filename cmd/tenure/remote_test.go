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
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
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
	Properties map[string]*schema
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

// Each request of the table is one of the API's document, with all that this asks for and nothing else.
func TestCommandsAreRequests(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	requests := 0
	for _, c := range operating {
		cmd := c.build(&app{now: time.Now})
		for _, f := range append(c.forms, map[bool][]form{true: {acquireForm}}[c.name == "external acquire"]...) {
			requests++
			what := c.name + ": " + f.method + " " + f.path
			o, known := d.Paths["/api/v1"+f.path][strings.ToLower(f.method)]
			require.True(t, known, what)
			body, parameters, given := d.resolve(o.RequestBody.Content["application/json"].Schema), map[string]bool{}, []string{}
			for _, arg := range strings.Fields(f.args) {
				arg, _, _ = strings.Cut(arg, ":")
				if given = append(given, arg); arg == "lock" {
					given = append(given, "job", "turn")
					continue
				}
				require.True(t, strings.Contains(f.path, "{"+arg+"}") || slices.Contains(body.Required, arg), "%s: %s", what, arg)
			}
			for _, p := range o.Parameters {
				if parameters[p.Name] = true; p.Required {
					require.Contains(t, append(given, f.when), p.Name, what)
				}
			}
			for _, name := range strings.Fields(f.flags + " " + f.query + " " + f.when) {
				require.True(t, name == "*" || cmd.Flags().Lookup(name) != nil, "%s: --%s", what, name)
			}
			for _, flag := range c.flags {
				if flag.local || f.flags != "*" && !slices.Contains(strings.Fields(f.flags), flag.name) || flag.field == "" {
					continue
				}
				inBody := f.method != http.MethodGet && f.method != http.MethodDelete && f.query != flag.name
				require.True(t, inBody && body.Properties[flag.field] != nil || !inBody && parameters[flag.field], "%s: %s", what, flag.field)
				if flag.always || flagIsRequired(cmd, flag.name) {
					given = append(given, flag.field)
				}
			}
			for _, field := range body.Required {
				require.Contains(t, append(given, f.when), field, what)
			}
			if items := d.resolve(o.Responses["200"].Content["application/json"].Schema).Properties["items"]; items != nil {
				for _, column := range columnsOf(c.columns) {
					require.True(t, c.cells[column.head] != nil || d.resolve(*items.Items).Properties[column.field] != nil, "%s: %s", what, column)
				}
			}
		}
	}
	require.Greater(t, requests, 50)
}

func flagIsRequired(cmd *cobra.Command, flag string) bool {
	return slices.Contains(cmd.Flags().Lookup(flag).Annotations[cobra.BashCompOneRequiredFlag], "true")
}

// What cannot be had with --server is said in the document, and nothing else is.
func TestRemoteLeavesOutWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## From elsewhere: --server\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, found = strings.Cut(section, "These need the databases:")
	require.True(t, found)
	left := map[string]bool{}
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		if name := nameOf(cmd); cmd.RunE != nil && !cmd.Hidden && cmd.Annotations[onlyHolds] == "" && cmd.HasParent() && !alone[name] && cmd.Annotations[asking] == "" {
			if group, _, below := strings.Cut(name, " "); below && group == "config" {
				name = group
			}
			left["`tenure "+name+"`"] = true
		}
	}
	look(newRoot(&app{now: time.Now}))
	for _, c := range operating {
		for _, f := range c.flags {
			if f.local {
				left["`tenure "+c.name+" --"+f.name+"`"] = true
			}
		}
	}
	said := map[string]bool{}
	for _, name := range regexp.MustCompile("`tenure [^`]*`").FindAllString(section, -1) {
		said[name] = true
	}
	require.Equal(t, left, said)
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

// What people do from a machine that has no configuration (there is none in this directory) is what they do with one,
// in the name of a token.
func TestRemote(t *testing.T) {
	t.Parallel()
	require.NoFileExists(t, defaultConfig)
	e := serveAPI(t)
	id := strings.TrimSpace(e.ok("enqueue", "mail.send", `{"n": 9007199254740993}`, "--tenant", "acme", "--in", "PT1H", "--unique", "u"))
	require.Contains(t, e.ok("jobs", "show", id), `"n": 9007199254740993`)
	again := e.as("admin", "enqueue", "mail.send", "{}", "--tenant", "acme", "--unique", "u")
	require.Equal(t, id+"\n", again.out)
	require.Contains(t, again.errors, "nothing was added")
	other := strings.TrimSpace(e.ok("enqueue", "mail.send", "{}", "--tenant", "globex"))
	require.Equal(t, "job "+id+" is changed\n", e.ok("jobs", "change", id, "--priority", "7", "--in", "10m"))
	require.Equal(t, "2 jobs suspended\n", e.ok("jobs", "suspend", "--all"))
	require.Equal(t, "1 job resumed\n", e.ok("jobs", "resume", "--all", "--pool", "pool-1"))
	require.Equal(t, "job "+other+" is resumed\n", e.ok("jobs", "resume", other))
	require.Contains(t, e.ok("jobs", "cancel", "--tenant", "acme", "--state", "scheduled", "--rate", "2.5"), "is under way")
	require.Contains(t, e.ok("operations", "list"), "tenant acme, state scheduled")

	// One that fails keeps none of the others from being done.
	r := e.as("admin", "jobs", "retry", "4711", id)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errors, "id 4711: there is no such thing, or this token does not reach it (404 Not Found)")
	require.Equal(t, "job "+id+" will run now\n", r.out)
	e.env.Drain(t)
	e.ok("enqueue", "mail.broken", "{}", "--tenant", "acme")
	e.env.Drain(t)
	require.Equal(t, "discard: no such address: #", rows(e.ok("jobs", "dead", "--kind", "mail.broken", "--older", "0s"))[0][6])
	require.Equal(t, "1 dead letter deleted\n", e.ok("jobs", "delete", "--kind", "mail.broken"))

	require.Equal(t, "tenant acme is frozen; thaw it with: tenure tenants thaw acme\n", e.ok("tenants", "freeze", "acme"))
	require.Contains(t, e.ok("audit", "--action", "tenant.freeze", "-o", "json"), `"who": "token:admin"`)
	e.ok("schedules", "set", "hourly", "mail.send", "--tenant", "acme", "--rule", "PT1H")
	require.Contains(t, e.ok("schedules", "run", "hourly", "--tenant", "acme"), "has added job ")
	require.Contains(t, e.ok("pools", "drain", "pool-1"), "nothing is running there")
	require.Contains(t, e.ok("top", "--once", "--every", "100ms"), "pool-1  frozen")
	id = strings.TrimSpace(e.ok("enqueue", "mail.send", "{}", "--tenant", "globex"))
	go e.env.Drain(t)
	require.Regexp(t, `(?m)^done`, e.ok("jobs", "watch", id))
	for args, why := range map[string]string{
		"jobs cancel --all --kind a":                 "leave out --tenant",
		"enqueue a {} --tenant acme --unique-for 1h": "is about --unique",
		"limits set --tenant acme --rate 0":          "422",
		"tenants weight acme 0":                      "1 to 100",
		"schedules show hourly":                      "name the tenant, or pass --every-tenant",
	} {
		r := e.as("admin", strings.Fields(args)...)
		require.Equal(t, exitUsage, r.code, "%s: %s", args, r.errors)
		require.Contains(t, r.errors, why, args)
	}
}

// All that looks prints the same JSON, and tables of the same columns, whether it asks a node or the databases.
func TestBothWaysPrintTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	id := b.enqueue("mail.send", `{"n": 9007199254740993}`, "--tenant", "P1", "--meta", `{"by": "me"}`, "--tag", "eu")
	b.enqueue("http.request", `{"url": "https://u:secret@hook.example"}`, "--tenant", "P2", "--in", "1h")
	b.enqueue("invoice.print", "{}", "--tenant", "P1", "--external")
	b.sql("p1", "SELECT tenure.enqueue_linked('P1', 'then', as_batch => true)")
	b.sql("p2", `INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error) VALUES ('P2', 'default', 'mail.send', '{}', 'job', 'no mailbox 7');
		INSERT INTO tenure.node_session (session_id, node, member, kinds, expires_at) VALUES (gen_random_uuid(), 'n', 'm', '{mail.send,report.build,books.close,slow}', now() + interval '1 h')`)
	operation := strings.Fields(b.ok("jobs", "retry", "--all", "--background"))[1]
	b.ok("schedules", "set", "nightly", "report.build", "{}", "--tenant", "P1", "--rule", "@daily")
	b.ok("schedules", "set", "close", "books.close", "--every-tenant", "--rule", "@monthly")
	b.ok("limits", "set", "--tenant", "P1", "--rate", "7")
	b.ok("queues", "freeze", "default")
	b.ok("kinds", "freeze", "slow")
	batch := b.list("batches", "list")[0]["id"].(string)

	cfg, err := loadConfig(b.path)
	require.NoError(t, err)
	cfg.Cluster = nil
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) })
	token := makeToken()
	h, err := web.Handler(client, web.Settings{Redact: redact, Tokens: map[string]config.Token{"admin": {SHA256: token.Hash, Role: "admin", Args: true}}})
	require.NoError(t, err)
	node := httptest.NewServer(h)
	t.Cleanup(node.Close)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(token.Secret), 0o600))

	arguments := map[string]string{"jobs show": id, "jobs why": id, "tenants why": "P1", "batches show": batch, "operations show": operation, "schedules show": "nightly --tenant P1"}
	seconds := regexp.MustCompile(`"(oldest|remaining)_seconds": [0-9.]+|\(.*?\)| {2,}|\b(now|in \d\w+|\d\w+ ago|\d+s)\b`) // what depends on when it is looked
	looked := 0
	for _, c := range operating {
		if len(c.forms) == 0 || c.forms[0].method != http.MethodGet || c.name == "doctor" { // a node says less of what it finds
			continue
		}
		looked++
		for _, how := range []string{"json", "table"} {
			args := append(strings.Fields(c.name+" "+arguments[c.name]), "-o", how)
			here, there := b.run(args...), command(t.Context(), "", append(args, "--server", node.URL, "--token-file", secret)...)
			require.Equal(t, seconds.ReplaceAllString(here.out, ""), seconds.ReplaceAllString(there.out, ""), args)
			require.Equal(t, []any{0, ""}, []any{there.code, there.errors}, args)
			require.NotContains(t, here.out, "u:secret")
		}
	}
	require.Equal(t, 21, looked)
	every := []string{"schedules", "show", "close", "--every-tenant"}
	require.Equal(t, b.ok(every...), command(t.Context(), "", append(every, "--server", node.URL, "--token-file", secret)...).out)
	require.Contains(t, command(t.Context(), "", "enqueue", "mail.sned", "{}", "--tenant", "P1", "--server", node.URL, "--token-file", secret).errors, "did you mean mail.send?")
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
		"jobs list --config x.yaml " + here:                       "leave out one",
		"jobs show 1 --reveal " + here:                            "--reveal cannot be had with --server",
		"jobs cancel 1 --tenant acme " + here:                     "and not both",
		"jobs cancel --kind a --tenant= " + here:                  "--tenant is empty",
		"jobs cancel --kind a --rate 0 " + here:                   "--rate 0: must be more than 0",
		"jobs suspend --all --until 2001-01-01T00:00:00Z " + here: "is in the past",
		"enqueue a {} --tenant a --max-attempts 0 " + here:        "--max-attempts 0: 1 to 1000",
		"jobs change 1 --timeout 0s " + here:                      "1ms or more",
		"enqueue a {} --tenant a --in 1us " + here:                "whole number",
		"enqueue a {} --tenant a --at noon " + here:               "--at: \"noon\" is not a time",
		"enqueue a {] --tenant a " + here:                         "not valid JSON",
		"enqueue a {} " + here:                                    `"tenant" not set`,
		"jobs show .. " + here:                                    `".." is not a job id`,
		"tenants weight acme much " + here:                        `weight "much": a whole number`,
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
	answer("GET /ops/api/v1/batches", 200, `{"items":[],"incomplete":true,"missing":[{"pool":"p2","state":"down"},{"pool":"p3","state":"out of service"}]}`)
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
		"tenants list":                    {exitFailed, "TENANT  POOL  STATE  WEIGHT  OTHER POOL\na [31m  -     -      1       -\n", "the output is incomplete"},
		"batches list -o json":            {exitFailed, "{\n  \"items\": [],\n  \"incomplete\": true,\n  \"missing\": [\n    {\n      \"pool\": \"p2\",\n      \"state\": \"down\"\n    },\n    {\n      \"pool\": \"p3\",\n      \"state\": \"out of service\"\n    }\n  ]\n}\n", "tenure: pool p2 is down\ntenure: pool p3 is out of service\ntenure: the output is incomplete"},
		"jobs resume --all":               {exitFailed, "3 jobs resumed\n", "run this again"},
		"limits set --tenant a --rate 10": {exitUsage, "", "validation failed; body.rate too many (422 Unprocessable Entity)"},
		"nodes":                           {exitFailed, "", "answers with 200 OK, and not as a node's API does"},
		"locks history":                   {exitFailed, "", "is no JSON object"},
		"locks":                           {exitFailed, "POOL  NODE  MEMBER   EPOCH  SINCE  EXPIRES IN  TIMELINE  FROZEN\np     -     unknown  12     -      -           -         no\n", "the output is incomplete"},
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
