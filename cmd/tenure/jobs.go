package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

func newJobs(a *app) *cobra.Command {
	return newGroup("jobs", "List, show, retry and cancel jobs",
		newJobsList(a), newJobsShow(a), newJobsRetry(a), newJobsCancel(a))
}

// parseIDs reads all ids before anything is done to one of them.
func parseIDs(args []string) ([]job.ID, error) {
	var ids []job.ID
	for _, arg := range args {
		id, err := job.ParseID(arg)
		if err != nil {
			return nil, &usageError{err}
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// jsonID is a job's id in JSON: a string, as the ids of pools with a high number
// have more digits than programs keep that read numbers as floating point.
type jsonID job.ID

func (id jsonID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), nil }

// jsonJob is a job as -o json prints it.
type jsonJob struct {
	ID            jsonID          `json:"id"`
	State         string          `json:"state"`
	Handled       bool            `json:"handled"` // false: it waits and no live node has a handler for its kind
	Pool          string          `json:"pool"`
	Tenant        string          `json:"tenant"`
	Queue         string          `json:"queue"`
	Kind          string          `json:"kind"`
	Priority      int16           `json:"priority"`
	Attempt       int             `json:"attempt"`
	MaxAttempts   int             `json:"max_attempts,omitempty"`
	Losses        int             `json:"losses"`
	CreatedAt     *time.Time      `json:"created_at"`
	At            *time.Time      `json:"at"` // started, due, suspended, died or finished, by state
	Node          string          `json:"node,omitempty"`
	Error         string          `json:"error,omitempty"`
	UniqueKey     string          `json:"unique_key,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Payload       json.RawMessage `json:"payload"`
	Meta          json.RawMessage `json:"meta,omitempty"`
}

func newJSONJob(s tenure.JobStatus) jsonJob {
	return jsonJob{
		ID: jsonID(s.ID), State: s.State, Handled: s.Handled, Pool: s.Pool, Tenant: s.Tenant, Queue: s.Queue, Kind: s.Kind,
		Priority: s.Priority, Attempt: s.Attempt, MaxAttempts: s.MaxAttempts, Losses: s.Losses,
		CreatedAt: jsonTime(s.CreatedAt), At: jsonTime(s.At), Node: s.Node, Error: s.Error,
		UniqueKey: s.UniqueKey, CorrelationID: s.CorrelationID, Payload: s.Payload, Meta: s.Meta,
	}
}

// stateOf is a job's state, with the most frequent reason why nothing happens.
func stateOf(s tenure.JobStatus) string {
	if s.State == "waiting" && !s.Handled {
		return "waiting (no handler)"
	}
	return s.State
}

// attempts is how often a job was tried, and of how many times.
func attempts(s tenure.JobStatus) string {
	if s.MaxAttempts == 0 {
		return strconv.Itoa(s.Attempt)
	}
	return fmt.Sprintf("%d/%d", s.Attempt, s.MaxAttempts)
}
