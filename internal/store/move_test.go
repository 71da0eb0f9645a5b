package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/tenancy"
)

// second returns another pool, numbered 2.
func second(t *testing.T) *pgxpool.Pool {
	p, err := pgxpool.New(context.Background(), storetest.DSN(t, "second", 2))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestFreezingVoidsWhatWasRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{Tenant: "globex"})
	before := b.page(t, 0)
	require.Len(t, before.Jobs, 2)
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", true))
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, request(before))
	require.ErrorIs(t, err, store.ErrFenced)

	after := b.page(t, 0) // finds no lane of acme, either
	require.Len(t, after.Jobs, 1)
	require.Equal(t, "globex", after.Jobs[0].Record.Tenant)
	require.Len(t, b.claim(t, after), 1)

	b.enqueue(t, store.NewJob{DueIn: 1})
	fired, err := store.FireTimers(t.Context(), b.db, b.fence, 10)
	require.NoError(t, err)
	require.Empty(t, fired)
	_, due, err := store.NextTimer(t.Context(), b.db)
	require.NoError(t, err)
	require.False(t, due)
	idle, _, err := store.RenewIdle(t.Context(), b.db, b.fence, ttl, ttl)
	require.NoError(t, err)
	require.Nil(t, idle.Due)
	require.True(t, idle.Waiting) // globex' job, although it runs
	_, err = b.db.Exec(t.Context(), "DELETE FROM tenure.job WHERE tenant_id = 'globex'")
	require.NoError(t, err)
	idle, _, err = store.RenewIdle(t.Context(), b.db, b.fence, ttl, ttl)
	require.NoError(t, err)
	require.False(t, idle.Waiting)

	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", false))
	require.Len(t, b.page(t, 0).Jobs, 1)
	idle, _, err = store.RenewIdle(t.Context(), b.db, b.fence, ttl, ttl)
	require.NoError(t, err)
	require.True(t, idle.Waiting)
	require.NotNil(t, idle.Due)
}

func TestEnqueueInEachState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	try := func(state string, j store.NewJob) error {
		_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', $1, 'p2') ON CONFLICT (tenant_id) DO UPDATE SET state = $1", state)
		require.NoError(t, err)
		j.Tenant, j.Queue, j.Kind, j.Payload = "acme", "default", "k", []byte("{}")
		_, _, err = store.Enqueue(t.Context(), b.db.QueryRow, 1, &j)
		many := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			return store.EnqueueMany(t.Context(), tx, 1, []store.NewJob{j})
		})
		require.Equal(t, err, many)
		return err
	}
	for name, j := range map[string]store.NewJob{"now": {}, "later": {DueIn: 1000}, "unique": {UniqueKey: "u"}} {
		require.NoError(t, try(store.TenantActive, j), name)
		require.NoError(t, try(store.TenantMoving, j), name)
		require.Equal(t, &tenancy.MovedError{Tenant: "acme", To: "p2"}, try(store.TenantMoved, j), name)
		if name == "unique" { // the job that has the key may not be here yet
			require.ErrorIs(t, try(store.TenantArriving, j), store.ErrTenantArrives)
		} else {
			require.NoError(t, try(store.TenantArriving, j), name)
		}
	}
	_, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 2, &store.NewJob{Tenant: "acme", Queue: "q", Kind: "k", Payload: []byte("{}")})
	require.ErrorIs(t, err, store.ErrWrongPool)
}

// A hold lasts until the tenant has moved or the move is given up, no matter who goes on with
// the move, and is another one's business in no later move.
func TestHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := func(want bool) {
		t.Helper()
		row, err := store.ReadTenant(t.Context(), b.db, "acme")
		require.NoError(t, err)
		require.Equal(t, want, row.Held)
		rows, err := store.TenantRows(t.Context(), b.db)
		require.NoError(t, err)
		require.Equal(t, []store.TenantRow{row}, rows)
	}
	begin := func() store.Move {
		t.Helper()
		m := store.Move{Tenant: "acme", Mover: uuid.New()}
		_, err := m.Begin(t.Context(), b.db, "second")
		require.NoError(t, err)
		return m
	}
	first := begin()
	held(false)
	require.NoError(t, first.Hold(t.Context(), b.db, true))
	held(true)
	second := begin()
	held(true)
	require.ErrorIs(t, first.Hold(t.Context(), b.db, false), store.ErrMoverReplaced)
	require.NoError(t, second.Abandon(t.Context(), b.db))
	held(false)
	require.ErrorIs(t, second.Hold(t.Context(), b.db, true), store.ErrMoverReplaced)

	third := begin()
	held(false)
	require.NoError(t, third.Hold(t.Context(), b.db, true))
	require.NoError(t, third.Close(t.Context(), b.db, "second"))
	held(false)
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.tenant SET state = 'active', held = true") // as a program of before leaves it that gives up
	require.NoError(t, err)
	held(false)
	begin()
	held(false)
}

// What a job may come with is not taken in while the tenant's data is being copied.
func TestEnqueueWhileHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	try := func(j store.NewJob) error {
		j.Tenant, j.Queue, j.Kind, j.Payload = "acme", "default", "k", []byte("{}")
		_, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, &j)
		return err
	}
	kinds := map[string]store.NewJob{"now": {}, "later": {DueIn: 1000}, "unique": {UniqueKey: "u"}}
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool, held) VALUES ('acme', 'active', 'p2', true)")
	require.NoError(t, err)
	for state, refused := range map[string]bool{store.TenantActive: false, store.TenantArriving: false, store.TenantMoving: true} {
		_, err := b.owner.Exec(t.Context(), "TRUNCATE tenure.unique_job; UPDATE tenure.tenant SET state = '"+state+"'")
		require.NoError(t, err)
		for name, j := range kinds {
			if state == store.TenantArriving && j.UniqueKey != "" {
				continue
			}
			require.NoError(t, try(j), "%s, %s", name, state)
			if j.UniqueKey != "" {
				j.UniqueKey = "v"
			}
			j.WithData = true
			if refused {
				require.Equal(t, &tenancy.HeldError{Tenant: "acme", To: "p2"}, try(j), name)
			} else {
				require.NoError(t, try(j), "%s, %s", name, state)
			}
		}
	}
}

// What is moved into a pool must not run there before it has left the other one, or it
// would come again.
func TestMoveOnlyToWhereNothingRuns(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	b.enqueue(t, store.NewJob{})
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	ends := store.Ends{From: b.db, To: to}
	anyway := func(context.Context) error { return nil }
	move := func(m store.Move) error { return m.Jobs(t.Context(), ends, anyway, func(string, int) {}) }
	_, err := m.Begin(t.Context(), b.db, "second")
	require.NoError(t, err)
	require.NoError(t, m.Take(t.Context(), to, store.TenantActive))
	require.ErrorIs(t, move(m), store.ErrMoverReplaced, "active")
	require.NoError(t, m.Arrive(t.Context(), to, "main", false))
	require.NoError(t, m.Close(t.Context(), b.db, "second"))

	later := store.Move{Tenant: "acme", Mover: uuid.New()}
	require.NoError(t, later.Take(t.Context(), b.db, store.TenantMoved))
	require.NoError(t, later.Take(t.Context(), to, store.TenantArriving))
	require.ErrorIs(t, move(m), store.ErrMoverReplaced, "replaced")
	require.ErrorIs(t, m.Open(t.Context(), to), store.ErrMoverReplaced)
	require.ErrorIs(t, m.Close(t.Context(), b.db, "second"), store.ErrMoverReplaced)
	require.Zero(t, counts(t, to).Waiting)
	require.NoError(t, move(later))
	require.NoError(t, later.Open(t.Context(), to))
	require.Zero(t, counts(t, b.db).Waiting)
	require.EqualValues(t, 1, counts(t, to).Waiting)

	left, err := store.LeftBehind(t.Context(), b.db)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = b.db.Exec(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'q', 'k', '{}'), ('globex', 'q', 'k', '{}')`)
	require.NoError(t, err)
	left, err = store.LeftBehind(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.TenantRow{{Tenant: "acme", State: store.TenantMoved, Other: "second"}}, left)
	require.ErrorIs(t, move(later), store.ErrMoverReplaced, "where the tenant runs already")
}

// closed begins to move acme, up to where its jobs can be moved.
func closed(t *testing.T, from, to *pgxpool.Pool) store.Move {
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	_, err := m.Begin(t.Context(), from, "second")
	require.NoError(t, err)
	require.NoError(t, m.Arrive(t.Context(), to, "main", false))
	require.NoError(t, m.Close(t.Context(), from, "second"))
	return m
}

// An id that another job has in the new pool, as a fail-over may leave it, stops a move
// before anything is lost.
func TestMoveOntoATakenID(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	id := b.enqueue(t, store.NewJob{})
	_, err := to.Exec(t.Context(), `INSERT INTO tenure.job (id, tenant_id, queue, kind, payload) VALUES ($1, 'acme', 'q', 'k', '{}')`, int64(id))
	require.NoError(t, err)
	m := closed(t, b.db, to)
	err = m.Jobs(t.Context(), store.Ends{From: b.db, To: to}, func(context.Context) error { return nil }, func(string, int) {})
	require.ErrorContains(t, err, "0 of 1 jobs stand in the new pool")
	require.EqualValues(t, 1, counts(t, b.db).Waiting)
}

// Order is kept, also across batches, and turns rise.
func TestMoveKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	_, err := b.db.Exec(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload, priority, turn)
		SELECT 'acme', 'default', 'k', jsonb_build_object('n', n), n % 2, 7 FROM generate_series(1, 2500) n ORDER BY n * 7919 % 2500`)
	require.NoError(t, err)
	const order = "SELECT payload->>'n' FROM tenure.job ORDER BY priority, position"
	read := func(db *pgxpool.Pool) []string {
		rows, err := db.Query(t.Context(), order)
		require.NoError(t, err)
		out, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return out
	}
	was := read(b.db)
	m := closed(t, b.db, to)
	n := 0
	require.NoError(t, m.Jobs(t.Context(), store.Ends{From: b.db, To: to}, func(context.Context) error { return nil }, func(_ string, k int) { n += k }))
	require.Equal(t, 2500, n)
	require.Equal(t, was, read(to))
	var turns int
	require.NoError(t, to.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job WHERE turn = 8").Scan(&turns))
	require.Equal(t, 2500, turns)
}

// Somebody wanted a run cancelled that failed instead, and the tenant is moved before the
// next one: it is still wanted there.
func TestMoveBringsCancelRequests(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	var ids []int64
	for range 2 {
		ids = append(ids, int64(b.enqueue(t, store.NewJob{DueIn: time.Hour})))
	}
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) SELECT unnest($1::bigint[])", ids[1:])
	require.NoError(t, err)
	m := closed(t, b.db, to)
	require.NoError(t, m.Jobs(t.Context(), store.Ends{From: b.db, To: to}, func(context.Context) error { return nil }, func(string, int) {}))
	for db, want := range map[*pgxpool.Pool][]int64{b.db: {}, to: ids[1:]} {
		rows, err := db.Query(t.Context(), "SELECT job_id FROM tenure.cancel_request")
		require.NoError(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
	}

	// A request that was committed late, beside one whose job has ended.
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) VALUES ($1), (99)", ids[0])
	require.NoError(t, err)
	require.NoError(t, store.ForgetCancelRequests(t.Context(), b.db)) // as the holder may just then
	require.NoError(t, m.LateCancels(t.Context(), store.Ends{From: b.db, To: to}))
	rows, _ := to.Query(t.Context(), "SELECT job_id FROM tenure.cancel_request")
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.ElementsMatch(t, ids, got)
	execute(t, b.db, "UPDATE tenure.cancel_request SET requested_at = now() - interval '11 minutes'")
	require.NoError(t, store.ForgetCancelRequests(t.Context(), b.db))
	var left int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.cancel_request").Scan(&left))
	require.Zero(t, left)
}

// What arrived last and still stands in a pool is removed from the others; what has gone on
// from there is not, or it would be nowhere. And only the mover does that.
func TestSettle(t *testing.T) {
	t.Parallel()
	here, there := storetest.Pool(t), storetest.Pool(t)
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	for _, db := range []*pgxpool.Pool{here, there} {
		_, err := db.Exec(t.Context(), `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
			SELECT id, now(), now(), 0, 0, 1, 0, 'acme', 'q', 'k', 'done', 'null' FROM generate_series(1, 3) id`)
		require.NoError(t, err)
	}
	_, err := here.Exec(t.Context(), "DELETE FROM tenure.completed_job WHERE id = 3")
	require.NoError(t, err)
	_, err = here.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, mover, arrived) VALUES ('acme', 'active', $1, '{2,3}')", m.Mover)
	require.NoError(t, err)
	others := map[string]store.DB{"there": there}
	require.ErrorIs(t, store.Move{Tenant: "acme", Mover: uuid.New()}.Settle(t.Context(), here, others), store.ErrMoverReplaced)
	ids := func(db *pgxpool.Pool) (ids []int64) {
		require.NoError(t, db.QueryRow(t.Context(), "SELECT array_agg(id ORDER BY id) FROM tenure.completed_job").Scan(&ids))
		return ids
	}
	require.Equal(t, []int64{1, 2, 3}, ids(there))
	require.NoError(t, m.Settle(t.Context(), here, others))
	require.Equal(t, []int64{1, 3}, ids(there))
	require.Equal(t, []int64{1, 2}, ids(here))
	var noted int
	require.NoError(t, here.QueryRow(t.Context(), "SELECT cardinality(arrived) FROM tenure.tenant").Scan(&noted))
	require.Zero(t, noted)
}
