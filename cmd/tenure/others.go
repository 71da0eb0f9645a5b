package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/plural"
)

const (
	// noSuchOperation says why an operation may not be found.
	noSuchOperation = "operations are kept for seven days after their end; see: tenure operations list"
	// noSuchBatch says why a batch may not be found.
	noSuchBatch = "no batch has this id: it is that of its completion job, and is kept for as long as finished jobs are"
)

var operationCommands = []spec{
	{
		name: "operations list", short: "List operations pool by pool, newest first, with how far they are", forms: list("/operations"),
		columns: "id pool state action of done key_taken skipped=left asked_by created=created_at failure",
		cells:   map[string]cell{"of": of(func(_ *app, o *shownOperation) string { return o.chosen() }), "failure": of(func(_ *app, o *shownOperation) string { return o.failure() })},
	},
	{
		name: "operations show", args: "ID", short: "Show how far an operation is in each pool", forms: []form{{method: http.MethodGet, path: "/operations/{id}", args: "id:operation"}},
		show: showOperation, absent: noSuchOperation,
	},
	{
		name: "operations cancel", args: "ID...", short: "End operations; what they have done stays so", forms: put(http.MethodPost, "/operations/{id}/cancel", "id:operation", ""),
		said: done("operation", "is cancelled"), over: "operation", absent: noSuchOperation,
	},
}

// shownOperation is the part of an operation in one pool as the API answers it.
type shownOperation struct {
	ID, Pool, Action, State, Tenant, Kind, Error, Group, Queue, Tag, Failure string
	Failing                                                                  bool
	JobState                                                                 string    `json:"job_state"`
	Correlation                                                              string    `json:"correlation_id"`
	Died                                                                     time.Time `json:"died_before"`
	Made                                                                     time.Time `json:"made_before"`
	PerSecond                                                                float64   `json:"per_second"`
	Done, Left                                                               int64
	KeyTaken                                                                 int64     `json:"key_taken"`
	By                                                                       string    `json:"asked_by"`
	CreatedAt                                                                time.Time `json:"created_at"`
	EndedAt                                                                  time.Time `json:"ended_at"`
}

// chosen says in words which dead letters or jobs an operation is about.
func (o *shownOperation) chosen() string {
	var parts []string
	for _, p := range [][2]string{{"group", o.Group}, {"kind", o.Kind}, {"tenant", o.Tenant}, {"error", o.Error},
		{"queue", o.Queue}, {"state", o.JobState}, {"tag", o.Tag}, {"correlation id", o.Correlation}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

func (o *shownOperation) failure() string {
	if o.Failing && o.Failure == "" {
		return "see the node's log"
	}
	return oneLine(o.Failure)
}

func showOperation(r *answer) error {
	var all struct{ Items []shownOperation }
	if err := r.readInto(&all); err != nil || r.format() == asJSON || len(all.Items) == 0 {
		return cmpError(err, func() error { return printJSON(r.a.stdout, r.body) })
	}
	first := &all.Items[0]
	rate := "none: a tenth of the holder's time"
	if first.PerSecond > 0 {
		rate = fmt.Sprintf("%v a second in each pool", first.PerSecond)
	}
	before, at := "died before", first.Died
	if !first.Made.IsZero() {
		before, at = "made before", first.Made
	}
	fields := [][]string{
		{"action", first.Action}, {"of", first.chosen()}, {before, r.a.now.stamp(at)},
		{"rate", rate}, {"asked by", first.By}, {"created", r.a.now.stamp(first.CreatedAt)},
	}
	for _, one := range all.Items {
		text := fmt.Sprintf("%s: %d done, %d whose unique key is taken, %d skipped", one.State, one.Done, one.KeyTaken, one.Left)
		if !one.EndedAt.IsZero() {
			text += ", ended " + r.a.now.stamp(one.EndedAt)
		}
		if one.Failing {
			text += "; the last step failed and is tried again: " + one.failure()
		}
		fields = append(fields, []string{"pool " + one.Pool, text})
	}
	return printTable(r.a.stdout, []string{"id", first.ID}, fields)
}

// cmpError is err, or what do returns if there is none.
func cmpError(err error, do func() error) error {
	if err != nil {
		return err
	}
	return do()
}

var batchCommands = []spec{
	{
		name: "batches list", short: "List batches over all pools, newest first, with how their jobs have ended", forms: list("/batches"),
		flags:   []flag{textFlag("tenant", "only batches of this tenant").by(checked(checkTenant)), poolFlag("only batches in this pool"), limitFlag(100, "batches"), afterFlag},
		columns: "id state tenant pool jobs unfinished done dead cancelled unknown on_failure created=created_at",
	},
	{
		name: "batches show", args: "ID", short: "Show how the jobs of a batch have ended so far", forms: withID(http.MethodGet, "/batches/{id}"), absent: noSuchBatch,
		columns: "id state tenant pool on_failure jobs unfinished done dead cancelled unknown created=created_at waits_for=open closed=closed_at",
	},
	{
		name: "batches cancel", args: "ID...", short: "Cancel batches: their completion jobs, and their jobs that have not ended",
		long: "So it does with the batches whose completion jobs are among them. Jobs that wait do not start any more, and end when their turn comes; running ones end with the next\n" +
			"heartbeat of their node. Whatever interrupts the command, run it again.",
		forms: put(http.MethodPost, "/batches/{id}/cancel", "id", ""), absent: noSuchBatch,
		said: func(r *answer) string {
			var n struct{ Jobs int }
			_ = r.readInto(&n) // what cannot be read says nothing
			return "batch " + r.arg + " is cancelled, with " + plural.Count(n.Jobs, "job", "jobs") + " that had not ended"
		},
	},
}

// eachLock is a command that does something to each of the locks that are its arguments, as --worker's.
func eachLock(name, hint, short, long, said string, flags ...flag) spec {
	return spec{
		name: "external " + name, args: "LOCK...", hint: strings.TrimSpace("--worker NAME " + hint), short: short, long: long,
		flags: append([]flag{textFlag("worker", "the `name` that the jobs are locked for")}, flags...),
		rules: func(cmd *cobra.Command) {
			_ = cmd.MarkFlagRequired("worker") // fails for a flag that does not exist
			if cmd.Flags().Lookup("code") != nil {
				_ = cmd.MarkFlagRequired("code") // likewise
			}
		},
		forms: put(http.MethodPost, "/external/"+name, "lock", "*"),
		said:  func(r *answer) string { return "job " + r.arg + " " + said },
	}
}

var resultFlag = textFlag("result", "what came of it, as `JSON`: kept with the job, see tenure jobs show").as("output").by(typedJSON)

var lockFlag = flagOf("lock", 5*time.Minute, "for how long").by(upToADay(inSeconds(1))).sentAlways()

var externalCommands = []spec{
	{
		name: "external acquire", args: "TOPIC", hint: "--worker NAME", short: "Lock jobs of a topic for a worker and print them", output: true,
		long: "A job that is not ended, extended or released until its lock expires can be acquired again, by\n" +
			"anybody; then what is said of it with the old lock comes too late. No job is no failure.",
		example: "  tenure external acquire invoice.print --worker printer-1 --max 10 --lock 5m -o json",
		flags: []flag{
			textFlag("worker", "the `name` to lock them for"),
			flagOf("max", 1, fmt.Sprintf("at most this many jobs, 1 to %d", external.MaxJobs)).by(between(1, external.MaxJobs)).sentAlways(),
			lockFlag, flagOf("wait", time.Duration(0), "wait so long for a job if there is none").by(inSeconds(0)),
			flagOf("tenant", []string(nil), "only jobs of these `tenants`").as("tenants").by(checked(checkTenant)),
		},
		rules: func(cmd *cobra.Command) { _ = cmd.MarkFlagRequired("worker") }, // fails for a flag that does not exist
		check: func(q *question) error { _, err := q.read(&acquireForm); return err },
		run:   acquire, limit: manyLimit, columns: "lock tenant attempt until args",
		cells: map[string]cell{
			"lock": of(func(_ *app, j *struct {
				Job  string
				Turn int
			}) string {
				return fmt.Sprintf("%s:%d", j.Job, j.Turn)
			}),
			"args": of(func(_ *app, j *struct{ Args json.RawMessage }) string { return cut(oneLine(string(j.Args)), maxDetail) }),
		},
	},
	eachLock("complete", "", "End jobs that are done", "", "is done", resultFlag),
	eachLock("fail", "", "Say that a worker failed with jobs, which are tried again or are dead",
		"Without --retries a job is tried as often as its --max-attempts say, or ten times, and without\n--delay after longer and longer times, from 10 s to 6 h.", "has failed",
		textFlag("error", "what went wrong").orEmpty().sentAlways(), flagOf("delay", time.Duration(0), "until the job can be acquired again").by(upToADay(inSeconds(0))),
		flagOf("retries", 0, "how often it is to be tried again; 0: it is dead")),
	eachLock("error", "--code CODE", "End jobs with an error of the business, which is not tried again", "The job is in state business_error then, and no dead letter.", "has ended with a business error",
		textFlag("code", "letters, digits and . _ : / -"), textFlag("message", "the error in words").orEmpty().sentAlways(), resultFlag),
	eachLock("extend", "", "Have locks expire later", "", "stays locked", lockFlag),
	eachLock("release", "", "Give jobs back unfinished and uncharged", "", "waits again"),
}

var acquireForm = form{method: http.MethodPost, path: "/external/acquire", args: "topic", flags: "*"}

// longestWait is how long a request waits for a job, in seconds: those who wait for longer ask again.
const longestWait = 20

func acquire(ctx context.Context, q *question, s *server) error {
	sent, err := q.read(&acquireForm)
	if err != nil {
		return err
	}
	one := sent[0]
	left, _ := one.body["wait"].(int64)
	for {
		one.body["wait"] = min(left, longestWait)
		body, err := s.pages(ctx, one)
		if err != nil {
			return err
		}
		var found page
		if err := readAnswer(body, &found); err != nil {
			return err
		}
		if left -= longestWait; len(found.Items) > 0 || left <= 0 || ctx.Err() != nil {
			return (&answer{question: q, arg: one.arg, body: body, server: s}).print()
		}
	}
}
