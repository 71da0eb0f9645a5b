package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of a report.
const (
	MaxOutput   = 32 << 10 // bytes of the output's JSON; more is refused
	MaxLogLines = 100      // of a run; with more, the first ones are left out
	MaxLogLine  = 500      // bytes of a line; the rest is cut
	MaxNote     = 500      // bytes of the note beside the progress; the rest is cut
)

// Report is what a run says of itself, by [SetProgress], [SetOutput] and [Log].
type Report struct {
	Done, Total int64 // how far it is; 0 and 0: it has not said
	Note        string
	Output      []byte // JSON; nil: none
	Lines       []LogLine
	LeftOut     int // how many lines there were before these
}

// LogLine is a line that a run has logged.
type LogLine struct {
	After time.Duration // since the run began
	Text  string
}

// SetProgress says how far the job is that ctx belongs to: done of total, in whatever is counted, 0
// of an unknown total, and in a few words what it is at; of note [MaxNote] bytes count. The last
// call holds.
//
// What a run says, by this, [SetOutput] and [Log], can be seen while it runs: it is written to the
// ledger within about a second, once a second at most, and with the run's end. A node writes no more
// than 4 MiB of that a second in a pool: what else its jobs say comes later. Of runs that end together,
// with more than 4 MiB the lines of some are left out, beyond 16 MiB all that they say. It stays until
// the finished job is removed, also when the job runs again: see the Reports of the Operator's
// JobStatus, and `tenure jobs show`. A run whose claim was lost writes nothing any more. Of a job
// the last ten runs that said anything are kept.
//
// These functions are cheap, do not wait for the database, and are safe for concurrent use. When
// the handler has returned, and with a context that belongs to no job, they do nothing. A batch
// handler says for which of its jobs it speaks:
//
//	job.Log(job.NewContext(ctx, &j.Record), "sent")
func SetProgress(ctx context.Context, done, total int64, note string) {
	if r := reporterOf(ctx); r != nil {
		note = trimTo(note, MaxNote)
		r.change(func(s *Report) { s.Done, s.Total, s.Note = done, total, note })
	}
}

// SetOutput gives the job that ctx belongs to a result, as JSON: see [SetProgress]. The last call
// holds. Of a handler that runs in its tenant's transaction, and of a job that ends well, the last
// output commits with the transaction. The error says what of v cannot be kept: what JSON cannot
// hold, or Postgres, or more than [MaxOutput] bytes; the output is what it was before.
func SetOutput(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	switch {
	case err != nil:
		return fmt.Errorf("encode the job's output: %w", err)
	case len(b) > MaxOutput:
		return fmt.Errorf("the job's output has %d bytes of JSON: %d are allowed; store the data elsewhere and put out its key", len(b), MaxOutput)
	}
	if err := CheckPayload(b); err != nil {
		return fmt.Errorf("the job's output: %w", err)
	}
	if r := reporterOf(ctx); r != nil {
		r.change(func(s *Report) { s.Output = b })
	}
	return nil
}

// Log adds a line to what the job that ctx belongs to has logged: see [SetProgress]. Of a line
// [MaxLogLine] bytes are kept, of a run the last [MaxLogLines] lines. It is for what an operator
// wants to see beside the job; a program's log is another thing.
func Log(ctx context.Context, text string) {
	if r := reporterOf(ctx); r != nil {
		text = trimTo(text, MaxLogLine)
		r.change(func(s *Report) {
			if len(s.Lines) == MaxLogLines {
				s.Lines = append(s.Lines[:0], s.Lines[1:]...)
				s.LeftOut++
			}
			s.Lines = append(s.Lines, LogLine{time.Since(r.began), text})
		})
	}
}

// Reporters has a reporter for each job of a call. The context of a run has it as the value of
// ReportersKey: workers make such contexts, and nobody else.
type Reporters interface {
	// Reporter is the one of a job; nil: it takes nothing in any more. It is safe for concurrent use.
	Reporter(id ID) *Reporter
}

// ReportersKey is the key of [Reporters] in a context.
type ReportersKey struct{}

func reporterOf(ctx context.Context) *Reporter {
	rec, ok := FromContext(ctx)
	if !ok {
		return nil
	}
	all, ok := ctx.Value(ReportersKey{}).(Reporters)
	if !ok {
		return nil
	}
	return all.Reporter(rec.ID)
}

// Reporter takes in the report of one run. It is safe for concurrent use.
type Reporter struct {
	began   time.Time
	changed func()

	mu     sync.Mutex
	report Report // guarded by mu
	news   bool   // guarded by mu; something has changed since the report was taken last
}

// NewReporter returns one of a run that began then. changed is called when there is something to be
// taken, and not again before that was taken; it must not block.
func NewReporter(began time.Time, changed func()) *Reporter {
	return &Reporter{began: began, changed: changed}
}

func (r *Reporter) change(how func(*Report)) {
	r.mu.Lock()
	how(&r.report)
	first := !r.news
	r.news = true
	r.mu.Unlock()
	if first {
		r.changed()
	}
}

// Take returns what was said so far. A nil Reporter has heard nothing.
func (r *Reporter) Take() (report Report, said bool) {
	if r == nil {
		return Report{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.news = false
	report = r.report
	report.Lines = slices.Clone(report.Lines)
	return report, true
}

// LeaveOutLines lets go of the lines, for want of memory.
func (r *Reporter) LeaveOutLines() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.LeftOut, r.report.Lines = r.report.LeftOut+len(r.report.Lines), nil
}

// RunReport is what one run of a job said of itself: its progress, output and log lines.
type RunReport struct {
	Turn      int32
	Attempt   int
	Node      string
	StartedAt time.Time
	WrittenAt time.Time
	Report
}

// RunError is one failed run of a job.
type RunError struct {
	Attempt int
	At      time.Time
	Node    string
	Error   string
	Stack   string
	Began   time.Time // zero: that was not noted
}
