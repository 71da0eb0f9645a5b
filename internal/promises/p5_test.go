package promises_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP5AttemptIsRecordedBeforeTheNextStart: each run finds all runs before it in
// the ledger.
func TestP5AttemptIsRecordedBeforeTheNextStart(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	const attempts = 5
	recorded := make(chan string, attempts)
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		var errs, charged int
		err := b.db["p1"].QueryRow(ctx, `SELECT (SELECT count(*) FROM tenure.job_error WHERE job_id = $1),
			(SELECT attempt FROM tenure.job WHERE id = $1)`, int64(j.ID)).Scan(&errs, &charged)
		recorded <- fmt.Sprint(j.Attempt-1, errs, charged, err)
		return fmt.Errorf("attempt %d", j.Attempt)
	}, job.Retry(fmt.Sprintf("R%d/PT0.01S", attempts)))
	n := b.node(b.cfg, r)
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	for i := range attempts {
		select {
		case got := <-recorded:
			require.Equal(t, fmt.Sprint(i, i, i, nil), got, "attempts before this run, by its record and twice by the ledger")
		case <-time.After(patience):
			require.FailNow(t, "no further run", "after %d", i)
		}
	}
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE attempt = 5")
}

// TestP5ANodeThatIsCutOffHasNotCrashed: a node is cut off from the database until its job is
// taken from it. That it lost its session is not held against the job, once it can say so.
func TestP5ANodeThatIsCutOffHasNotCrashed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	began, goOn := make(chan string, 10), make(chan struct{})
	finish := sync.OnceFunc(func() { close(goOn) })
	defer finish()
	long := func(node string) *job.Registry {
		r := job.NewRegistry()
		job.Handle(r, func(ctx context.Context, _ *job.Job[plain]) error {
			began <- node
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		return r
	}
	next := func() string {
		select {
		case node := <-began:
			return node
		case <-time.After(patience):
			return "nobody"
		}
	}
	cfg, proxy := b.behind(b.named("cut"), "p1")
	cut := b.start(cfg, long("cut"))
	cut.holds("p1")
	_, err := cut.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	require.Equal(t, "cut", next())
	b.start(b.named("other"), long("other"))
	proxy.Hold(func(string) bool { return true })
	require.Equal(t, "other", next())
	require.Equal(t, 1, b.count("p1", "SELECT losses FROM tenure.job"), "as far as anybody knows it may have killed its node")
	proxy.Hold(nil)
	b.eventually(0, "p1", "SELECT losses FROM tenure.job")
	finish()
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
}

// raced is set under the race detector.
var raced bool

// TestP5ACrasherIsDeadLettered: a job that kills its node, in whichever way, is run three times
// and no more, and the jobs that were claimed with it all finish.
func TestP5ACrasherIsDeadLettered(t *testing.T) {
	t.Parallel()
	memory := []string{"exit status 2"}
	if raced { // then the detector may be the first that gets none
		memory = append(memory, "exit status 66")
	}
	for how, says := range map[string][]string{
		"kill": {"signal: killed"}, "exit": {"exit status 1"}, "goroutine": {"exit status 2"}, "memory": memory,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			crasherIsDeadLettered(t, how, says)
		})
	}
}

func crasherIsDeadLettered(t *testing.T, how string, says []string) {
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = time.Second, 200*time.Millisecond
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = 1200*time.Millisecond, 300*time.Millisecond
	client, err := tenure.NewClient(b.cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, client.Stop(context.Background())) })
	const innocents = 50
	entries := []tenure.Entry{{Tenant: "t1", Args: poison{By: how}}}
	for i := range innocents {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}})
	}
	_, err = client.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)

	deadLettered := make(chan struct{})
	go func() { // ends with the test, if not before
		for n := 0; t.Context().Err() == nil; {
			err := b.db["p1"].QueryRow(t.Context(), "SELECT count(*) FROM tenure.dead_letter_job WHERE kind = 'poison' AND losses = 3").Scan(&n)
			if err == nil && n == 1 {
				close(deadLettered)
				return
			}
			pause(t.Context(), 10*time.Millisecond)
		}
	}()
	deaths := 0
	for deaths < 10 {
		c := b.startChild(b.named(fmt.Sprintf("n%d", deaths)))
		select {
		case <-c.exited:
			require.Contains(t, says, fmt.Sprint(c.err))
			deaths++
			continue
		case <-deadLettered:
		}
		b.drained("p1", innocents)
		c.stop()
		break
	}
	require.Equal(t, 3, deaths)
	require.Equal(t, 3, b.count("p1", "SELECT count(*) FROM tenure.job_error WHERE error LIKE 'the node was lost%' AND job_id = (SELECT id FROM tenure.dead_letter_job)"))
}
