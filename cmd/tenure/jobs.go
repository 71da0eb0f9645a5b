package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

func newJobs(a *app) *cobra.Command {
	return newGroup("jobs", "List, show, explain, watch, run, retry, cancel, suspend and change jobs",
		newJobsList(a), newJobsShow(a), newJobsWhy(a), newJobsWatch(a), newJobsRun(a), newJobsDead(a), newJobsRetry(a), newJobsCancel(a), newJobsDelete(a),
		newJobsSuspend(a), newJobsResume(a), newJobsChange(a))
}

// jsonID is a job's id in JSON: a string, as the ids of pools with a high number
// have more digits than programs keep that read numbers as floating point.
type jsonID job.ID

func (id jsonID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), nil }

// jsonJob is a job as -o json prints it.
type jsonJob struct {
	ID            jsonID          `json:"id"`
	State         string          `json:"state"`
	External      bool            `json:"external,omitempty"` // for workers outside the cluster; the node is the one that has locked it
	Handled       bool            `json:"handled"`            // false: it waits and no live node has a handler for its kind
	Pool          string          `json:"pool"`
	Tenant        string          `json:"tenant"`
	Queue         string          `json:"queue"`
	Kind          string          `json:"kind"`
	Priority      int16           `json:"priority"`
	Attempt       int             `json:"attempt"`
	MaxAttempts   int             `json:"max_attempts,omitempty"`
	Losses        int             `json:"losses"`
	CreatedAt     jsonTime        `json:"created_at"`
	At            jsonTime        `json:"at"`                    // claim started, due, suspended, died or finished, by state
	ResumeAt      *jsonTime       `json:"resume_at,omitempty"`   // of a suspended job that has one
	StartedAt     jsonTime        `json:"started_at"`            // the last run of a finished job, or the run of one that has reported
	Seconds       float64         `json:"ran_seconds,omitempty"` // that run, of a finished job
	Node          string          `json:"node,omitempty"`
	Error         string          `json:"error,omitempty"`
	UniqueKey     string          `json:"unique_key,omitempty"`
	ExclusiveKey  string          `json:"exclusive_key,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Tags          []string        `json:"tags,omitempty"`
	TimeoutMs     int64           `json:"timeout_ms,omitempty"` // of each run; 0: its kind's
	Payload       json.RawMessage `json:"payload"`
	Meta          json.RawMessage `json:"meta,omitempty"`
	Cursor        string          `json:"cursor,omitempty"` // of lists: --after it is the next job
}

func newJSONJob(s tenure.JobStatus) jsonJob {
	var resume *jsonTime
	if !s.ResumeAt.IsZero() {
		resume = &jsonTime{s.ResumeAt}
	}
	j := jsonJob{
		ID: jsonID(s.ID), State: s.State, External: s.External, Handled: s.Handled, Pool: s.Pool, Tenant: s.Tenant, Queue: s.Queue, Kind: s.Kind,
		Priority: s.Priority, Attempt: s.Attempt, MaxAttempts: s.MaxAttempts, Losses: s.Losses,
		CreatedAt: jsonTime{s.CreatedAt}, At: jsonTime{s.At}, ResumeAt: resume, StartedAt: jsonTime{s.StartedAt}, Node: s.Node, Error: s.Error,
		UniqueKey: s.UniqueKey, ExclusiveKey: s.ExclusiveKey, CorrelationID: s.CorrelationID,
		Tags: job.TagsOf(s.Meta), TimeoutMs: s.Timeout.Milliseconds(), Payload: s.Payload, Meta: s.Meta,
	}
	j.Seconds = j.ran().Seconds()
	return j
}

// stateOf is a job's state, with the most frequent reason why nothing happens.
func stateOf(j jsonJob) string {
	if j.State == "waiting" && !j.Handled {
		return "waiting (no handler)"
	}
	if j.State == "waiting" && j.External {
		return "waiting (external)"
	}
	return j.State
}

// attempts is how often a job was tried, and of how many times.
func attempts(j jsonJob) string {
	if j.MaxAttempts == 0 {
		return strconv.Itoa(j.Attempt)
	}
	return fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts)
}

func newJobsRetry(a *app) *cobra.Command {
	return orDead(a, onEach(a, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Make dead, retrying and scheduled jobs run now",
		Long: "A dead job gets all its attempts again.\n\n" +
			"With --group, --kind, --tenant, --error, --older or --all, and no id, all dead letters that\n" +
			"they choose are retried, those that die meanwhile not included. See them first: tenure jobs\n" +
			"dead. Whatever interrupts the command, run it again: it goes on with those that are left; or\n" +
			"let nodes do it, with --background.",
		Example: "  tenure jobs retry --group 5d1c6d2e0a4f7b93 --rate 50",
	}, "job", job.ParseID, func(ctx context.Context, o *operation, id job.ID) (string, error) {
		err := o.Retry(ctx, id)
		if taken := (*job.KeyTakenError)(nil); errors.As(err, &taken) {
			return "", &advised{err, "retry it once that job has ended, or cancel that job first"}
		}
		if state := (*tenure.StateError)(nil); errors.As(err, &state) && state.State == "waiting" {
			return "is already waiting", nil
		}
		return "will run now", notFound(err, noSuchJob)
	}), deadAction{"retried", (*tenure.DeadLetters).Retry, (*tenure.DeadLetters).RetryInBackground})
}

func newJobsCancel(a *app) *cobra.Command {
	cmd := onEach(a, &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "End unfinished jobs",
		Long: "The context of a running job's handler is cancelled, with its node's next heartbeat.\n\n" +
			"With flags that choose jobs, and no id, the nodes cancel all that are unfinished and were made before, in the\n" +
			"background: see tenure operations. What does not run then starts no more. See them first:\n" +
			"tenure jobs list.",
		Example: "  tenure jobs cancel --tenant acme --kind mail.send --state scheduled",
	}, "job", job.ParseID, func(ctx context.Context, o *operation, id job.ID) (string, error) {
		running, err := o.Cancel(ctx, id)
		if running {
			return "is running; its handler is being cancelled", err
		}
		return "is cancelled", notFound(err, "only unfinished jobs can be cancelled; see: tenure jobs show "+id.String())
	})
	rate := rateFlag(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return checkRate(cmd, *rate) }
	return orMany(a, cmd, cancellable, func(ctx context.Context, o *operation, f tenure.CancelFilter) (string, error) {
		id, err := o.CancelInBackground(ctx, f, *rate, whoAsks())
		return underWay(id), err
	}, "rate")
}

// noSuchJob is for a job that is in no state at all.
const noSuchJob = "finished jobs are kept for execution.retention; see: tenure jobs list"

// notFound adds to the error that there is no such job what the reason may be.
func notFound(err error, advice string) error {
	if err == nil {
		return nil
	}
	parts := joined(err)
	for i, e := range parts {
		if errors.Is(e, tenure.ErrNotFound) && !errors.As(e, new(*tenure.StateError)) { // which says all
			parts[i] = &advised{e, advice}
		}
	}
	return errors.Join(parts...)
}
