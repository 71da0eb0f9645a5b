package operate

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// JobFilter chooses jobs; empty fields choose all.
type JobFilter struct {
	State  string // one of States
	Tenant string
	Kind   string
	Queue  string
	Pool   string
	// Tags are some that a job has, all of them; finished jobs are found for as long as they are kept.
	Tags []string
	// CorrelationID is the job's, see tenure.Correlation.
	CorrelationID string
	// Since and Until choose jobs that were made at Since or later, and before Until; zero: all.
	Since, Until time.Time
	// Error is what the error of dead letters contains, in upper or lower case. State must be dead.
	Error string
	// Node is the node that jobs are with, or their external worker. State must be claimed, running or locked.
	Node string
	// After goes on with a list: it is the [JobStatus.Cursor] of the last job of the page before.
	After string
	Limit int // 0: 100
}

// Validate says what of the filter cannot be, other than its pool, which [Jobs.List] knows.
func (f JobFilter) Validate() error {
	var state error
	if f.State != "" && !slices.Contains(States, f.State) {
		state = fmt.Errorf("state %.40q is not one of %v", f.State, States)
	}
	_, after := parseCursor(f.After, "jobs")
	refuse := func(is bool, why string) {
		if is {
			state = errors.Join(state, errors.New(why))
		}
	}
	refuse(f.Error != "" && f.State != "dead", "error: only dead letters can be chosen by it: name state dead, too")
	refuse(f.Node != "" && !slices.Contains([]string{"claimed", "running", "locked"}, f.State), "node: only jobs that are with one can be chosen by it: name state claimed, running or locked, too")
	refuse(!f.Until.IsZero() && !f.Until.After(f.Since), "until: it is not after since, and nothing was made then")
	if err := errors.Join(state, job.ValidateText("error", f.Error), job.ValidateText("node", f.Node), job.ValidateTags(f.Tags), after); err != nil {
		return &job.InputError{Err: err}
	}
	return nil
}

// explainSlowness says, when a ledger was still looking for jobs as the time for it was over, what finds them
// sooner: tenants, queues, tags and correlation ids have an index, kinds of waiting jobs have none.
func (f *JobFilter) explainSlowness(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	var also []string
	if f.Tenant == "" {
		also = append(also, "a tenant")
	}
	if f.Queue == "" {
		also = append(also, "a queue")
	}
	if also == nil {
		return err
	}
	return fmt.Errorf("such jobs were not found among all others within %v; name %s, too: %w", process.AnswerWithin, strings.Join(also, " or "), err)
}

// States are the states a job can be listed by, as /api/openapi.json names them, too. A claimed job was assigned to a
// node that has not taken it over yet. A running one is with its node, whose workers may not have come to it yet,
// unless its StartedAt says when its run began. A locked one is with an external worker, and one in
// business_error was ended by one, see external.Workers.RaiseError.
var States = jobstate.Words(jobstate.Waits, jobstate.InFlight, jobstate.Aside, jobstate.Dead, jobstate.Finished)

// CompareJobs is negative if a comes before b in a list of [Jobs.List].
func CompareJobs(a, b JobStatus) int {
	return a.place().Compare(b.place())
}

// cursorVersion begins the cursors that are made like this.
const cursorVersion = 1

// Cursor is the job's place in lists, for [JobFilter].After. It means nothing to others.
func (s JobStatus) Cursor() string { return cursorText(s.place()) }

func (s JobStatus) place() store.Cursor { return store.Cursor{ListedAt: s.ListedAt, ID: s.ID} }

func cursorText(c store.Cursor) string {
	b := []byte{cursorVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(c.ListedAt.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.ID))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor reads what cursorText returned, in a list of jobs or batches; "": the beginning of the list.
func parseCursor(text, of string) (c store.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil && len(b) == 17 && b[0] == cursorVersion {
		c.ListedAt = time.UnixMicro(int64(binary.BigEndian.Uint64(b[1:]))).UTC()
		c.ID = job.ID(binary.BigEndian.Uint64(b[9:]))
		if y := c.ListedAt.Year(); y >= 1970 && y <= 9999 && c.ID > 0 {
			return c, nil
		}
	}
	return store.Cursor{}, fmt.Errorf("after: %.40q is no place in a list of %s: pass what the page before has given, unchanged", text, of)
}
