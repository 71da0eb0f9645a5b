package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestPageShowsWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{Tenant: "globex", Queue: "mail", Priority: -3, MaxAttempts: 7, Meta: []byte(`{"m": true}`), CorrelationID: "c", UniqueKey: "u"})
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{Kind: "unknown"})
	require.Equal(t, 1, store.PoolOf(int64(id)))

	p := b.page(t, 0)
	require.Len(t, p.Jobs, 2)
	r := p.Jobs[1].Record
	require.Equal(t, id, r.ID)
	require.Equal(t, "globex", r.Tenant)
	require.Equal(t, "mail", r.Queue)
	require.EqualValues(t, -3, r.Priority)
	require.Equal(t, 1, r.Attempt)
	require.Equal(t, 7, r.MaxAttempts)
	require.JSONEq(t, `{"n": 1}`, string(r.Payload))
	require.JSONEq(t, `{"m": true}`, string(r.Meta))
	require.Equal(t, "c", r.CorrelationID)
	require.Equal(t, "u", r.UniqueKey)
	require.WithinDuration(t, time.Now(), r.CreatedAt, time.Minute)
	require.LessOrEqual(t, p.Jobs[1].Position, p.Position)
}

func TestCopyEqualsInsert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs := []store.NewJob{
		{Tenant: "a", Queue: "q", Kind: "k", Payload: []byte(`{"x":"é"}`), Meta: []byte(`{}`), Priority: 5, MaxAttempts: 3, CorrelationID: "c"},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`[1]`)},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`1`), DueIn: time.Hour},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`2`), DueAt: time.Date(2040, 1, 2, 3, 4, 5, 6000, time.UTC)},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`3`), UniqueKey: "u"},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`3`), UniqueKey: "u"},
	}
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		return store.EnqueueMany(t.Context(), tx, 1, jobs)
	})
	require.NoError(t, err)
	require.True(t, jobs[5].Taken)
	require.Equal(t, jobs[4].ID, jobs[5].ID)
	all, err := store.List(t.Context(), b.db, store.Filter{Limit: 10})
	require.NoError(t, err)
	var ids []job.ID
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	require.ElementsMatch(t, []job.ID{jobs[0].ID, jobs[1].ID, jobs[2].ID, jobs[3].ID, jobs[4].ID}, ids)
	p := b.page(t, 0)
	require.Equal(t, jobs[0].ID, p.Jobs[0].Record.ID)
	require.Len(t, p.Jobs, 3)
	require.JSONEq(t, `{"x":"é"}`, string(p.Jobs[0].Record.Payload))
	require.EqualValues(t, 5, p.Jobs[0].Record.Priority)
	require.Equal(t, 3, p.Jobs[0].Record.MaxAttempts)
	later, err := store.List(t.Context(), b.db, store.Filter{State: "scheduled", Limit: 10})
	require.NoError(t, err)
	require.Len(t, later, 2)
	require.WithinDuration(t, time.Now().Add(time.Hour), later[1].At, time.Minute)
	require.True(t, later[0].At.Equal(jobs[3].DueAt), later[0].At)

	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		return store.EnqueueMany(t.Context(), tx, 2, jobs)
	})
	require.ErrorIs(t, err, store.ErrWrongPool)
	_, _, err = store.Enqueue(t.Context(), b.db.QueryRow, 2, &jobs[0])
	require.ErrorIs(t, err, store.ErrWrongPool)
}

// Jobs with an exclusive key run in the order in which they are given, whatever else they have: their positions say so,
// and their ids, by which dead ones are tried again.
func TestManyJobsWithAKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := store.NewJob{Tenant: "a", Queue: "q", Kind: "k", Payload: []byte(`{}`), ExclusiveKey: "x"}
	unique, tagged := plain, plain
	unique.UniqueKey = "u"
	tagged.Meta, tagged.Tagged = []byte(`{"tags":["t"]}`), true
	jobs := []store.NewJob{plain, unique, plain, tagged, plain}
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return store.EnqueueMany(t.Context(), tx, 1, jobs) }))
	var given []job.ID
	for i := range jobs {
		given = append(given, jobs[i].ID)
	}
	for _, by := range []string{"position", "id"} {
		rows, _ := b.db.Query(t.Context(), "SELECT id FROM tenure.job ORDER BY "+by)
		got, err := pgx.CollectRows(rows, pgx.RowTo[job.ID])
		require.NoError(t, err)
		require.Equal(t, given, got, by)
	}
}

// By the simple protocol what is sent at a time is read for each of the jobs.
func TestLargeJobsAreSentFewAtATime(t *testing.T) {
	t.Parallel()
	of := func(n, bytes int) []store.NewJob {
		return slices.Repeat([]store.NewJob{{Payload: make([]byte, bytes)}}, n)
	}
	require.Equal(t, 7, store.CountTogether(of(7, 10)))
	require.Equal(t, 50, store.CountTogether(of(60, 10)))
	require.Equal(t, 3, store.CountTogether(of(60, 10<<10)))
	require.Equal(t, 1, store.CountTogether(of(60, 256<<10)))
}
