package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/internal/plural"
)

// shownJob is a job as the API answers it.
type shownJob struct {
	ID, State, Pool, Tenant, Queue, Kind, Node, Error string
	External, Handled                                 bool
	Priority, Attempt, Losses                         int
	Tags                                              []string
	At                                                time.Time
	MaxAttempts                                       int             `json:"max_attempts"`
	TimeoutMS                                         int64           `json:"timeout_ms"`
	UniqueKey                                         string          `json:"unique_key"`
	ExclusiveKey                                      string          `json:"exclusive_key"`
	CorrelationID                                     string          `json:"correlation_id"`
	CreatedAt                                         time.Time       `json:"created_at"`
	StartedAt                                         time.Time       `json:"started_at"`
	ResumeAt                                          time.Time       `json:"resume_at"`
	CancelAskedAt                                     time.Time       `json:"cancel_asked_at"`
	CancelledBy                                       *shownDeed      `json:"cancelled_by"`
	Args, Meta                                        json.RawMessage // as far as they are shown
	Errors                                            []shownFailure
	Reports                                           []shownReport
}

// shownDeed is what an operator did.
type shownDeed struct {
	At        time.Time
	Who, Text string
	Chosen    bool
}

// shownFailure is a run that failed.
type shownFailure struct {
	Attempt            int
	At                 time.Time
	Node, Error, Stack string
}

// shownReport is what one run said of itself.
type shownReport struct {
	Attempt     int
	Node, Note  string
	StartedAt   time.Time `json:"started_at"`
	Done, Total int64
	Output      json.RawMessage
	Lines       []shownLine
	LeftOut     int `json:"left_out"` // lines before these
}

// shownLine is one line that a run has logged.
type shownLine struct {
	AfterMS int64 `json:"after_ms"`
	Text    string
}

// state is a job's state, with the most frequent reason why nothing happens.
func (j *shownJob) state() string {
	if j.State == "waiting" && !j.Handled {
		return "waiting (no handler)"
	}
	if j.State == "waiting" && j.External {
		return "waiting (external)"
	}
	return j.State
}

// attempts is how often a job was tried, and of how many times.
func (j *shownJob) attempts() string {
	if j.MaxAttempts == 0 {
		return strconv.Itoa(j.Attempt)
	}
	return fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts)
}

// ran is how long a job's last run took; 0: that is not known.
func (j *shownJob) ran() time.Duration {
	if j.StartedAt.IsZero() || jobstate.Of(j.State).Stage != jobstate.Finished || j.State == "business_error" {
		return 0
	}
	return j.At.Sub(j.StartedAt)
}

// detail is what matters about a job in its state.
func (j *shownJob) detail(a *app) string {
	var parts []string
	if j.Node != "" {
		parts = append(parts, "on "+j.Node)
	}
	if ran := j.ran(); ran > 0 {
		parts = append(parts, "ran for "+ran.Round(time.Millisecond).String())
	}
	if j.State == "running" && !j.StartedAt.IsZero() {
		parts = append(parts, "started "+a.now.relative(j.StartedAt))
	} else if what := jobstate.Of(j.State).Since; what != "" && !j.At.IsZero() { // a claim that is not started yet has a node and no time
		parts = append(parts, what+" "+a.now.relative(j.At))
	}
	if len(j.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(j.Tags, " "))
	}
	if !j.ResumeAt.IsZero() {
		parts = append(parts, "until "+a.now.relative(j.ResumeAt))
	}
	if j.Error != "" {
		parts = append(parts, cut(oneLine(j.Error), maxDetail))
	}
	return strings.Join(parts, ", ")
}

// showJob prints a job, and where its handler is, if that is asked for and it runs on this machine.
func showJob(r *answer) error {
	var j shownJob
	if err := r.readInto(&j); err != nil {
		return err
	}
	stack := ""
	if r.given("stack") && j.State == "running" {
		var err error
		if stack, err = askStack(r.cmd.Context(), r.server.here, &j); err != nil {
			fmt.Fprintln(r.a.stderr, "tenure:", oneLine(err.Error())) // the rest is worth seeing
		}
	}
	if r.format() == asTable {
		return printJob(r.a, &j, stack, r.given("stack"))
	}
	if stack != "" { // which the API does not know
		text, err := json.Marshal(stack)
		if err != nil {
			return err
		}
		r.body = append(append(append(r.body[:strings.LastIndexByte(string(r.body), '}')], `,"stack":`...), text...), '}')
	}
	return printJSON(r.a.stdout, r.body)
}

func printJob(a *app, j *shownJob, stack string, stacks bool) error {
	maxAttempts := "by its kind"
	switch {
	case j.MaxAttempts > 0:
		maxAttempts = strconv.Itoa(j.MaxAttempts)
	case j.External:
		maxAttempts = "by execution.retry"
	}
	fields := [][]string{
		{"state", j.state()}, {"kind", j.Kind}, {"tenant", j.Tenant}, {"queue", j.Queue}, {"pool", j.Pool},
		{"priority", strconv.Itoa(j.Priority)},
		{"attempts", strconv.Itoa(j.Attempt)}, {"max attempts", maxAttempts}, {"losses", strconv.Itoa(j.Losses)},
		{"created", a.now.stamp(j.CreatedAt)},
	}
	add := func(is bool, name, value string) {
		if is {
			fields = append(fields, []string{name, value})
		}
	}
	what := jobstate.Of(j.State).Since
	add(j.TimeoutMS > 0, "timeout", (time.Duration(j.TimeoutMS) * time.Millisecond).String())
	add(what != "", what, a.now.stamp(j.At))
	add(!j.ResumeAt.IsZero(), "until", a.now.stamp(j.ResumeAt))
	add(!j.StartedAt.IsZero(), "started", a.now.stamp(j.StartedAt))
	add(j.StartedAt.IsZero() && j.State == "running", "started", "then or later: it may wait for a worker of its node")
	add(!j.CancelAskedAt.IsZero(), "cancel asked", a.now.stamp(j.CancelAskedAt)+", and waits for its node and its handler")
	if by := j.CancelledBy; by != nil {
		text := by.Who + ", " + a.now.stamp(by.At)
		if by.Chosen {
			text += ": " + by.Text
		}
		add(true, "cancelled by", text)
	}
	add(j.ran() > 0, "ran for", j.ran().String())
	fields = append(fields, [][]string{{"node", j.Node}, {"unique key", j.UniqueKey}, {"exclusive key", j.ExclusiveKey}, {"correlation id", j.CorrelationID}, {"tags", strings.Join(j.Tags, ", ")}, {"error", oneLine(j.Error)}}...)
	if err := printTable(a.stdout, []string{"id", j.ID}, fields); err != nil {
		return err
	}
	if j.Args != nil {
		printBlock(a.stdout, "args", pretty(j.Args))
	}
	if j.Meta != nil {
		printBlock(a.stdout, "meta", pretty(j.Meta))
	}
	for i := range j.Reports {
		j.Reports[i].print(a)
	}
	if stack != "" {
		printBlock(a.stdout, "its handler is at", stack)
	}
	left := false
	for _, f := range j.Errors {
		text := f.Error
		if stacks && f.Stack != "" {
			text += "\n" + f.Stack
		}
		left = left || !stacks && f.Stack != ""
		printBlock(a.stdout, fmt.Sprintf("attempt %d failed %s on %s", f.Attempt, a.now.stamp(f.At), f.Node), text)
	}
	if left {
		return say(a, "\nthe stack: tenure jobs show "+j.ID+" --stack")
	}
	return nil
}

// progress is how far the run is; "": it has not said.
func (r *shownReport) progress() string {
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

// line is a line that was logged, with the time of it.
func (r *shownReport) line(l shownLine) string {
	return r.StartedAt.Add(time.Duration(l.AfterMS)*time.Millisecond).UTC().Format("15:04:05.000") + "  " + oneLine(l.Text)
}

// print prints what one run said.
func (r *shownReport) print(a *app) {
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
		text = append(text, r.line(l))
	}
	printBlock(a.stdout, fmt.Sprintf("attempt %d, begun %s on %s, said", r.Attempt, a.now.stamp(r.StartedAt), r.Node), strings.Join(text, "\n"))
}

// printBlock prints text of several lines below its name.
func printBlock(w io.Writer, name, text string) {
	fmt.Fprintf(w, "\n%s:\n  %s\n", clean(name), strings.ReplaceAll(cleanLines(text), "\n", "\n  "))
}

// askStack asks the node on this machine where a job's handler is.
func askStack(ctx context.Context, here *operation, j *shownJob) (stack string, err error) {
	var node config.Node
	if here != nil { // else another machine's node answers
		node = here.cfg.Node
	}
	switch {
	case j.Node != node.Name:
		return "", fmt.Errorf("its handler's stack is on node %s: type this on its machine, with its configuration", j.Node)
	case node.Address() == "":
		return "", errors.New("node.listen is off, so the node cannot be asked for the handler's stack")
	}
	ctx, cancel := context.WithTimeout(ctx, stackLimit)
	defer cancel()
	there, err := newNodeClient(node)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, there.url+"/-/jobs/"+j.ID+"/stack", nil)
	if err != nil {
		return "", err
	}
	response, err := there.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("the handler's stack: ask the node at %s: %w", node.Address(), err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		return "", fmt.Errorf("the handler's stack: the node at %s tells it to programs on its own machine, and answered %s", node.Address(), response.Status)
	}
	var answer struct{ Stack, Error string }
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxStack)).Decode(&answer); err != nil {
		return "", fmt.Errorf("the handler's stack: the node at %s answered %s, which cannot be read: %w", node.Address(), response.Status, err)
	}
	if answer.Error != "" {
		return "", fmt.Errorf("the handler's stack: the node at %s: %s", node.Address(), answer.Error)
	}
	return answer.Stack, nil
}

// Limits of that.
const (
	stackLimit = 5 * time.Second
	maxStack   = 16 << 20
)
