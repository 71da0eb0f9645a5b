package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/jobstate"
)

// watchLimit is when a watch that was forgotten ends.
const watchLimit = 7 * 24 * time.Hour

// comeBack is how long it takes until a stream that has ended is asked for again.
const comeBack = time.Second

func watchJob(ctx context.Context, q *question, s *server) error {
	return (&watcher{a: q.a, json: q.format() == asJSON, seen: map[string]int{}}).follow(ctx, s, q.args[0])
}

func runJob(ctx context.Context, q *question, s *server) error {
	if _, err := s.ask(ctx, http.MethodPost, "/jobs/"+q.args[0]+"/run", nil, nil); err != nil {
		return explainAbsent(err, q.absent)
	}
	return (&watcher{a: q.a, json: q.format() == asJSON, seen: map[string]int{}, once: true}).follow(ctx, s, q.args[0])
}

// watcher tells what has changed of a job since the last look.
type watcher struct {
	a        *app
	json     bool
	once     bool // the job was made to run: when it waits for its time again, that run is over
	state    string
	version  string // of what was told last
	progress string
	seen     map[string]int // log lines, by run
}

// follow tells of a job until it has ended, or ctx has. A stream ends from time to time.
func (w *watcher) follow(ctx context.Context, s *server, id string) error {
	for {
		ended, err := w.stream(ctx, s, id)
		switch {
		case ctx.Err() != nil: // interrupted
			return nil
		case ended:
			return err
		case errors.Is(err, tenure.ErrNotFound) && (w.state != "" || w.once):
			return &advised{err, "it has ended, and is not kept: see execution.retention"}
		case err != nil:
			return explainAbsent(err, noSuchJob)
		}
		select {
		case <-time.After(comeBack):
		case <-ctx.Done():
			return nil
		}
	}
}

// stream reads a job's events.
func (w *watcher) stream(ctx context.Context, s *server, id string) (ended bool, _ error) {
	r, err := s.request(http.MethodGet, "/jobs/"+id+"/events", nil, nil)
	if err != nil {
		return false, err
	}
	if w.version != "" {
		r.Header.Set("Last-Event-ID", w.version)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the rest of the stream
	events, err := s.open(ctx, r)
	if err != nil {
		return false, err
	}
	defer events.Body.Close()
	lines := bufio.NewScanner(events.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), "data: "); is {
			if ended, err := w.tell([]byte(text)); ended || err != nil {
				return true, err
			}
		}
	}
	return false, nil // also if the connection broke
}

// tell prints what is new. The error is that of a job that has ended otherwise than well.
func (w *watcher) tell(text json.RawMessage) (ended bool, err error) {
	var j struct {
		shownJob
		Version string
	}
	if err := readAnswer(text, &j); err != nil {
		return true, err
	}
	w.version = j.Version
	if w.json {
		err = printJSON(w.a.stdout, text)
		w.state = j.State
	} else {
		w.print(&j.shownJob)
	}
	why := ""
	if j.Error != "" {
		why = ": " + oneLine(j.Error)
	}
	switch state := jobstate.Of(j.State); {
	case state.Failed():
		return true, fmt.Errorf("job %s is %s%s", j.ID, j.State, why)
	case w.once && (j.State == "scheduled" || j.State == "retrying"):
		return true, fmt.Errorf("job %s has run, and is to run again %s%s", j.ID, w.a.now.relative(j.At), why)
	default:
		return state.Ended(), err
	}
}

func (w *watcher) print(j *shownJob) {
	line := j.state()
	if d := j.detail(w.a); d != "" && j.State != w.state {
		line += " " + d
	}
	for i := range j.Reports {
		r := &j.Reports[i]
		run := fmt.Sprint(r.Attempt, r.Node, r.StartedAt)
		n := r.LeftOut + len(r.Lines)
		for _, l := range r.Lines[max(0, len(r.Lines)-(n-w.seen[run])):] {
			fmt.Fprintln(w.a.stdout, r.line(l))
		}
		w.seen[run] = n
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
