package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// watchEvery is how often a job is looked at: its run says something once a second at most.
const watchEvery = time.Second

// watchLimit is when a watch that was forgotten ends.
const watchLimit = 7 * 24 * time.Hour

func newJobsWatch(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a job to its end: its state, progress, log lines and output",
		Long:  "It ends with the job, and fails if that is not done. With -o json it prints what `jobs show` does, whenever something of it has changed.",
		Args:  cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := job.ParseID(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), watchLimit, func(ctx context.Context, o *operation) error {
			return (&watcher{a: a, json: *output == asJSON, seen: map[int32]int{}}).follow(ctx, o, id)
		})
	}
	return cmd
}

func newJobsRun(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run ID",
		Short: "Have a job run now, and follow that run to its end",
		Long: "A job that waits, for its turn or its time, or that is dead goes before all others of its tenant\n" +
			"and queue: it gets the highest priority, and keeps it. It runs on a node, not here, and as any\n" +
			"other: if it does not start, tenure jobs why says what it waits for. The command fails if the\n" +
			"run does, also if the job is to be tried again.",
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := job.ParseID(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), watchLimit, func(ctx context.Context, o *operation) error {
			if err := o.RunJob(ctx, id); err != nil {
				return notFound(err, noSuchJob)
			}
			return (&watcher{a: a, json: *output == asJSON, seen: map[int32]int{}, once: true}).follow(ctx, o, id)
		})
	}
	return cmd
}

// follow tells of a job until it has ended, or ctx has.
func (w *watcher) follow(ctx context.Context, o *operation, id job.ID) error {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for {
		j, runs, err := o.Job(ctx, id)
		switch {
		case ctx.Err() != nil: // interrupted
			return nil
		case errors.Is(err, tenure.ErrNotFound) && (w.state != "" || w.once):
			return &advised{err, "it has ended, and is not kept: see execution.retention"}
		case err != nil:
			return notFound(err, noSuchJob)
		}
		j.Payload = concealed(j)
		if ended, err := w.tell(newJSONShow(j, runs)); ended || err != nil {
			return err
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher tells what has changed of a job since the last look.
type watcher struct {
	a        *app
	json     bool
	once     bool // the job was made to run: when it waits for its time again, that run is over
	state    string
	progress string
	printed  string        // the last JSON
	seen     map[int32]int // log lines, by turn
}

// tell prints what is new. The error is that of a job that has ended otherwise than well.
func (w *watcher) tell(j jsonShow) (ended bool, err error) {
	if w.json {
		text, err := json.Marshal(j)
		if err != nil {
			return false, fmt.Errorf("print: %w", err)
		}
		if string(text) != w.printed {
			w.printed = string(text)
			if err := printJSON(w.a.stdout, j); err != nil {
				return false, err
			}
		}
		w.state = j.State
	} else {
		w.print(j)
	}
	why := ""
	if j.Error != "" {
		why = ": " + oneLine(j.Error)
	}
	switch j.State {
	case "done":
		return true, nil
	case "dead", "cancelled":
		return true, fmt.Errorf("job %s is %s%s", job.ID(j.ID), j.State, why)
	case "scheduled", "retrying":
		if w.once {
			return true, fmt.Errorf("job %s has run, and is to run again %s%s", job.ID(j.ID), w.a.now.relative(j.At.Time), why)
		}
	}
	return false, nil
}

func (w *watcher) print(j jsonShow) {
	line := stateOf(j.jsonJob)
	if d := detailOf(w.a, j.jsonJob); d != "" && j.State != w.state {
		line += " " + d
	}
	for _, r := range j.Reports {
		n := r.LeftOut + len(r.Lines)
		for _, l := range r.Lines[max(0, len(r.Lines)-(n-w.seen[r.turn])):] {
			fmt.Fprintln(w.a.stdout, l)
		}
		w.seen[r.turn] = n
	}
	if n := len(j.Reports); n > 0 {
		if p := j.Reports[n-1].progress(); p != "" && p != w.progress {
			w.progress = p
			fmt.Fprintln(w.a.stdout, p)
		}
	}
	if j.State == w.state {
		return
	}
	w.state = j.State
	fmt.Fprintln(w.a.stdout, line)
	if n := len(j.Reports); n > 0 && j.State == "done" && j.Reports[n-1].Output != nil {
		fmt.Fprintln(w.a.stdout, "output: "+cleanLines(pretty(j.Reports[n-1].Output)))
	}
}
