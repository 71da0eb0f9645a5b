package promises_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// TestP10ADamagedJobStopsNobody: of a waiting job and a due timer storage has lost a part, and the
// database gives its clients an encoding that cannot say what a third one says. All others of all tenants
// run, the lock stays where it is, the log names each of the two once, and they are listed and cancelled.
func TestP10ADamagedJobStopsNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	add := func(table, tenant, payload, more, value string) (id job.ID) {
		require.NoError(t, b.db["p1"].QueryRow(t.Context(), "INSERT INTO tenure."+table+" (tenant_id, queue, kind, payload"+more+") VALUES ($1, 'default', 'plain', $2"+value+") RETURNING id", tenant, payload).Scan(&id))
		return id
	}
	b.exec("p1", `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET client_encoding = LATIN1', current_database()); END $$`)
	var lost []job.ID
	for i := range 20 {
		tenant := []string{"t1", "t2"}[i%2]
		waits, timer := add("job", tenant, `{"n": 1, "price": "€"}`, "", ""), add("timer_job", tenant, `{"n": 1}`, ", due_at", ", clock_timestamp()")
		if i == 7 {
			lost = []job.ID{waits, timer}
			storetest.Damage(t, b.db["p1"], "job", waits)
			storetest.Damage(t, b.db["p1"], "timer_job", timer)
		}
	}
	n := b.start(b.named("a"), b.registry(nil))
	n.holds("p1")
	epoch := b.count("p1", "SELECT epoch FROM tenure.acquire_lock")
	b.eventually(38, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'")
	for _, id := range lost {
		require.Eventually(t, func() bool { return b.log.says("a job cannot be read", id.String()) }, patience, 10*time.Millisecond)
	}
	stop := b.feed(t.Context(), "p1")
	b.flows("p1")
	stop()

	op := n.Operator()
	left := 0
	for _, state := range []string{"waiting", "scheduled"} {
		jobs, err := op.Jobs(t.Context(), tenure.JobFilter{State: state})
		require.NoError(t, err)
		for _, j := range jobs {
			if j.ID == lost[0] || j.ID == lost[1] {
				require.Contains(t, string(j.Payload), "unexpected chunk number")
				left++
			}
		}
	}
	require.Equal(t, 2, left)
	for _, id := range lost {
		_, err := op.Cancel(t.Context(), id)
		require.NoError(t, err)
	}
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled' AND payload ? 'tenure:damaged'")
	require.Equal(t, 2, b.log.count("a job cannot be read"), "each once")
	require.Equal(t, epoch, b.count("p1", "SELECT epoch FROM tenure.acquire_lock"), "the lock was never lost")
}
