package promises_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/tenancy"
)

// TestSequencesThatHaveFallenBack: rows are restored into a ledger that runs, or it is a
// replica that was switched over to. Anyone who holds the lock finds out that the sequences
// are behind, sets them ahead, says so, and goes on.
func TestSequencesThatHaveFallenBack(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	first := b.start(b.cfg, b.registry(nil)) // with it an incarnation has begun
	first.holds("p1")
	first.stop()
	b.exec("p1", "INSERT INTO tenure.job (id, position, tenant_id, queue, kind, payload) SELECT (1::bigint << 47) + n, n, 't1', 'default', 'nobody handles this', '1' FROM generate_series(1, 20) n")
	n := b.start(b.cfg, b.registry(nil))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.job_id, tenure.job_position WHERE job_id.last_value > (1::bigint << 47) + 20 AND job_position.last_value > 20")
	require.Eventually(t, func() bool { return b.log.says("sequences of the ledger had fallen back") }, patience, time.Millisecond)
	entries := make([]tenure.Entry, 30)
	for i := range entries {
		entries[i].Args = plain{i}
	}
	_, err := n.Client().EnqueueMany(tenancy.For(t.Context(), "t1"), entries)
	require.NoError(t, err)
	b.eventually(30, "p1", "SELECT count(*) FROM tenure.completed_job")
}
