package fleet

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// PlainWork takes a while and has no effect but its line in the journal.
type PlainWork struct {
	Took time.Duration `json:"took"`
}

func (PlainWork) Kind() string { return "load.plain" }

// TxWork writes its effect in the transaction that also ends the job.
type TxWork struct {
	Took time.Duration `json:"took"`
}

func (TxWork) Kind() string { return "load.tx" }

// MixedWork makes every other job of a load one that writes.
func MixedWork(took time.Duration) func(n int) job.Args {
	return func(n int) job.Args {
		if n%2 == 0 {
			return PlainWork{Took: took}
		}
		return TxWork{Took: took}
	}
}

// CrasherWork ends the process that runs it.
type CrasherWork struct {
	By string `json:"by"` // one of WaysToCrash
}

func (CrasherWork) Kind() string { return "load.crasher" }

// WaysToCrash: "kill" is what a system does that has no more memory.
var WaysToCrash = []string{"exit", "panic", "kill"}

// crash does not return in time.
func (k CrasherWork) crash(ctx context.Context) error {
	switch k.By {
	case "exit":
		os.Exit(1)
	case "panic":
		go func() { panic("crasher: in a goroutine of the handler's own") }()
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
func workRegistry(log *report.Journal) *job.Registry {
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[PlainWork]) error {
		return log.Around(&j.Record, func() error { return wait.For(ctx, j.Args.Took) })
	}, job.Retry("R100/PT1S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[TxWork]) error {
		return log.Around(&j.Record, func() error {
			if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id, turn, member) VALUES ($1, $2, $3)", int64(j.ID), j.Turn, log.Self()); err != nil {
				return err
			}
			return wait.For(ctx, j.Args.Took) // behind the effect, so that a killed node leaves it half done
		})
	}, job.Retry("R100/PT1S"))
	job.Handle(r, func(ctx context.Context, j *job.Job[CrasherWork]) error {
		return log.Around(&j.Record, func() error { return j.Args.crash(ctx) })
	})
	return r
}
