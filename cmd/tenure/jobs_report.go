package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/job"
)

// jsonReport is what one run said of itself, as -o json prints it.
type jsonReport struct {
	Attempt   int             `json:"attempt"`
	Node      string          `json:"node"`
	StartedAt jsonTime        `json:"started_at"`
	WrittenAt jsonTime        `json:"written_at"`
	Done      int64           `json:"done"`
	Total     int64           `json:"total"`
	Note      string          `json:"note,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Lines     []jsonLine      `json:"lines"`
	LeftOut   int             `json:"left_out"` // lines before these

	turn int32
}

// jsonLine is one line that a run has logged.
type jsonLine struct {
	At   jsonTime `json:"at"`
	Text string   `json:"text"`
}

func newJSONReports(reports []job.RunReport) []jsonReport {
	out := []jsonReport{}
	for _, r := range reports {
		one := jsonReport{Attempt: r.Attempt, Node: r.Node, StartedAt: jsonTime{r.StartedAt}, WrittenAt: jsonTime{r.WrittenAt},
			Done: r.Done, Total: r.Total, Note: r.Note, Output: r.Output, Lines: []jsonLine{}, LeftOut: r.LeftOut, turn: r.Turn}
		for _, l := range r.Lines {
			one.Lines = append(one.Lines, jsonLine{jsonTime{r.StartedAt.Add(l.After)}, l.Text})
		}
		out = append(out, one)
	}
	return out
}

// progress is how far the run is; "": it has not said.
func (r jsonReport) progress() string {
	var parts []string
	switch {
	case r.Total > 0:
		parts = append(parts, fmt.Sprintf("%d of %d (%.0f %%)", r.Done, r.Total, 100*float64(r.Done)/float64(r.Total)))
	case r.Done != 0:
		parts = append(parts, fmt.Sprint(r.Done))
	}
	if r.Note != "" {
		parts = append(parts, oneLine(r.Note))
	}
	return strings.Join(parts, ", ")
}

func (l jsonLine) String() string {
	return l.At.UTC().Format("15:04:05.000") + "  " + oneLine(l.Text)
}

// printReport prints what one run said.
func printReport(a *app, r jsonReport) {
	var text []string
	if p := r.progress(); p != "" {
		text = append(text, "progress: "+p)
	}
	if r.Output != nil {
		text = append(text, "output: "+pretty(r.Output))
	}
	if r.LeftOut > 0 {
		text = append(text, "("+plural.Count(r.LeftOut, "line before these is", "lines before these are")+" left out)")
	}
	for _, l := range r.Lines {
		text = append(text, l.String())
	}
	printBlock(a.stdout, fmt.Sprintf("attempt %d, begun %s on %s, said", r.Attempt, a.now.stamp(r.StartedAt.Time), r.Node), strings.Join(text, "\n"))
}

// ran is how long a job's last run took; 0: that is not known.
func (j jsonJob) ran() time.Duration {
	if j.StartedAt.IsZero() || j.State != job.Done.String() && j.State != job.Cancelled.String() {
		return 0
	}
	return j.At.Sub(j.StartedAt.Time)
}
