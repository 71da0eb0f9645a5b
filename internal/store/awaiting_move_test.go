package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A batch moves so many rows at a time, however large it is, and whatever interrupts that; meanwhile
// nothing can be linked to what may not have come yet.
func TestMovingABatchInSteps(t *testing.T) {
	t.Parallel()
	b, to, ctx := awaited(t), second(t), t.Context()
	batch := b.enqueue(t, store.NewJob{Links: &store.Links{Batch: true}})
	execute(t, b.owner, "INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id) SELECT 'acme', $1, 1000000 + n FROM generate_series(1, 1500) n", int64(batch))
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	_, err := m.Begin(ctx, b.db, "second")
	require.NoError(t, err)
	require.NoError(t, m.Arrive(ctx, to, "main", false))
	require.NoError(t, m.Close(ctx, b.db, "second"))
	stands := func(db store.DB) (n [3]int) {
		t.Helper()
		require.NoError(t, db.QueryRow(ctx, "SELECT (SELECT count(*) FROM tenure.awaiting), (SELECT count(*) FROM tenure.awaited), (SELECT count(*) FROM tenure.awaited_end)").Scan(&n[0], &n[1], &n[2]))
		return n
	}
	interrupted := errors.New("interrupted")
	begun := 0
	move := func(steps int) error {
		return m.Jobs(ctx, store.Ends{From: b.db, To: to}, func(context.Context) error {
			if begun++; begun > steps {
				return interrupted
			}
			return nil
		}, func(string, int) {})
	}
	require.ErrorIs(t, move(1), interrupted)
	require.Equal(t, [3]int{1, 500, 1}, stands(b.db))
	require.Equal(t, [3]int{1, 1000, 0}, stands(to))

	id, _, err := store.Enqueue(ctx, to.QueryRow, 2, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{Batch: true}})
	require.NoError(t, err, "a new batch")
	for _, l := range []store.Links{{In: int64(batch)}, {After: []int64{int64(id)}}, {After: []int64{99}}} {
		_, _, err := store.Enqueue(ctx, to.QueryRow, 2, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &l})
		require.ErrorIs(t, err, store.ErrTenantArrives)
	}
	_, err = to.Exec(ctx, "SELECT tenure.enqueue_linked('acme', 'k', in_batch => $1)", int64(batch))
	require.Equal(t, "55000", code(err), "%v", err)

	require.NoError(t, move(1000))
	require.Equal(t, [3]int{}, stands(b.db))
	require.Equal(t, [3]int{2, 1500, 2}, stands(to))
	require.NoError(t, m.Open(ctx, to))
	_, _, err = store.Enqueue(ctx, to.QueryRow, 2, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{In: int64(batch)}})
	require.NoError(t, err)

	left, err := store.LeftBehind(ctx, b.db)
	require.NoError(t, err)
	require.Empty(t, left)
	execute(t, b.owner, "INSERT INTO tenure.awaiting (job_id, tenant_id, on_failure, batch) VALUES (7, 'acme', 'wait', true), (8, 'globex', 'wait', true)")
	left, err = store.LeftBehind(ctx, b.db)
	require.NoError(t, err)
	require.Equal(t, []store.TenantRow{{Tenant: "acme", State: store.TenantMoved, Other: "second"}}, left, "as by a program that does not know of batches")
}

// What SQL says of links is held to the same bounds as what Go says, and refused with an error that
// tells what is wrong; here in a tenant's role.
func TestLinksBySQL(t *testing.T) {
	t.Parallel()
	_, conn := asTenants(t)
	ctx := t.Context()
	execute(t, conn, "SET ROLE "+roleAcme)
	add := func(args string) (id job.ID, err error) {
		err = conn.QueryRow(ctx, "SELECT id FROM tenure.enqueue_linked('acme', 'k'"+args+")").Scan(&id)
		return id, err
	}
	batch, err := add(", as_batch => true, on_failure => 'run'")
	require.NoError(t, err)
	_, err = add(", in_batch => " + batch.String())
	require.NoError(t, err)
	_, err = add(", after_jobs => NULL, as_batch => NULL")
	require.NoError(t, err)
	_, err = add(", after_jobs => '{" + batch.String() + "}'")
	require.NoError(t, err)
	for args, want := range map[string]string{
		", after_jobs => ARRAY(SELECT generate_series(1, 1001))":         "after_jobs: at most 1000 are allowed",
		", after_jobs => '{1,NULL}'":                                     "after_jobs: ids of jobs are above 0",
		", after_jobs => '{1,-3}'":                                       "after_jobs: ids of jobs are above 0",
		", in_batch => 0":                                                "in_batch: ids of batches are above 0",
		", on_failure => 'retry', as_batch => true":                      "on_failure: wait, cancel and run are allowed",
		", on_failure => 'run'":                                          "on_failure: it is for jobs with after_jobs or as_batch",
		", as_batch => true, delay => '1 s'":                             "cannot have a time as well",
		", after_jobs => '{1}', run_at => '2030-01-01'":                  "cannot have a time as well",
		", as_batch => true, unique_for => '1 s'":                        "unique_for: a unique_key is needed",
		", after_jobs => '{99}'":                                         "tenant acme has no job 99 to start after",
		", in_batch => 99":                                               "job 99 is not the completion job of an open batch of tenant acme",
		", as_batch => true, in_batch => 99, unique_key => 'not taken'":  "job 99 is not the completion job",
		", after_jobs => '{99}', tags => '{a}', correlation_id => 'one'": "tenant acme has no job 99",
	} {
		_, err := add(args)
		require.ErrorContains(t, err, want, args)
		require.Contains(t, []string{"22023", "TN007"}, code(err))
	}
	_, err = conn.Exec(ctx, "SELECT tenure.enqueue_linked('globex', 'k', as_batch => true)")
	require.Equal(t, "42501", code(err))
}
