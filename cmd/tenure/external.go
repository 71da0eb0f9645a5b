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
)

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
