package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// TestReportsCanBeSeenWhileAJobRuns: what a run says is there before it ends, stays when the job
// runs again, and is kept with the finished job, beside where and for how long that ran.
func TestReportsCanBeSeenWhileAJobRuns(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	goOn := make(chan struct{})
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		if j.Attempt > 1 {
			job.SetProgress(ctx, 4, 4, "")
			return job.SetOutput(ctx, map[string]int{"sent": 4})
		}
		job.SetProgress(ctx, 1, 4, "sending")
		job.Log(ctx, "the first try")
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		job.Log(ctx, "last words")
		return errors.New("boom")
	})
	c := b.node(b.named("n1"), r).Client()
	e, err := c.Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	until := func(is func(operate.JobStatus) bool) (j operate.JobStatus) {
		t.Helper()
		require.Eventually(t, func() bool {
			var err error
			j, _, err = c.Operator().Jobs().Get(t.Context(), e.ID)
			require.NoError(t, err)
			return is(j)
		}, patience, 20*time.Millisecond)
		return j
	}
	j := until(func(j operate.JobStatus) bool { return len(j.Reports) == 1 && !j.StartedAt.IsZero() }) // which are read one after the other
	require.Equal(t, "running", j.State)
	require.Equal(t, "n1", j.Reports[0].Node)
	require.Equal(t, j.Reports[0].StartedAt, j.StartedAt)
	require.EqualValues(t, 1, j.Reports[0].Done)
	require.Equal(t, "the first try", j.Reports[0].Lines[0].Text)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = c.Operator().Jobs().Await(short, e.ID)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, _, err = c.Operator().Jobs().Await(t.Context(), 7)
	require.ErrorIs(t, err, tenure.ErrNotFound)
	close(goOn)

	j, _, err = c.Operator().Jobs().Await(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, "done", j.State)
	require.Len(t, j.Reports, 2)
	require.Equal(t, []int{1, 2}, []int{j.Reports[0].Attempt, j.Reports[1].Attempt})
	require.Len(t, j.Reports[0].Lines, 2)
	require.Equal(t, "last words", j.Reports[0].Lines[1].Text)
	require.JSONEq(t, `{"sent": 4}`, string(j.Reports[1].Output))
	require.Equal(t, "n1", j.Node)
	require.False(t, j.StartedAt.IsZero())
	require.False(t, j.At.Before(j.StartedAt))
}

// TestTheLastReportCommitsWithTheJob: what a handler in a transaction says last is in the ledger if
// and only if its effects are.
func TestTheLastReportCommitsWithTheJob(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		if err := job.SetOutput(ctx, j.Args.N); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id, run) VALUES ($1, '')", int64(j.ID))
		return err
	})
	tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[inBatch]) error {
		for _, j := range batch.Jobs {
			if err := job.SetOutput(job.NewContext(ctx, &j.Record), j.Args.N); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id, run) VALUES ($1, '')", int64(j.ID)); err != nil {
				return err
			}
		}
		return nil
	}, inOneCall(3))
	n := b.start(b.named("n1"), r)
	n.holds("p1")
	c := n.Client()
	ctx := tenancy.For(t.Context(), "t1")
	_, err := c.Enqueue(ctx, write{7})
	require.NoError(t, err)
	n.enqueueBatch(3, func(i int) job.Args { return inBatch{i} })
	b.eventually(4, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done' AND node = 'n1' AND started_at <= finished_at")
	require.Equal(t, 4, b.count("p1", `SELECT count(*) FROM tenure.job_report r JOIN t1.effect e ON e.job_id = r.job_id
		JOIN tenure.completed_job c ON c.id = r.job_id AND c.turn = r.turn AND c.payload -> 'n' = r.output AND c.xmin = e.xmin`), "all that was written by the same transactions")
}

// inBatch is a job whose handler gets several.
type inBatch struct {
	N int `json:"n"`
}

func (inBatch) Kind() string { return "in-batch" }
