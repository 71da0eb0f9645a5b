package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// deadLetter adds a dead letter with every column filled; set is SQL that changes it.
func (b *bundle) deadLetter(t *testing.T, set string, args ...any) job.ID {
	t.Helper()
	var id job.ID
	require.NoError(t, b.db.QueryRow(t.Context(), `INSERT INTO tenure.dead_letter_job (turn, timeout_ms, priority, attempt, max_attempts, losses,
		tenant_id, queue, kind, payload, meta, exclusive_key, correlation_id, origin, error, died_at)
		VALUES (7, 1500, 3, 5, 5, 2, 'acme', 'q', 'k', '{"n": 1}', '{"by": "me"}', 'x', 'c', 'job', 'Order 1 not found', now() - interval '1 hour')
		RETURNING id`).Scan(&id))
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.job_error (job_id, attempt, node, error) VALUES ($1, 5, 'a', 'Order 1 not found')", id)
	require.NoError(t, err)
	if set != "" {
		_, err = b.db.Exec(t.Context(), "UPDATE tenure.dead_letter_job SET "+set+" WHERE id = "+id.String(), args...)
		require.NoError(t, err)
	}
	return id
}

// dead reads the dead letters that f chooses, in pages of size.
func (b *bundle) dead(t *testing.T, f store.DeadFilter, size int) (all []store.Dead) {
	t.Helper()
	for last, more := store.BeforeAllJobs, true; more; {
		var page []store.Dead
		var now time.Time
		var err error
		page, last, more, now, err = store.ReadDead(t.Context(), b.db, f, last, size, 1000)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), now, time.Minute)
		require.LessOrEqual(t, len(page), size)
		all = append(all, page...)
	}
	return all
}

func idsOf(all []store.Dead) (ids []job.ID) {
	for _, d := range all {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestReadDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Empty(t, b.dead(t, store.DeadFilter{}, 2))
	one, two := b.deadLetter(t, ""), b.deadLetter(t, "tenant_id = 'b'")
	three, four := b.deadLetter(t, "kind = 'other'"), b.deadLetter(t, "error = 'TIMEOUT ' || repeat('é', 2000)")
	old := b.deadLetter(t, "died_at = now() - interval '1 year'")
	next, never := b.deadLetter(t, "tenant_id = 'ahead', died_at = now() + interval '1 day'"), b.deadLetter(t, "tenant_id = 'ahead', died_at = 'infinity'")
	for size := 1; size <= 8; size++ {
		for name, c := range map[string]struct {
			f    store.DeadFilter
			want []job.ID
		}{
			"all":    {store.DeadFilter{}, []job.ID{one, two, three, four, old, next, never}},
			"tenant": {store.DeadFilter{Tenant: "b"}, []job.ID{two}},
			"kind":   {store.DeadFilter{Kind: "other"}, []job.ID{three}},
			"error":  {store.DeadFilter{Error: "Timeout"}, []job.ID{four}},
			"before": {store.DeadFilter{Before: time.Now().Add(-24 * time.Hour)}, []job.ID{old}},
			"ahead":  {store.DeadFilter{Before: time.Now().Add(-24 * time.Hour), Ahead: true}, []job.ID{old, next, never}},
			"two":    {store.DeadFilter{Kind: "k", Error: "ORDER 1", Tenant: "acme"}, []job.ID{one, old}},
			"none":   {store.DeadFilter{Error: "%"}, nil},
		} {
			require.ElementsMatch(t, c.want, idsOf(b.dead(t, c.f, size)), "%s in pages of %d", name, size)
		}
	}
	shown := b.dead(t, store.DeadFilter{Kind: "k", Error: "timeout"}, 10)[0]
	require.Equal(t, "TIMEOUT "+strings.Repeat("é", 992), shown.Error)
	require.Equal(t, int32(7), shown.Turn)
}

// What cannot be retried, or must not, stays as it is.
func TestRetryDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.enqueue(t, store.NewJob{UniqueKey: "taken"})
	plain, free := b.deadLetter(t, ""), b.deadLetter(t, "unique_key = 'free'")
	first, second := b.deadLetter(t, "unique_key = 'both'"), b.deadLetter(t, "unique_key = 'both'")
	taken := b.deadLetter(t, "unique_key = 'taken'")
	moved, locked, changed := b.deadLetter(t, "tenant_id = 'gone'"), b.deadLetter(t, ""), b.deadLetter(t, "")
	b.request(t, plain)
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('gone', 'moved', 'p9')")
	require.NoError(t, err)
	seen := b.dead(t, store.DeadFilter{}, 100)
	require.Len(t, seen, 8)
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.dead_letter_job SET turn = turn + 2 WHERE id = $1", int64(changed))
	require.NoError(t, err)
	unlock := b.locks(t, "SELECT FROM tenure.dead_letter_job WHERE id = $1 FOR UPDATE", int64(locked))

	lanes, keyTaken, err := store.RetryDead(t.Context(), b.db, seen)
	require.NoError(t, err)
	lane := store.Lane{Tenant: "acme", Queue: "q", Priority: 3}
	require.Equal(t, []store.Lane{lane, lane, lane}, lanes)
	require.Equal(t, 2, keyTaken, "the second of both, and the one whose key a job has")
	unlock()
	require.ElementsMatch(t, []job.ID{second, taken, moved, locked, changed}, idsOf(b.dead(t, store.DeadFilter{}, 100)))
	for _, id := range []job.ID{plain, free, first} {
		require.Equal(t, "waiting", b.state(t, id))
	}
	asked := b.requests(t)
	require.Empty(t, asked, "who retries a job wants it to run")
	var row string
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT to_jsonb(j) - 'id' - 'position' - 'created_at' - 'ready_at' FROM tenure.job j WHERE id = $1`, int64(free)).Scan(&row))
	require.JSONEq(t, `{"turn": 8, "timeout_ms": 1500, "priority": 3, "attempt": 0, "max_attempts": 5, "losses": 0, "tenant_id": "acme", "queue": "q", "kind": "k",
		"payload": {"n": 1}, "meta": {"by": "me"}, "exclusive_key": "x", "unique_key": "free", "correlation_id": "c"}`, row)

	lanes, keyTaken, err = store.RetryDead(t.Context(), b.db, seen)
	require.NoError(t, err)
	require.Len(t, lanes, 1, "only the one that was locked: nothing is retried twice")
	require.Equal(t, 2, keyTaken)
	require.Equal(t, "waiting", b.state(t, holder))
}

// The oldest dead letters go first, and none of a tenant between two pools keeps others from going.
func TestTrimDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	young := b.deadLetter(t, "died_at = now() - interval '50 min'")
	old, older := b.deadLetter(t, "died_at = now() - interval '2 h'"), b.deadLetter(t, "died_at = now() - interval '3 h'")
	moved := b.deadLetter(t, "died_at = now() - interval '4 h', tenant_id = 'gone'")
	execute(t, b.owner, "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('gone', 'arriving', 'p9')")
	for _, left := range [][]job.ID{{young, old, moved}, {young, moved}, {young, moved}} {
		n, err := store.TrimDead(t.Context(), b.db, time.Hour, 1)
		require.NoError(t, err)
		require.ElementsMatch(t, left, idsOf(b.dead(t, store.DeadFilter{}, 100)), "%d after %d", older, n)
	}
}

func TestDeleteDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone, moved, locked, changed := b.deadLetter(t, "unique_key = 'u'"), b.deadLetter(t, "tenant_id = 'gone'"), b.deadLetter(t, ""), b.deadLetter(t, "")
	b.request(t, gone)
	execute(t, b.owner, "INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at) SELECT id, 1, 1, 'n', now() FROM tenure.dead_letter_job")
	next := b.enqueue(t, store.NewJob{UniqueKey: "u"})
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('gone', 'arriving', 'p9')")
	require.NoError(t, err)
	seen := b.dead(t, store.DeadFilter{}, 100)
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.dead_letter_job SET turn = turn + 2 WHERE id = $1", int64(changed))
	require.NoError(t, err)
	unlock := b.locks(t, "SELECT FROM tenure.dead_letter_job WHERE id = $1 FOR UPDATE", int64(locked))
	n, err := store.DeleteDead(t.Context(), b.db, seen)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	unlock()
	require.ElementsMatch(t, []job.ID{moved, locked, changed}, idsOf(b.dead(t, store.DeadFilter{}, 100)))
	require.Equal(t, store.Counts{Waiting: 1, Dead: 3}, counts(t, b.db))
	runs, err := store.Errors(t.Context(), b.db, gone)
	require.NoError(t, err)
	require.Empty(t, runs)
	require.Empty(t, b.reports(t, gone))
	require.Len(t, b.reports(t, locked), 1)
	asked := b.requests(t)
	require.Empty(t, asked)
	require.Equal(t, next, b.enqueue(t, store.NewJob{UniqueKey: "u"}), "the key is still that of the job that took it")
}
