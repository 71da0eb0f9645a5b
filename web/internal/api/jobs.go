package api

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// JobIn names a job, exported for huma, which reads no other embedded struct. The document says that
// the id is a string, for those whose numbers do not hold it.
type JobIn struct {
	Text string `path:"id" pattern:"^[1-9][0-9]{0,18}$"`
	ID   int64  // of Text
}

// Resolve reads the id.
func (in *JobIn) Resolve(huma.Context) (errs []error) {
	var err error
	if in.ID, err = strconv.ParseInt(in.Text, 10, 64); err != nil {
		errs = append(errs, &huma.ErrorDetail{Message: "this is no id of a job", Location: "path.id", Value: in.Text})
	}
	return errs
}

// JobOut is a job, exported for huma, which describes no other embedded struct; ids are strings, as JavaScript has no integers of 64 bits.
type JobOut struct {
	ID            string     `json:"id"`
	Pool          string     `json:"pool"`
	Tenant        string     `json:"tenant"`
	State         string     `json:"state"`
	Kind          string     `json:"kind"`
	Queue         string     `json:"queue"`
	Priority      int        `json:"priority"`
	Attempt       int        `json:"attempt"`
	MaxAttempts   int        `json:"max_attempts" doc:"0: the kind's"`
	Losses        int        `json:"losses" doc:"runs that their node did not survive"`
	TimeoutMS     int64      `json:"timeout_ms" doc:"of each run; 0: the kind's"`
	CreatedAt     time.Time  `json:"created_at"`
	At            *time.Time `json:"at,omitempty" doc:"claimed, due, suspended, died or finished, by state"`
	StartedAt     *time.Time `json:"started_at,omitempty" doc:"of the last run"`
	ResumeAt      *time.Time `json:"resume_at,omitempty" doc:"of a suspended job that is to be resumed by itself"`
	Node          string     `json:"node,omitempty"`
	Error         string     `json:"error,omitempty"`
	UniqueKey     string     `json:"unique_key,omitempty"`
	ExclusiveKey  string     `json:"exclusive_key,omitempty"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	Tags          []string   `json:"tags,omitempty"`
	External      bool       `json:"external" doc:"for workers outside the cluster"`
	Handled       bool       `json:"handled" doc:"false: it waits, and no live node has a handler for its kind"`
}

func newJob(j *operate.JobStatus) JobOut {
	return JobOut{j.ID.String(), j.Pool, j.Tenant, j.State, j.Kind, j.Queue, int(j.Priority), j.Attempt, j.MaxAttempts, j.Losses, j.Timeout.Milliseconds(),
		j.CreatedAt, timeOrNone(j.At), timeOrNone(j.StartedAt), timeOrNone(j.ResumeAt), j.Node, j.Error, j.UniqueKey, j.ExclusiveKey, j.CorrelationID, jobmeta.Tags(j.Meta), j.External, j.Handled}
}

type jobsIn struct {
	State         string    `query:"state"`
	Tenant        string    `query:"tenant"`
	Kind          string    `query:"kind"`
	Queue         string    `query:"queue"`
	Pool          string    `query:"pool"`
	Tags          []string  `query:"tag,explode" doc:"all of which a job has"`
	CorrelationID string    `query:"correlation_id"`
	Since         time.Time `query:"since" doc:"made then or later"`
	Until         time.Time `query:"until" doc:"made before then"`
	Error         string    `query:"error" doc:"of state dead: what the error contains, in upper or lower case"`
	Node          string    `query:"node" doc:"of state claimed, running or locked: the node, or external worker, that has it"`
	After         string    `query:"after" doc:"the next of the page before"`
	Limit         int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func listJobs(ctx context.Context, s *server, in *jobsIn) (*list[JobOut], error) {
	f := operate.JobFilter{State: in.State, Kind: in.Kind, Queue: in.Queue, Tags: in.Tags, CorrelationID: in.CorrelationID, Since: in.Since, Until: in.Until, Error: in.Error, Node: in.Node, After: in.After, Limit: in.Limit + 1}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	found, err := gather(ctx, in.Tenant, in.Pool, s.limits.look, func(ctx context.Context, of scope) ([]operate.JobStatus, error) {
		f := f
		f.Tenant, f.Pool = of.tenant, of.pool
		return s.operator.Jobs().List(ctx, f)
	})
	return pageOf(found, err, in.Limit, operate.CompareJobs, newJob)
}

type failureOut struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Node    string    `json:"node"`
	Error   string    `json:"error"`
	Stack   string    `json:"stack,omitempty"`
}

type reportOut struct {
	Attempt   int             `json:"attempt"`
	Node      string          `json:"node"`
	StartedAt time.Time       `json:"started_at"`
	Done      int64           `json:"done"`
	Total     int64           `json:"total" doc:"0: the run has not said how far it is"`
	Note      string          `json:"note,omitempty"`
	Output    json.RawMessage `json:"output,omitempty" doc:"for tokens with args: true only"`
	Lines     []lineOut       `json:"lines" nullable:"false"`
	LeftOut   int             `json:"left_out" doc:"lines before these"`
}

type lineOut struct {
	AfterMS int64  `json:"after_ms" doc:"since the run began"`
	Text    string `json:"text"`
}

// JobDetail is a job with what there is of its runs, exported as [JobOut] is.
type JobDetail struct {
	JobOut
	Version       string       `json:"version" doc:"another one whenever something of the job has changed"`
	CancelAskedAt *time.Time   `json:"cancel_asked_at,omitempty" doc:"it runs, and is to be cancelled: its node and its handler have not done so yet"`
	Errors        []failureOut `json:"errors" nullable:"false" doc:"of the runs that failed"`
	Reports       []reportOut  `json:"reports" nullable:"false" doc:"what its runs said of themselves"`
}

func (s *server) newJobDetail(ctx context.Context, j *operate.JobStatus, failed []job.RunError) JobDetail {
	out := JobDetail{JobOut: newJob(j), CancelAskedAt: timeOrNone(j.CancelAsked), Errors: []failureOut{}, Reports: []reportOut{}}
	for _, f := range failed {
		out.Errors = append(out.Errors, failureOut{f.Attempt, f.At, f.Node, f.Error, f.Stack})
	}
	for i := range j.Reports {
		r := &j.Reports[i]
		report := reportOut{r.Attempt, r.Node, r.StartedAt, r.Done, r.Total, r.Note, s.reveal.Output(ctx, j.Kind, r.Output), []lineOut{}, r.LeftOut}
		for _, l := range r.Lines {
			report.Lines = append(report.Lines, lineOut{l.After.Milliseconds(), l.Text})
		}
		out.Reports = append(out.Reports, report)
	}
	out.Version = versionOf(out)
	return out
}

// hasEnded says whether a job is in a state that it stays in.
func (j *JobOut) hasEnded() bool {
	return jobstate.Of(j.State).Ended()
}

type getJobIn struct {
	JobIn
	Known string `query:"known" doc:"the version that is known already: it is waited for another one"`
	Wait  int    `query:"wait" minimum:"0" maximum:"20" doc:"so many seconds at most"`
}

type jobWithArgs struct {
	JobDetail
	CancelledBy *auditOut `json:"cancelled_by,omitempty" doc:"who cancelled it, or asked for that, if an operator did, as far as the token reaches that"`

	Args json.RawMessage `json:"args,omitempty" doc:"for tokens with args: true only"`
	Meta json.RawMessage `json:"meta,omitempty" doc:"likewise"`
}

func getJob(ctx context.Context, s *server, in *getJobIn) (*object[jobWithArgs], error) {
	j, failed, err := s.findJob(ctx, job.ID(in.ID))
	if err != nil {
		return nil, err
	}
	out := &object[jobWithArgs]{jobWithArgs{JobDetail: s.newJobDetail(ctx, &j, failed)}}
	if in.Wait > 0 && in.Known == out.Body.Version {
		changed, err := s.waitForJob(ctx, &out.Body.JobDetail, time.Duration(in.Wait)*time.Second)
		if err != nil {
			return nil, err
		}
		out.Body.JobDetail = changed
	}
	if out.Body.State == "cancelled" || out.Body.CancelAskedAt != nil {
		out.Body.CancelledBy = s.whoCancelled(ctx, &j)
	}
	out.Body.Args, err = s.reveal.Args(ctx, j)
	if access.From(ctx).Args {
		out.Body.Meta = j.Meta
	}
	return out, err
}

// whoCancelled is the last deed that cancelled a job, or else that may have, and that the grant reaches; nil: none, or the pool
// does not tell.
func (s *server) whoCancelled(ctx context.Context, j *operate.JobStatus) *auditOut {
	const some = 10 // what was done to all tenants' jobs may be before it
	deeds, err := s.operator.Audit(ctx, operate.AuditFilter{Pool: j.Pool, Job: j.ID, Action: "cancel", Limit: some})
	if err != nil {
		return nil
	}
	for _, chosen := range []bool{false, true} {
		for i := range deeds {
			if out := seenDeed(ctx, &deeds[i]); out != nil && out.Chosen == chosen {
				return out
			}
		}
	}
	return nil
}

type whyOut struct {
	Job    JobOut    `json:"job"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	Advice string    `json:"advice,omitempty"`
	Frozen *auditOut `json:"frozen,omitempty" doc:"who froze what it waits for, if that is known, and the token reaches it"`
}

func explainJob(ctx context.Context, s *server, in *JobIn) (*object[whyOut], error) {
	e, err := s.operator.Jobs().Explain(ctx, job.ID(in.ID))
	if err == nil && !sees(ctx, tenancy.ID(e.Job.Tenant), e.Job.Pool) {
		err = hidden
	}
	if !s.tells(ctx, e.Reason) {
		e = e.Bounded()
	}
	return &object[whyOut]{whyOut{newJob(&e.Job), string(e.Reason), e.Text, e.Advice, seenDeed(ctx, e.Frozen)}}, err
}

type cancelOut struct {
	Running bool `json:"running" doc:"it is cancelled within a heartbeat of its node"`
}

func cancelJob(ctx context.Context, s *server, in *JobIn) (*object[cancelOut], error) {
	if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
		return nil, err
	}
	running, err := s.operator.Jobs().Cancel(ctx, job.ID(in.ID))
	return &object[cancelOut]{cancelOut{running}}, err
}

// onJob is a route that does something to a job, and has nothing to say.
func onJob(do func(context.Context, *operate.Operator, job.ID) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *JobIn) (*none, error) {
		if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
			return nil, err
		}
		return nil, do(ctx, s.operator, job.ID(in.ID))
	})
}

type retryOut struct {
	Already bool `json:"already" doc:"it waits already, and nothing was changed"`
}

func retryJob(ctx context.Context, s *server, in *JobIn) (*object[retryOut], error) {
	if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
		return nil, err
	}
	err := s.operator.Jobs().Retry(ctx, job.ID(in.ID))
	if state := (*operate.StateError)(nil); errors.As(err, &state) && state.State == "waiting" {
		return &object[retryOut]{retryOut{true}}, nil
	}
	return &object[retryOut]{}, err
}

type rerunOut struct {
	ID string `json:"id" doc:"of the new job"`
}

func rerunJob(ctx context.Context, s *server, in *JobIn) (*object[rerunOut], error) {
	if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
		return nil, err
	}
	added, err := s.operator.Jobs().Rerun(ctx, job.ID(in.ID))
	return &object[rerunOut]{rerunOut{added.String()}}, err
}

type suspendIn struct {
	JobIn
	Until time.Time `query:"until" doc:"it is resumed then; none: when somebody says so"`
}

func suspendJob(ctx context.Context, s *server, in *suspendIn) (*none, error) {
	if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
		return nil, err
	}
	return nil, s.operator.Jobs().Suspend(ctx, job.ID(in.ID), in.Until)
}

type changeIn struct {
	JobIn
	Body struct {
		Priority    *int       `json:"priority,omitempty" minimum:"-1000" maximum:"1000"`
		DueAt       *time.Time `json:"due_at,omitempty" doc:"one that has passed: at once"`
		MaxAttempts *int       `json:"max_attempts,omitempty" minimum:"1" maximum:"1000" doc:"in all"`
		TimeoutMS   *int64     `json:"timeout_ms,omitempty" minimum:"1" maximum:"2147483647" doc:"of each run"`
	}
}

func changeJob(ctx context.Context, s *server, in *changeIn) (*none, error) {
	if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
		return nil, err
	}
	b := &in.Body
	c := operate.JobChange{Priority: b.Priority, DueAt: b.DueAt, MaxAttempts: b.MaxAttempts}
	if b.TimeoutMS != nil {
		d := time.Duration(*b.TimeoutMS) * time.Millisecond
		c.Timeout = &d
	}
	return nil, s.operator.Jobs().Change(ctx, job.ID(in.ID), c)
}

func resumeJob(ctx context.Context, op *operate.Operator, id job.ID) error {
	return op.Jobs().Resume(ctx, id)
}

func runJob(ctx context.Context, op *operate.Operator, id job.ID) error {
	return op.Jobs().Run(ctx, id)
}
