package jobtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// Pending is a job that has yet to run, for the first time or again.
type Pending[A job.Args] struct {
	job.Job[A]
	// In is how long until it is due; 0: it waits to be run now, or awaits other jobs.
	In time.Duration
	// Awaiting says whether it awaits other jobs ([tenure.After], a batch).
	Awaiting bool
}

// Enqueued lists the tenant's jobs of A's kind that wait to be run, now, later or after others,
// in the order in which they were enqueued.
func Enqueued[A job.Args](c *Tenant) []Pending[A] {
	c.t.Helper()
	var out []Pending[A]
	for _, s := range c.pending(job.KindOf[A]()) {
		rec := recordOf(s)
		j, err := job.Decode[A](&rec)
		if err != nil {
			c.t.Fatalf("jobtest: job %s of tenant %q: %v", s.ID, c.ID, err)
		}
		out = append(out, Pending[A]{Job: *j, In: dueIn(s), Awaiting: s.State == awaiting})
	}
	return out
}

// RequireEnqueued returns the first of the tenant's jobs of A's kind that waits to
// be run, now or later, and whose arguments match says yes to. Without one it
// fails the test and says what is there.
func RequireEnqueued[A job.Args](c *Tenant, match func(A) bool) Pending[A] {
	c.t.Helper()
	all := Enqueued[A](c)
	if i := slices.IndexFunc(all, func(p Pending[A]) bool { return match(p.Args) }); i >= 0 {
		return all[i]
	}
	c.t.Fatalf("jobtest: tenant %q has no job %s that matches; %s", c.ID, job.KindOf[A](), c.inventory())
	return Pending[A]{}
}

// pendingStates are those of jobs that have yet to run.
var pendingStates = []string{"waiting", "scheduled", "retrying", awaiting}

// awaiting is the state of a job that awaits others.
const awaiting = "awaiting"

// pendingMost bounds a list of jobs.
const pendingMost = 100_000

// pending lists the tenant's jobs that have yet to run, of one kind or, if that is
// empty, of all.
func (c *Tenant) pending(kind string) []operate.JobStatus {
	c.t.Helper()
	var out []operate.JobStatus
	for _, state := range pendingStates {
		jobs, err := c.env.Client().Operator().Jobs().List(c, operate.JobFilter{State: state, Tenant: string(c.ID), Kind: kind, Limit: pendingMost})
		if err != nil {
			c.t.Fatalf("jobtest: %v", err)
		}
		out = append(out, jobs...)
	}
	slices.SortFunc(out, byAge)
	return out
}

// inventoryMost is how many jobs a failure shows.
const inventoryMost = 20

// inventory says which jobs there are.
func (c *Tenant) inventory() string {
	c.t.Helper()
	all := c.pending("")
	if len(all) == 0 {
		return "it has no job that waits"
	}
	var b strings.Builder
	b.WriteString("it has:")
	for _, s := range all[:min(len(all), inventoryMost)] {
		fmt.Fprintf(&b, "\n\t%s %s", s.Kind, s.Payload)
		if s.State == awaiting {
			b.WriteString(" awaiting others")
		} else if in := dueIn(s); in > 0 {
			fmt.Fprintf(&b, " %s, due in %v", s.State, in.Round(time.Second))
		}
	}
	if more := len(all) - inventoryMost; more > 0 {
		fmt.Fprintf(&b, "\n\tand %d more", more)
	}
	return b.String()
}

// dueIn is how long until a pending job is due.
func dueIn(s operate.JobStatus) time.Duration {
	if s.State == "waiting" || s.State == awaiting {
		return 0
	}
	return max(0, time.Until(s.At))
}

// recordOf is the record that the job's next run would see.
func recordOf(s operate.JobStatus) job.Record {
	return job.Record{
		ID: s.ID, Tenant: s.Tenant, Queue: s.Queue, Kind: s.Kind, Priority: s.Priority,
		Payload: s.Payload, Meta: s.Meta, Attempt: s.Attempt + 1, MaxAttempts: s.MaxAttempts, Losses: s.Losses,
		Timeout: s.Timeout, CorrelationID: s.CorrelationID, UniqueKey: s.UniqueKey, ExclusiveKey: s.ExclusiveKey, CreatedAt: s.CreatedAt,
	}
}
