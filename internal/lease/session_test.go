package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A sweep removes what the session does not know of, and spares a claim whose answer is
// on its way.
func TestSweepSparesWhatIsBeingMade(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	s := b.session()
	insert := func(given, started bool) (id int64) {
		require.NoError(t, b.db.QueryRow(t.Context(), "INSERT INTO tenure.claim (session_id, turn, job_ids, given, started_at) VALUES ($1, 0, '{1}', $2, CASE WHEN $3 THEN now() END) RETURNING id",
			s.id, given, started).Scan(&id))
		return id
	}
	sweep := func() int {
		n, err := s.Sweep(t.Context(), b.db, patience)
		require.NoError(t, err)
		return n
	}
	known, waiting := insert(false, true), insert(true, false)
	s.completer.openClaim(known, 1)
	insert(false, true)
	insert(true, true)
	require.Equal(t, 2, sweep())
	require.Zero(t, sweep())
	b.eventually(2, "SELECT count(*) FROM tenure.claim WHERE id = ANY($1)", []int64{known, waiting})

	done := s.pending.beginClaim()
	_, err := s.Sweep(t.Context(), b.db, time.Millisecond)
	require.ErrorIs(t, err, errClaimPending)
	coming := insert(false, true)
	swept := make(chan int)
	go func() { swept <- sweep() }()
	s.completer.openClaim(coming, 1)
	done()
	require.Zero(t, <-swept)
	b.eventually(1, "SELECT count(*) FROM tenure.claim WHERE id = $1", coming)
}
