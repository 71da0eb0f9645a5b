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

// A right that is taken away from the nodes' user while they run takes the pool out of service: jobs would run whose ends
// nobody can write. No attempt is charged, and all goes on when it is given back.
func TestP10ARightIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, right := range map[string]string{"to keep what has ended": "INSERT ON tenure.completed_job", "to end": "DELETE ON tenure.job"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			var ran atomic.Int64
			n := b.start(b.named("n"), b.registry(func(job.ID) { ran.Add(1) }))
			user, err := pgx.ParseConfig(b.cfg.Pools["p1"].DSN)
			require.NoError(t, err)
			enqueued := 0
			enqueue := func() {
				_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{enqueued})
				require.NoError(t, err)
				enqueued++
			}
			enqueue()
			b.finished(n.Client(), enqueued)
			b.exec("p1", "REVOKE "+right+" FROM "+user.User)
			enqueue()
			require.Eventually(t, func() bool { return n.Operator().Pools().Unfit()["p1"] != nil }, patience, time.Millisecond)
			require.ErrorContains(t, n.Operator().Pools().Unfit()["p1"], "GRANT")
			begun := ran.Load()
			db := b.db["p1"]
			_, err = db.Exec(t.Context(), "SELECT tenure.enqueue(tenant => 't1', kind => 'plain', payload => '{\"n\": 1}') FROM generate_series(1, 500)")
			require.NoError(t, err)
			time.Sleep(time.Second)
			require.Equal(t, begun, ran.Load(), "nothing more begins")
			b.exec("p1", "GRANT "+right+" TO "+user.User)
			b.finished(n.Client(), enqueued+500)
			require.Equal(t, int64(enqueued+500), ran.Load(), "each once")
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
