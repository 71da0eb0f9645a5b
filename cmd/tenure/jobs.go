package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// noSuchJob is for a job that is in no state at all.
const noSuchJob = "finished jobs are kept for execution.retention; see: tenure jobs list"

// dead are the flags that choose dead letters, and movable those that choose unfinished jobs; --pool narrows what they choose.
var (
	dead    = []string{"group", "kind", "tenant", "error", "tag", "correlation", "older"}
	movable = []string{"tenant", "kind", "queue", "correlation", "tag", "state"}
)

func deadFlags(pool flag) []flag {
	return []flag{
		textFlag("group", "only dead letters of this `group`, as tenure jobs dead names it"),
		textFlag("kind", "only dead letters of this kind"),
		textFlag("tenant", "only dead letters of this tenant"),
		textFlag("error", "only dead letters whose error contains this `text`, in upper or lower case"),
		textFlag("tag", "only dead letters with this tag"),
		textFlag("correlation", "only dead letters with this correlation `id`").as("correlation_id"),
		textFlag("older", "only those that died at least so long ago, such as 1h or P2D").as("before").by(ago),
		pool,
	}
}

func movableFlags(more ...flag) []flag {
	return append([]flag{
		textFlag("tenant", "jobs of this tenant"), textFlag("kind", "jobs of this kind"), textFlag("queue", "jobs on this queue"),
		textFlag("correlation", "jobs with this correlation `id`").as("correlation_id"), textFlag("tag", "jobs with this tag"),
		poolFlag("only jobs in this pool"), flagOf("all", false, "all jobs"),
	}, more...)
}

var backgroundFlag = flagOf("background", false, "have the nodes do it, each pool at this rate; see tenure operations").as("")

var deadPool = poolFlag("only dead letters in this pool")

// orChosen are the forms of a command that does something to each job of its arguments, or to those that flags choose.
func orChosen(each *form, path, flags string, fill func(*question, map[string]any)) []form {
	forms := []form{{method: http.MethodPost, path: path, flags: flags + " pool all", fill: func(q *question, body map[string]any) {
		if body["pool"] != nil { // which is a choice by itself
			delete(body, "all")
		}
		if fill != nil {
			fill(q, body)
		}
	}}}
	if each != nil {
		forms = append([]form{*each}, forms...)
	}
	return forms
}

// chooses looks whether ids or flags choose jobs, and not both. extra are flags that go with those only.
func chooses(noun string, flags []string, ids bool, extra ...string) func(*question) error {
	return func(q *question) error {
		chosen := slices.ContainsFunc(flags, func(name string) bool { return q.cmd.Flags().Changed(name) })
		orIDs := ""
		if ids {
			orIDs = ", or ids"
		}
		switch {
		case len(q.args) > 0 && (chosen || q.given("all") || q.given("pool") || slices.ContainsFunc(extra, q.cmd.Flags().Changed)):
			return usagef("give ids, or flags that choose %s, and not both", noun)
		case len(q.args) == 0 && !chosen && !q.given("all"):
			return usagef("say which: --%s or --all%s", strings.Join(flags, ", --"), orIDs)
		case chosen && q.given("all"):
			return usagef("--all goes with %s only: leave out --%s", strings.Join(append([]string{"--pool"}, dashed(extra)...), ", "), strings.Join(flags, ", --"))
		}
		return nil
	}
}

// choosesToRetry is chooses for dead letters, or for jobs of a state.
func choosesToRetry(q *question) error {
	of, others := "dead letters", []string{"queue"}
	if q.given("state") {
		of, others = "jobs that are "+q.cmd.Flag("state").Value.String(), []string{"group", "error", "older", "background", "all"}
	}
	if i := slices.IndexFunc(others, q.given); i >= 0 {
		return usagef("--%s does not choose %s", others[i], of)
	}
	return chooses(of, append(slices.Clone(dead), "state"), true, "rate", "background")(q)
}

func stateFlag(states []string) flag {
	return textFlag("state", "jobs in this state: "+strings.Join(states, ", ")).by(oneOf(states))
}

func dashed(names []string) (out []string) {
	for _, name := range names {
		out = append(out, "--"+name)
	}
	return out
}

// nowOrLater says whether dead letters are worked on while the request lasts.
func nowOrLater(q *question, body map[string]any) {
	if !q.given("background") {
		body["now"] = true
	}
}

// underWay says where to look for operations that have begun.
func underWay(ids []string) string {
	var lines []string
	for _, id := range ids {
		lines = append(lines, fmt.Sprintf("operation %s is under way; see: tenure operations show %[1]s", id))
	}
	return strings.Join(lines, "\n")
}

// saidOfDead says what was done to dead letters, or what has begun.
func saidOfDead(done string) func(*answer) string {
	return func(r *answer) string {
		var said struct {
			Operations []string
			Now        *struct {
				Done, Left int
				KeyTaken   int `json:"key_taken"`
			}
		}
		_ = r.readInto(&said) // what cannot be read says nothing
		if said.Now == nil {
			return underWay(said.Operations)
		}
		n := said.Now
		text := plural.Count(n.Done, "dead letter ", "dead letters ") + done
		if n.KeyTaken > 0 {
			text += "; " + plural.Count(n.KeyTaken, "stays: an unfinished job has its unique key", "stay: unfinished jobs have their unique keys")
		}
		if n.Left > 0 {
			text += "; " + plural.Count(n.Left, "stays: its", "stay: their") + " tenant is being moved, or somebody has locked or changed " + plural.Which(n.Left, "it", "them") + "; run this again later"
		}
		return text
	}
}

// ofOne says what was done to one job, and what otherwise of those that were chosen.
func ofOne(one, chosen func(*answer) string) func(*answer) string {
	return func(r *answer) string {
		if r.arg != "" {
			return one(r)
		}
		return chosen(r)
	}
}

func saidOfRetry(r *answer) string {
	var said struct{ Already bool }
	_ = r.readInto(&said) // likewise
	if said.Already {
		return "job " + r.arg + " is already waiting"
	}
	return "job " + r.arg + " will run now"
}

// saidOfRetried says what was done to jobs of a state, or to dead letters.
func saidOfRetried(r *answer) string {
	var said struct{ Retried, Left *int }
	_ = r.readInto(&said) // likewise
	if said.Retried == nil || said.Left == nil {
		text := saidOfDead("retried")(r)
		if strings.HasPrefix(text, "0 ") {
			text += "; for jobs that wait for their next attempt, say --state retrying"
		}
		return text
	}
	text := plural.Count(*said.Retried, "job runs", "jobs run") + " now"
	if r.cmd.Flags().Changed("rate") {
		text += ", one after the other at that rate"
	}
	if *said.Left > 0 {
		text += "; " + plural.Count(*said.Left, "stays: its", "stay: their") + " tenant is being moved, or somebody has locked " + plural.Which(*said.Left, "it", "them") + "; run this again later"
	}
	return text
}

func saidOfRerun(r *answer) string {
	var said struct{ ID string }
	_ = r.readInto(&said) // likewise
	return "job " + r.arg + " runs again as job " + said.ID
}

func saidOfCancel(r *answer) string {
	var said struct{ Running bool }
	_ = r.readInto(&said) // likewise
	if said.Running {
		return "job " + r.arg + " is running; its handler is being cancelled"
	}
	return "job " + r.arg + " is cancelled"
}

func saidOfBegun(r *answer) string {
	var said struct{ Operations []string }
	_ = r.readInto(&said) // likewise
	return underWay(said.Operations)
}

func saidOfSuspended(r *answer) string {
	var n struct{ Suspended, Running, Left int }
	_ = r.readInto(&n) // likewise
	text := plural.Count(n.Suspended, "job", "jobs") + " suspended"
	if n.Running > 0 {
		text += "; " + plural.Count(n.Running, "is running and goes on", "are running and go on")
	}
	if n.Left > 0 {
		text += "; " + plural.Count(n.Left, "stays, as somebody has locked it or its", "stay, as somebody has locked them or their") + " tenant is being moved: run it again"
	}
	return text
}

func saidOfResumed(r *answer) string {
	var n struct{ Resumed int }
	_ = r.readInto(&n) // likewise
	return plural.Count(n.Resumed, "job", "jobs") + " resumed"
}

var jobCommands = []spec{
	{
		name: "jobs list", short: "List jobs over all pools, newest first", forms: list("/jobs"),
		flags: []flag{
			textFlag("state", strings.Join(operate.States, ", ")).by(oneOf(operate.States)),
			textFlag("tenant", "only jobs of this tenant"), textFlag("kind", "only jobs of this kind"), textFlag("queue", "only jobs on this queue"),
			flagOf("tag", []string(nil), "only jobs with this `tag`; said more than once: with all of them").by(checked(job.ValidateTag)),
			textFlag("correlation", "only jobs with this correlation `ID`").as("correlation_id"),
			textFlag("since", "only jobs made at this `time` or later, such as 2027-01-31T09:00:00Z, or so long ago at most, such as 2h").by(timeOrAgo),
			textFlag("until", "only jobs made before this `time`, or so long ago at least").by(timeOrAgo),
			textFlag("error", "with --state dead: only those whose error contains this `text`, in upper or lower case"),
			textFlag("node", "with --state claimed, running or locked: only those with this `node`, or external worker"),
			poolFlag("only jobs in this pool"), limitFlag(100, "jobs"), afterFlag,
		},
		columns: "id state tenant kind queue pool attempts created=created_at detail",
		cells: map[string]cell{"state": of(func(_ *app, j *shownJob) string { return j.state() }), "attempts": of(func(_ *app, j *shownJob) string { return j.attempts() }),
			"detail": of(func(a *app, j *shownJob) string { return j.detail(a) })},
	},
	{
		name: "jobs show", args: "ID", short: "Show a job with its arguments, failed runs, progress, output and log lines", forms: withID(http.MethodGet, "/jobs/{id}"),
		flags: []flag{
			flagOf("reveal", false, "show encrypted arguments, and the headers and credentials of an http.request instead of ***").here(),
			flagOf("stack", false, "show where the handler is of a job that runs on this machine's node, and the stacks of runs that have failed (-o json always has these)"),
		},
		show: showJob, absent: noSuchJob,
	},
	{
		name: "jobs why", args: "ID", short: "Say why a job does not run, and what to do about it", forms: withID(http.MethodGet, "/jobs/{id}/why"),
		long: "The first reason that is true, as the ledger of the job's pool has it. What only the node\n" +
			"knows that holds the pool's lock is told as waiting for its turn.",
		show: showWhy, absent: noSuchJob,
	},
	{
		name: "jobs watch", args: "ID", short: "Follow a job to its end: its state, progress, log lines and output",
		long:   "It ends with the job, and fails if that is not done. With -o json it prints what `jobs show` does, without arguments, whenever something of it has changed.",
		output: true, check: aJob, run: watchJob, limit: watchLimit, absent: noSuchJob,
	},
	{
		name: "jobs run", args: "ID", short: "Have a job run now, and follow that run to its end",
		long: "A job that waits, for its turn or its time, or that is dead goes before all others of its tenant\n" +
			"and queue: it gets the highest priority, and keeps it. It runs on a node, not here, and as any\n" +
			"other: if it does not start, tenure jobs why says what it waits for. The command fails if the\n" +
			"run does, also if the job is to be tried again.",
		output: true, check: aJob, run: runJob, limit: watchLimit, absent: noSuchJob,
	},
	{
		name: "jobs dead", short: "Group dead letters by kind and error", forms: list("/dead-letters/groups"), flags: deadFlags(deadPool),
		long: "Groups the dead letters of all pools by their kind and what their errors have in common: #\n" +
			"stands for numbers, ids, times and quoted text. SAMPLE is the one that died last; see it with\n" +
			"tenure jobs show. Retry or delete a group by tenure jobs retry or delete --group GROUP.",
		columns: "group count kind first=first_died_at last=last_died_at sample error",
		cells:   map[string]cell{"error": of(func(_ *app, g *struct{ Error string }) string { return g.Error })},
	},
	{
		name: "jobs retry", args: "[ID...]", short: "Make dead, retrying and scheduled jobs run now",
		long: "A dead job gets all its attempts again.\n\n" +
			"With flags that choose, and no id, all dead letters that they choose are retried, those that die meanwhile\n" +
			"not included: --group, --kind, --tenant, --error, --tag, --correlation, --older, --pool or --all. See them first: tenure jobs dead.\n" +
			"Or let nodes do it, with --background.\n\n" +
			"With --state retrying, or scheduled, those jobs become due now that --kind, --tenant, --queue, --tag,\n" +
			"--correlation and --pool choose, or all of them, at most --rate a second.\n\n" +
			"Whatever interrupts the command, run it again: it goes on with those that are left.",
		example: "  tenure jobs retry --group 5d1c6d2e0a4f7b93 --rate 50\n" +
			"  tenure jobs retry --state retrying --kind invoice.send --rate 50",
		flags: append(deadFlags(poolFlag("only those in this pool")), flagOf("all", false, "all dead letters"), rateFlag, backgroundFlag,
			textFlag("state", "jobs in this state in the place of dead letters: "+strings.Join(operate.RetryStates, ", ")).by(oneOf(operate.RetryStates)),
			textFlag("queue", "with --state: jobs on this queue")),
		check: choosesToRetry, limit: manyLimit,
		forms: append([]form{{method: http.MethodPost, path: "/jobs/retry", flags: "state kind tenant queue tag correlation pool rate", when: "state"}},
			orChosen(&form{method: http.MethodPost, path: "/jobs/{id}/retry", args: "id"}, "/dead-letters/retry", "group kind tenant error tag correlation older rate", nowOrLater)...),
		said: ofOne(saidOfRetry, saidOfRetried), absent: noSuchJob,
	},
	{
		name: "jobs rerun", args: "ID...", short: "Run done and cancelled jobs again, each as a new job",
		long: "Adds a job that is what the finished one was, with its arguments, keys, tags,\n" +
			"priority and attempts, but without what links it to other jobs. The finished job stays as it is.\n" +
			"A dead job is not finished: tenure jobs retry.",
		example: "  tenure jobs list --state cancelled --kind mail.send -o json | jq -r '.items[].id' | xargs tenure jobs rerun",
		forms:   withID(http.MethodPost, "/jobs/{id}/rerun"), said: saidOfRerun, absent: noSuchJob,
	},
	{
		name: "jobs cancel", args: "[ID...]", short: "End unfinished jobs",
		long: "The context of a running job's handler is cancelled, with its node's next heartbeat.\n\n" +
			"With flags that choose jobs, and no id, the nodes cancel all that are unfinished and were made before, in the\n" +
			"background: see tenure operations. Until they come to a job it may still start: freeze the tenant or the queue\n" +
			"first if none shall. See them first: tenure jobs list.",
		example: "  tenure jobs cancel --tenant acme --kind mail.send --state scheduled",
		flags:   movableFlags(stateFlag(operate.CancelStates), rateFlag),
		check:   chooses("jobs", movable, true, "rate"),
		forms:   orChosen(&form{method: http.MethodPost, path: "/jobs/{id}/cancel", args: "id"}, "/jobs/cancel", "tenant kind queue correlation tag state rate", nil),
		said:    ofOne(saidOfCancel, saidOfBegun), absent: "only unfinished jobs can be cancelled; see: tenure jobs show %s",
	},
	{
		name: "jobs delete", short: "Delete dead letters, with their failed runs",
		long: "Deletes the dead letters that the flags choose, those that die meanwhile not included. See\n" +
			"them first: tenure jobs dead. Nothing of them is kept; tenure jobs cancel ID ends a single\n" +
			"one and keeps it for execution.retention, as cancelled. A job that awaits one of them, such as the\n" +
			"completion job of its batch, is cancelled, too, unless it is to run whatever becomes of them.\n" +
			"Whatever interrupts the command, run it again; or let nodes do it, with --background.",
		example: "  tenure jobs delete --kind mail.send --older 720h",
		flags: append(deadFlags(deadPool), flagOf("all", false, "all dead letters"), rateFlag,
			backgroundFlag),
		rules: func(cmd *cobra.Command) {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usagef("this takes no id; a single dead letter ends by: tenure jobs cancel %s", args[0])
				}
				return nil
			}
		},
		check: chooses("dead letters", dead, false, "rate", "background"), limit: manyLimit,
		forms: orChosen(nil, "/dead-letters/delete", "group kind tenant error tag correlation older rate", nowOrLater),
		said:  saidOfDead("deleted"),
	},
	{
		name: "jobs suspend", args: "[ID...]", short: "Put waiting, scheduled and retrying jobs aside until they are resumed",
		long: "A suspended job keeps all that it is: its attempts, its unique key, and when it is due. A running\n" +
			"one is not suspended. With flags that choose jobs, and no id, all that wait when the command\n" +
			"begins are suspended; those that run go on, and may be retried. To keep new jobs from being\n" +
			"started, too, freeze the tenant or the pool. Whatever interrupts the command, run it again.",
		example: "  tenure jobs suspend --tenant acme --kind mail.send --until 2027-01-31T09:00:00Z",
		flags:   movableFlags(stateFlag(operate.SuspendStates), textFlag("until", "resume them at this `time`, such as 2027-01-31T09:00:00Z").by(future)),
		check:   chooses("jobs", movable, true), limit: manyLimit,
		forms: orChosen(&form{method: http.MethodPost, path: "/jobs/{id}/suspend", args: "id", flags: "until", query: "until"}, "/jobs/suspend", "tenant kind queue correlation tag state until", nil),
		said:  ofOne(done("job", "is suspended; resume it with: tenure jobs resume %s"), saidOfSuspended), absent: noSuchJob,
	},
	{
		name: "jobs resume", args: "[ID...]", short: "Put suspended jobs back where they were",
		long: "A job that waited waits again, behind those that wait now; a scheduled or retrying one is due when\n" +
			"it was, and runs at once if that has passed. Whatever interrupts the command, run it again.",
		flags: movableFlags(), check: chooses("jobs", movable[:len(movable)-1], true), limit: manyLimit,
		forms: orChosen(&form{method: http.MethodPost, path: "/jobs/{id}/resume", args: "id"}, "/jobs/resume", "tenant kind queue correlation tag", nil),
		said:  ofOne(done("job", "is resumed"), saidOfResumed), absent: noSuchJob,
	},
	{
		name: "jobs change", args: "ID...", short: "Change the priority, time, attempts or timeout of jobs that are not running",
		long: "Changes waiting, scheduled, retrying and suspended jobs. A waiting one that gets another priority\n" +
			"goes behind those that have it; one that gets a time waits for that.",
		example: "  tenure jobs change 140737488355331 --priority 10 --max-attempts 20",
		flags: []flag{
			flagOf("priority", 0, fmt.Sprintf("%d to %d; higher ones run first", job.MinPriority, job.MaxPriority)).by(typedPriority),
			textFlag("at", "run it at this `time`, such as 2027-01-31T09:00:00Z").as("due_at").by(typedTime),
			textFlag("in", "run it after this `duration`, such as 5m or PT5M; 0s: now, if it waits for a time").as("due_at").by(fromNow),
			flagOf("max-attempts", 0, fmt.Sprintf("1 to %d, in all", job.MaxMaxAttempts)).by(typedMaxAttempts),
			textFlag("timeout", "how long each run may take, a `duration` such as 30s or PT30S").as("timeout_ms").by(inMS(1)),
		},
		rules: func(cmd *cobra.Command) { cmd.MarkFlagsMutuallyExclusive("at", "in") },
		check: func(q *question) error {
			if !q.givenAny([]string{"priority", "at", "in", "max-attempts", "timeout"}) {
				return usagef("say what is to change: --priority, --at, --in, --max-attempts or --timeout")
			}
			return nil
		},
		forms: []form{{method: http.MethodPatch, path: "/jobs/{id}", args: "id", flags: "*"}}, said: done("job", "is changed"), absent: noSuchJob,
	},
	{
		name: "enqueue", args: "KIND JSON", hint: "--tenant TENANT", short: "Enqueue a job and print its id", output: true, handled: true,
		long: "JSON is the job's arguments; - reads them from standard input. Of a kind for which no live\n" +
			"node has a handler it warns, and enqueues the job all the same.\n\n" + handlers.Usage,
		example: "  tenure enqueue http.request '{\"url\": \"https://example.com/hook\"}' --tenant acme --in 5m\n" +
			"  tenure enqueue sql.exec '{\"sql\": \"DELETE FROM session WHERE id = $1\", \"args\": [42]}' --tenant acme",
		flags: []flag{
			textFlag("tenant", "the tenant the job is for").by(checked(checkTenant)),
			textFlag("in", "run it after this `duration`, such as 5m or PT5M").as("delay_ms").by(inMS(0)),
			textFlag("at", "run it at this `time`, such as 2027-01-31T09:00:00Z").by(typedTime),
			textFlag("queue", "the queue to put it on (default: its kind's)").by(checked(func(text string) error { return job.ValidateKind("queue", text) })),
			flagOf("priority", 0, fmt.Sprintf("%d to %d; jobs of the same tenant and queue with a higher one run first", job.MinPriority, job.MaxPriority)).by(typedPriority),
			flagOf("max-attempts", 0, "most attempts (default: as its kind says)").by(typedMaxAttempts),
			textFlag("unique", "add it only if the tenant has no unfinished job with this `key`").as("unique_key").by(typedKey),
			textFlag("unique-for", "with --unique: keep the key taken for this `duration`, such as 1h or P1D, whatever becomes of the job").by(inSeconds(1)),
			textFlag("timeout", "cancel each run after this `duration`, such as 30s or PT30S (default: as its kind says)").as("timeout_ms").by(inMS(1)),
			flagOf("tag", []string(nil), "mark it with a `tag` to find it by; may be said more than once").as("tags"),
			textFlag("correlation", "an `ID` to find it by").as("correlation_id"),
			textFlag("exclusive", "run at most one of the tenant's jobs with this `key` at a time, in order").as("exclusive_key").by(typedKey),
			flagOf("skip-retrying", false, "with --exclusive: let others with its key start while it waits to be tried again"),
			flagOf("external", false, "for workers outside the cluster, which ask for KIND as their topic"),
			textFlag("meta", "a `JSON` object to store beside the arguments").by(typedObject),
			flagOf("after", []string(nil), "start it when the jobs with these `ids` have ended").by(arguments["id"]),
			flagOf("on-failure", string(tenure.WaitForRetry), "what becomes of it when one of those fails: wait, cancel or run"),
			textFlag("batch", "add it to the open batch with this `id`").by(arguments["id"]),
		},
		rules: func(cmd *cobra.Command) {
			_ = cmd.MarkFlagRequired("tenant") // fails for a flag that does not exist
			cmd.MarkFlagsMutuallyExclusive("in", "at", "after")
		},
		check: func(q *question) error {
			for flag, needed := range map[string]string{"unique-for": "unique", "skip-retrying": "exclusive", "on-failure": "after"} {
				if q.given(flag) && !q.cmd.Flags().Changed(needed) {
					return usagef("--%s is about --%s, which is missing: give it, or leave this out", flag, needed)
				}
			}
			return nil
		},
		forms: []form{{method: http.MethodPost, path: "/jobs", args: "kind args", flags: "*"}}, show: showEnqueued,
	},
}

func showEnqueued(r *answer) error {
	if r.format() == asJSON {
		return printJSON(r.a.stdout, r.body)
	}
	var added struct {
		ID        string
		Duplicate bool
	}
	if err := r.readInto(&added); err != nil {
		return err
	}
	if added.Duplicate {
		fmt.Fprintf(r.a.stderr, "tenure: nothing was added: job %s has this unique key, and is not finished or has it for a period\n", clean(added.ID))
	}
	return say(r.a, clean(added.ID))
}

func showWhy(r *answer) error {
	if r.format() == asJSON {
		return printJSON(r.a.stdout, r.body)
	}
	var why struct {
		Text, Advice string
		Frozen       *shownDeed
	}
	if err := r.readInto(&why); err != nil {
		return err
	}
	if f := why.Frozen; f != nil {
		why.Text += fmt.Sprintf("; %s froze it at %s", f.Who, f.At.UTC().Format(time.RFC3339))
	}
	if err := say(r.a, clean(why.Text)); err != nil {
		return err
	}
	return say(r.a, clean(why.Advice))
}

// aJob looks whether the argument can be the id of a job.
func aJob(q *question) error {
	_, err := arguments["id"](q, "id", q.args[0])
	return err
}

// pretty indents JSON; what is not JSON stays as it is.
func pretty(text json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(text)
	}
	return b.String()
}
