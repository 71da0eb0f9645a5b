package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// plainWork takes a while and has no effect but its line in the journal.
type plainWork struct {
	Took time.Duration `json:"took"`
}

// Kind implements job.Args.
func (plainWork) Kind() string { return "load.plain" }

// txWork writes its effect in the transaction that also ends the job.
type txWork struct {
	Took time.Duration `json:"took"`
}

// Kind implements job.Args.
func (txWork) Kind() string { return "load.tx" }

// killerWork ends the process that runs it.
type killerWork struct {
	By string `json:"by"` // one of waysToKill
}

// Kind implements job.Args.
func (killerWork) Kind() string { return "load.killer" }

// waysToKill: "kill" is what a system does that has no more memory.
var waysToKill = []string{"exit", "panic", "kill"}

// kill does not return in time.
func (k killerWork) kill(ctx context.Context) error {
	switch k.By {
	case "exit":
		os.Exit(1)
	case "panic":
		go func() { panic("killer: in a goroutine of the handler's own") }()
	default:
		if p, err := os.FindProcess(os.Getpid()); err != nil || p.Kill() != nil {
			return errors.New("this process could not be killed")
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// workRegistry holds what node processes can do. Retries are many and quick: a job
// that was cancelled by a fault must come to its end within the scenario.
func workRegistry(log *journal) *job.Registry {
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plainWork]) error {
		return log.around(&j.Record, func() error { return wait(ctx, j.Args.Took) })
	}, job.Retry("R100/PT1S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[txWork]) error {
		return log.around(&j.Record, func() error {
			member := log.member.Load()
			if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id, turn, member) VALUES ($1, $2, $3)", int64(j.ID), j.Turn, member); err != nil {
				return err
			}
			return wait(ctx, j.Args.Took) // behind the effect, so that a killed node leaves it half done
		})
	}, job.Retry("R100/PT1S"))
	job.Handle(r, func(ctx context.Context, j *job.Job[killerWork]) error {
		return log.around(&j.Record, func() error { return j.Args.kill(ctx) })
	})
	return r
}

// around writes down the start before anything else is done, and the end.
func (j *journal) around(r *job.Record, work func() error) error {
	if err := j.note("start", r, nil); err != nil {
		return err
	}
	if err := work(); err != nil {
		_ = j.note("fail", r, err) // the handler's own error says more
		return err
	}
	return j.note("end", r, nil)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
