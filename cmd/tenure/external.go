package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

func newExternal(a *app) *cobra.Command {
	return newGroup("external", "Acquire and end jobs of workers outside the cluster",
		newExternalAcquire(a), newExternalComplete(a), newExternalFail(a), newExternalError(a), newExternalExtend(a), newExternalRelease(a))
}

// externalLock is a lock as the commands print and read it: JOB:TURN.
type externalLock tenure.ExternalLock

func (l externalLock) String() string { return fmt.Sprintf("%d:%d", l.Job, l.Turn) }

func parseLock(text string) (l externalLock, err error) {
	id, turn, _ := strings.Cut(text, ":")
	if l.Job, err = job.ParseID(id); err == nil {
		var n int64
		n, err = strconv.ParseInt(turn, 10, 32)
		l.Turn = int32(n)
	}
	if err != nil {
		return l, fmt.Errorf("%q is not a lock: give it as tenure external acquire prints it, JOB:TURN", text)
	}
	return l, nil
}

// jsonExternal is an acquired job as -o json prints it.
type jsonExternal struct {
	ID            jsonID          `json:"id"`
	Lock          string          `json:"lock"` // what the other commands take
	Until         jsonTime        `json:"until"`
	Pool          string          `json:"pool"`
	Tenant        string          `json:"tenant"`
	Topic         string          `json:"topic"`
	Queue         string          `json:"queue"`
	Priority      int             `json:"priority"`
	Attempt       int             `json:"attempt"`
	Losses        int             `json:"losses"`
	CreatedAt     jsonTime        `json:"created_at"`
	UniqueKey     string          `json:"unique_key,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Payload       json.RawMessage `json:"payload"`
	Meta          json.RawMessage `json:"meta,omitempty"`
}

func newExternalAcquire(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acquire TOPIC --worker NAME",
		Short: "Lock jobs of a topic for a worker and print them",
		Long: "A job that is not ended, extended or released until its lock expires can be acquired again, by\n" +
			"anybody; then what is said of it with the old lock comes too late. No job is no failure.",
		Example: "  tenure external acquire invoice.print --worker printer-1 --max 10 --lock 5m -o json",
		Args:    cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	var r tenure.AcquireRequest
	var tenants []string
	flags := cmd.Flags()
	flags.StringVar(&r.Worker, "worker", "", "the `name` to lock them for")
	flags.IntVar(&r.Max, "max", 1, fmt.Sprintf("at most this many jobs, 1 to %d", tenure.MaxExternalJobs))
	flags.DurationVar(&r.LockFor, "lock", 5*time.Minute, "for how long")
	flags.DurationVar(&r.Wait, "wait", 0, "wait so long for a job if there is none")
	flags.StringSliceVar(&tenants, "tenant", nil, "only jobs of these `tenants`")
	_ = cmd.MarkFlagRequired("worker") // fails for a flag that does not exist
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Topic = args[0]
		for _, t := range tenants {
			r.Tenants = append(r.Tenants, tenancy.ID(t))
		}
		return a.act(cmd.Context(), r.Wait+operateLimit, func(ctx context.Context, o *operation) error {
			jobs, err := tenure.NewExternalWorkers(o.client).Acquire(ctx, r)
			if err != nil {
				return err
			}
			if *output == asJSON {
				all := []jsonExternal{}
				for _, j := range jobs {
					all = append(all, jsonExternal{ID: jsonID(j.Job), Lock: externalLock(j.ExternalLock).String(), Until: jsonTime{j.Until}, Pool: j.Pool,
						Tenant: string(j.Tenant), Topic: j.Topic, Queue: j.Queue, Priority: j.Priority, Attempt: j.Attempt, Losses: j.Losses,
						CreatedAt: jsonTime{j.CreatedAt}, UniqueKey: j.UniqueKey, CorrelationID: j.CorrelationID, Payload: j.Payload, Meta: j.Meta})
				}
				return printJSON(a.stdout, all)
			}
			var rows [][]string
			for _, j := range jobs {
				rows = append(rows, []string{externalLock(j.ExternalLock).String(), string(j.Tenant), strconv.Itoa(j.Attempt), a.now.stamp(j.Until), cut(oneLine(string(j.Payload)), maxDetail)})
			}
			return printTable(a.stdout, []string{"LOCK", "TENANT", "ATTEMPT", "UNTIL", "PAYLOAD"}, rows)
		})
	}
	return cmd
}

// onLocks makes cmd do something to each of the locks that are its arguments, as --worker's.
func onLocks(a *app, cmd *cobra.Command, said string, do func(context.Context, *tenure.ExternalWorkers, tenure.ExternalLock) error) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	worker := cmd.Flags().String("worker", "", "the `name` that the jobs are locked for")
	_ = cmd.MarkFlagRequired("worker") // fails for a flag that does not exist
	return onEach(a, cmd, "job", parseLock, func(ctx context.Context, o *operation, l externalLock) (string, error) {
		l.Worker = *worker
		return said, do(ctx, tenure.NewExternalWorkers(o.client), tenure.ExternalLock(l))
	})
}

// resultFlag adds --result to a command.
func resultFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("result", "", "what came of it, as `JSON`: kept with the job, see tenure jobs show")
}

func rawOrNone(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func newExternalComplete(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "complete LOCK... --worker NAME", Short: "End jobs that are done"}
	result := resultFlag(cmd)
	return onLocks(a, cmd, "is done", func(ctx context.Context, w *tenure.ExternalWorkers, l tenure.ExternalLock) error {
		return w.Complete(ctx, tenure.ExternalResult{ExternalLock: l, Output: rawOrNone(*result)})
	})
}

func newExternalFail(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "fail LOCK... --worker NAME", Short: "Say that a worker failed with jobs, which are tried again or are dead",
		Long: "Without --retries a job is tried as often as its --max-attempts say, or ten times, and without\n" +
			"--delay after longer and longer times, from 10 s to 6 h.",
	}
	text := cmd.Flags().String("error", "", "what went wrong")
	delay := cmd.Flags().Duration("delay", 0, "until the job can be acquired again")
	retries := cmd.Flags().Int("retries", 0, "how often it is to be tried again; 0: it is dead")
	return onLocks(a, cmd, "has failed", func(ctx context.Context, w *tenure.ExternalWorkers, l tenure.ExternalLock) error {
		f := tenure.ExternalFailure{ExternalLock: l, Error: *text, Delay: *delay}
		if cmd.Flags().Changed("retries") {
			f.Retries = retries
		}
		return w.Fail(ctx, f)
	})
}

func newExternalError(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "error LOCK... --worker NAME --code CODE", Short: "End jobs with an error of the business, which is not tried again",
		Long: "The job is in state business_error then, and no dead letter.",
	}
	code := cmd.Flags().String("code", "", "letters, digits and . _ : / -")
	message := cmd.Flags().String("message", "", "the error in words")
	result := resultFlag(cmd)
	_ = cmd.MarkFlagRequired("code") // fails for a flag that does not exist
	return onLocks(a, cmd, "has ended with a business error", func(ctx context.Context, w *tenure.ExternalWorkers, l tenure.ExternalLock) error {
		return w.RaiseError(ctx, tenure.ExternalError{ExternalLock: l, Code: *code, Message: *message, Output: rawOrNone(*result)})
	})
}

func newExternalExtend(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "extend LOCK... --worker NAME", Short: "Have locks expire later"}
	lock := cmd.Flags().Duration("lock", 5*time.Minute, "after this time from now")
	return onLocks(a, cmd, "stays locked", func(ctx context.Context, w *tenure.ExternalWorkers, l tenure.ExternalLock) error {
		return w.Extend(ctx, *lock, l)
	})
}

func newExternalRelease(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "release LOCK... --worker NAME", Short: "Give jobs back unfinished and uncharged"}
	return onLocks(a, cmd, "waits again", func(ctx context.Context, w *tenure.ExternalWorkers, l tenure.ExternalLock) error {
		return w.Release(ctx, l)
	})
}
