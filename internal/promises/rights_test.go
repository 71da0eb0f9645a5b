package promises_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// A right that is taken away from the nodes' user while they run takes the pool out of service: jobs would wait, or run whose
// ends nobody can write. No attempt is charged, and all goes on when it is given back.
func TestP10ARightIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, right := range map[string]string{"to keep what has ended": "INSERT ON tenure.completed_job", "to end": "DELETE ON tenure.job",
		"to claim": "INSERT ON tenure.claim", "to keep the session": "UPDATE ON tenure.node_session", "to read what waits": "SELECT ON tenure.job"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			var ran atomic.Int64
			n := b.start(b.named("n"), b.registry(func(job.ID) { ran.Add(1) }))
			user, err := pgx.ParseConfig(b.cfg.Pools["p1"].DSN)
			require.NoError(t, err)
			enqueued := 0
			enqueue := func(jobs int) {
				b.exec("p1", "SELECT tenure.enqueue(tenant => 't1', kind => 'plain', payload => '{\"n\": 1}') FROM generate_series(1, $1)", jobs)
				enqueued += jobs
			}
			enqueue(1)
			b.finished(n.Client(), enqueued)
			b.exec("p1", "REVOKE "+right+" FROM "+user.User)
			enqueue(1)
			require.Eventually(t, func() bool { return n.Operator().Pools().Unfit()["p1"] != nil }, patience, time.Millisecond)
			require.ErrorContains(t, n.Operator().Pools().Unfit()["p1"], "GRANT")
			begun := ran.Load()
			enqueue(500)
			time.Sleep(time.Second)
			require.Equal(t, begun, ran.Load(), "nothing more begins")
			b.exec("p1", "GRANT "+right+" TO "+user.User)
			b.finished(n.Client(), enqueued)
			require.Equal(t, int64(enqueued), ran.Load(), "each once")
			require.Equal(t, 0, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
		})
	}
}

// A job that is finished in its handler's transaction is charged no attempt either, and takes its pool out of service, too.
func TestP10ARightIsTakenAwayFromHandleTx(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	n := b.start(b.named("n"), b.registry(nil))
	user, err := pgx.ParseConfig(b.cfg.Pools["p1"].DSN)
	require.NoError(t, err)
	b.exec("p1", "REVOKE INSERT ON tenure.completed_job FROM "+user.User)
	_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1}) // of several one might be charged that asks the ledger why once it has the right again
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.Operator().Pools().Unfit()["p1"] != nil }, patience, time.Millisecond)
	b.exec("p1", "GRANT INSERT ON tenure.completed_job TO "+user.User)
	b.finished(n.Client(), 1)
	require.Equal(t, 0, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
}
