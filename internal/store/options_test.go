package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A job has the timeout it was given, whichever way it is added, and whether it waits or is for later.
func TestEnqueueKeepsTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := func(timeout time.Duration, later bool) store.NewJob {
		j := store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Timeout: timeout}
		if later {
			j.DueIn = time.Hour
		}
		return j
	}
	for i, later := range []bool{false, true} {
		j := one(time.Duration(1500+i)*time.Millisecond, later)
		b.enqueue(t, j)
		require.NoError(t, pgx.BeginFunc(t.Context(), b.owner, func(tx pgx.Tx) error {
			return store.EnqueueMany(t.Context(), tx, 1, []store.NewJob{one(time.Duration(2500+i)*time.Millisecond, later), one(0, later)})
		}))
		execute(t, b.db, "SELECT tenure.enqueue('acme', 'k', timeout => $1::text::interval, delay => CASE WHEN $2 THEN interval '1 hour' END)", fmt.Sprintf("%d ms", 3500+i), later)
	}
	j := one(4500*time.Millisecond, false)
	r, claim, err := store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, &j)
	require.NoError(t, err)
	require.NotZero(t, claim)
	require.Equal(t, 4500*time.Millisecond, r.Timeout, "it starts without being read")
	for table, want := range map[string][]int{"job": {0, 1500, 2500, 3500, 4500}, "timer_job": {0, 1501, 2501, 3501}} {
		rows, err := b.owner.Query(t.Context(), "SELECT coalesce(timeout_ms, 0) FROM tenure."+table+" ORDER BY 1")
		require.NoError(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		require.Equal(t, want, got, table)
	}
	for _, timeout := range []string{"0", "-1 s", "1 month"} {
		_, err = b.db.Exec(t.Context(), "SELECT tenure.enqueue('acme', 'k', timeout => $1::text::interval)", timeout)
		require.ErrorContains(t, err, "enqueue: timeout: 1 ms to 24 days are allowed", timeout)
	}
	listed, err := store.List(t.Context(), b.db, store.Filter{ID: r.ID, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 4500*time.Millisecond, listed[0].Timeout)
}

// unique is a job with a unique key.
func unique(key string, period time.Duration) *store.NewJob {
	return &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), UniqueKey: key, UniqueFor: period}
}

// finishAll ends all waiting jobs.
func (b *bundle) finishAll(t *testing.T) {
	t.Helper()
	p := b.page(t, 0)
	var claims []int64
	for _, c := range b.claim(t, p) {
		claims = append(claims, c)
	}
	ends := make([]store.Finished, len(p.Jobs))
	for i := range p.Jobs {
		ends[i] = store.Finished{Record: &p.Jobs[i].Record, Outcome: job.Outcome{State: job.Done}}
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, ends, claims)
	require.NoError(t, err)
	require.Zero(t, lost)
}

// A key that is taken for a period is free when that is over, and its job has ended, not before.
func TestAKeyIsTakenForAPeriod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(j *store.NewJob) (job.ID, bool) {
		t.Helper()
		id, duplicate, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, j)
		require.NoError(t, err)
		return id, duplicate
	}
	first, duplicate := add(unique("u", time.Hour))
	require.False(t, duplicate)
	again := func(j *store.NewJob, why string) {
		t.Helper()
		id, duplicate := add(j)
		require.True(t, duplicate, why)
		require.Equal(t, first, id, why)
	}
	again(unique("u", time.Hour), "it is unfinished")
	b.finishAll(t)
	again(unique("u", time.Hour), "its period is not over")
	again(unique("u", 0), "the key is taken, whichever way it is wanted")
	execute(t, b.db, "DELETE FROM tenure.completed_job")
	again(unique("u", time.Second), "also when nothing is left of the job")
	other := unique("u", time.Hour)
	other.Tenant = "globex"
	_, duplicate = add(other)
	require.False(t, duplicate, "another tenant's key")
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		jobs := []store.NewJob{*unique("u", 0), *unique("v", time.Hour)}
		err := store.EnqueueMany(t.Context(), tx, 1, jobs)
		require.True(t, jobs[0].Taken && !jobs[1].Taken)
		return err
	}))

	execute(t, b.db, "UPDATE tenure.unique_period SET free_at = now() WHERE tenant_id = 'acme'")
	second, duplicate := add(unique("u", time.Hour))
	require.False(t, duplicate, "the period is over")
	require.NotEqual(t, first, second)
	execute(t, b.db, "UPDATE tenure.unique_period SET free_at = now() WHERE tenant_id = 'acme'")
	first = second
	again(unique("u", time.Hour), "it is unfinished, though its period is over")

	n, err := store.TrimPeriods(t.Context(), b.db, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = store.TrimPeriods(t.Context(), b.db, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	var left []string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT array_agg(tenant_id) FROM tenure.unique_period").Scan(&left))
	require.Equal(t, []string{"globex"}, left, "its period goes on")

	for args, says := range map[string]string{
		"unique_for => '1 hour'":                                      "enqueue: unique_for: a unique_key is needed",
		"unique_key => 'k', unique_for => '0'":                        "enqueue: unique_for: 1 second to 3660 days",
		"unique_key => 'k', unique_for => '300000 years'":             "enqueue: unique_for: 1 second to 3660 days",
		"unique_key => 'k', tags => '{}', meta => '[1]'":              "",
		"tags => ARRAY['']":                                           "enqueue: tags: at most 16, each of 1 to 64 bytes",
		"tags => ARRAY['a', NULL]":                                    "enqueue: tags: at most 16, each of 1 to 64 bytes",
		"tags => ARRAY(SELECT n::text FROM generate_series(1, 17) n)": "enqueue: tags: at most 16, each of 1 to 64 bytes",
		"tags => ARRAY[repeat('x', 65)]":                              "enqueue: tags: at most 16, each of 1 to 64 bytes",
		"tags => ARRAY['a'], meta => '[1]'":                           "enqueue: meta: an object is needed beside tags",
		`meta => '{"tenure:tags": 1}'`:                                "enqueue: tags: meta is an object",
		`tags => ARRAY['a'], meta => '{"tenure:tags": "x"}'`:          "", // those that are given hold
	} {
		_, err := b.db.Exec(t.Context(), "SELECT tenure.enqueue('acme', 'k', "+args+")")
		if says == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, says, args)
		require.Equal(t, "22023", code(err), args)
	}
}

// Who waits for a key while its job begins a period and ends gets that job, and keeps no key.
func TestAPeriodThatBeginsMeanwhileIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	execute(t, tx, "INSERT INTO tenure.unique_job VALUES ('acme', 'u', 7)")
	type answer struct {
		id        job.ID
		duplicate bool
		err       error
	}
	answers := make(chan answer, 1)
	go func() {
		id, duplicate, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, unique("u", time.Hour))
		answers <- answer{id, duplicate, err}
	}()
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
		return waits
	}, 30*time.Second, 5*time.Millisecond)
	execute(t, tx, "INSERT INTO tenure.unique_period VALUES ('acme', 'u', 7, now() + interval '1 hour')")
	execute(t, tx, "DELETE FROM tenure.unique_job")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, answer{id: 7, duplicate: true}, <-answers)
	var left int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.unique_job").Scan(&left))
	require.Zero(t, left)
}

// In a transaction that does not see that a period has begun since it began, the key is taken by nobody else:
// it fails as conflicts do.
func TestAPeriodThatCannotBeSeenIsAConflict(t *testing.T) {
	t.Parallel()
	for _, period := range []time.Duration{0, time.Hour} {
		for _, was := range []string{"no period", "one that is over"} {
			b := setup(t)
			if was != "no period" {
				b.enqueue(t, *unique("u", time.Hour))
				b.finishAll(t)
				execute(t, b.db, "UPDATE tenure.unique_period SET free_at = now()")
			}
			tx, err := b.owner.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			defer tx.Rollback(context.Background())
			execute(t, tx, "SELECT FROM tenure.job") // so much for what it sees
			b.enqueue(t, *unique("u", time.Hour))
			b.finishAll(t)
			_, _, err = store.Enqueue(t.Context(), tx.QueryRow, 1, unique("u", period))
			require.Equal(t, "40001", code(err), "%s, for %v: %v", was, period, err)
		}
	}
	b := setup(t)
	require.NoError(t, pgx.BeginTxFunc(t.Context(), b.owner, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		for _, again := range []bool{false, true} {
			_, duplicate, err := store.Enqueue(t.Context(), tx.QueryRow, 1, unique("u", 0))
			require.NoError(t, err)
			require.Equal(t, again, duplicate)
		}
		return nil
	}))
	b.finishAll(t)
	_, duplicate, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, unique("u", 0))
	require.NoError(t, err)
	require.False(t, duplicate, "the key is taken for no longer than its job")
}

// A transaction that is stricter than READ COMMITTED takes a unique key as long as its job is there, however far the
// clock is set back after that.
func TestAStrictTransactionTakesAKeyForNoTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var id job.ID
	require.NoError(t, pgx.BeginTxFunc(t.Context(), b.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
		id, _, err = store.Enqueue(t.Context(), tx.QueryRow, 1, &store.NewJob{Tenant: "acme", Kind: "k", Queue: "default", Payload: []byte(`{}`), UniqueKey: "u"})
		return err
	}))
	b.finishAll(t)
	execute(t, b.owner, "UPDATE tenure.unique_period SET free_at = free_at + interval '1 day'") // as the clock shows it that was set back
	require.NotEqual(t, id, b.enqueue(t, store.NewJob{UniqueKey: "u"}))
}

// tagged is a job with tags, as package tenure puts them into its meta.
func tagged(t *testing.T, tags ...string) store.NewJob {
	meta, err := jobmeta.SetTags(nil, tags)
	require.NoError(t, err)
	return store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Meta: meta, Tagged: true}
}

// byTag lists the ids of jobs.
func byTag(t *testing.T, db store.DB, f store.Filter) (ids []job.ID) {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	found, err := store.List(t.Context(), db, f)
	require.NoError(t, err)
	for _, j := range found {
		ids = append(ids, j.ID)
	}
	return ids
}

// Jobs are found by their tags and correlation ids wherever they stand, until nothing is left of them.
func TestJobsAreFoundByTags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	later := tagged(t, "import", "eu")
	later.DueIn, later.CorrelationID = time.Hour, "order-1"
	first := b.enqueue(t, tagged(t, "import", "eu"))
	second := b.enqueue(t, later)
	var third job.ID
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT id FROM tenure.enqueue('globex', 'k', tags => ARRAY['import', 'us', 'us'], meta => '{\"by\": \"me\"}')").Scan(&third))
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		other := tagged(t)
		other.Meta, other.Tagged = nil, false
		return store.EnqueueMany(t.Context(), tx, 1, []store.NewJob{tagged(t, "many"), other})
	}))
	require.ElementsMatch(t, []job.ID{first, second, third}, byTag(t, b.db, store.Filter{Tags: []string{"import"}}))
	require.ElementsMatch(t, []job.ID{first, second}, byTag(t, b.db, store.Filter{Tags: []string{"import", "eu"}}))
	require.Equal(t, []job.ID{third}, byTag(t, b.db, store.Filter{Tags: []string{"import"}, Tenant: "globex"}))
	require.Equal(t, []job.ID{second}, byTag(t, b.db, store.Filter{Tags: []string{"import"}, State: "scheduled"}))
	require.ElementsMatch(t, []job.ID{first, third}, byTag(t, b.db, store.Filter{Tags: []string{"import"}, State: "waiting"}))
	for _, none := range []string{"claimed", "running", "locked", "retrying", "awaiting", "suspended", "dead", "done", "business_error", "cancelled"} {
		require.Empty(t, byTag(t, b.db, store.Filter{Tags: []string{"import"}, State: none}), none)
	}
	require.Equal(t, []job.ID{third}, byTag(t, b.db, store.Filter{Tags: []string{"import"}, Limit: 1}), "the newest")
	require.Equal(t, []job.ID{second}, byTag(t, b.db, store.Filter{CorrelationID: "order-1"}))
	require.Len(t, byTag(t, b.db, store.Filter{Tags: []string{"many"}}), 1)
	require.Empty(t, byTag(t, b.db, store.Filter{Tags: []string{"none"}}))
	require.Empty(t, byTag(t, b.db, store.Filter{Tags: []string{"many", "import"}}), "no job has both")
	found, err := store.List(t.Context(), b.db, store.Filter{ID: third, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, []string{"import", "us"}, jobmeta.Tags(found[0].Meta))
	require.Contains(t, string(found[0].Meta), `"by": "me"`)

	b.finishAll(t)
	require.ElementsMatch(t, []job.ID{first, third}, byTag(t, b.db, store.Filter{Tags: []string{"import"}, State: "done"}), "they are kept")

	// What is left of jobs that are gone is removed, step by step.
	trim := func() {
		t.Helper()
		for at := (store.TagPlace{}); ; {
			last, err := store.TrimTags(t.Context(), b.db, at, 2, time.Hour)
			require.NoError(t, err)
			if at = last; at == (store.TagPlace{}) {
				return
			}
		}
	}
	tags := func() (n int) {
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job_tag").Scan(&n))
		return n
	}
	gone := func() (ids []job.ID) {
		rows, err := b.db.Query(t.Context(), "SELECT DISTINCT job_id FROM tenure.job_tag WHERE gone_at IS NOT NULL")
		require.NoError(t, err)
		ids, err = pgx.CollectRows(rows, pgx.RowTo[job.ID])
		require.NoError(t, err)
		return ids
	}
	many := byTag(t, b.db, store.Filter{Tags: []string{"many"}})
	require.Equal(t, 7, tags())
	require.Empty(t, gone())
	trim()
	require.ElementsMatch(t, append(many, first, third), gone(), "they are finished")
	trim()
	require.Equal(t, 7, tags(), "they are kept")
	execute(t, b.db, "UPDATE tenure.job_tag SET gone_at = now() - interval '24.9 hours' WHERE job_id = $1", third)
	trim()
	require.Equal(t, 7, tags(), "they may be kept still")
	execute(t, b.db, "UPDATE tenure.job_tag SET gone_at = now() - interval '25.1 hours' WHERE job_id = $1", third)
	trim()
	require.Equal(t, 5, tags(), "the others are there")
	require.ElementsMatch(t, []job.ID{first, second}, byTag(t, b.db, store.Filter{Tags: []string{"import"}}))
}

// With a tenant move what its keys are taken for and what its jobs are found by.
func TestMoveBringsPeriodsAndTags(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	ctx := t.Context()
	ended := tagged(t, "import")
	ended.UniqueKey, ended.UniqueFor = "u", time.Hour
	first := b.enqueue(t, ended)
	b.finishAll(t)
	waits := b.enqueue(t, tagged(t, "import", "eu"))
	b.enqueue(t, store.NewJob{Tenant: "globex", UniqueKey: "u", UniqueFor: time.Hour})

	// It was there before: its jobs had gone, and come back now.
	execute(t, to, "INSERT INTO tenure.job_tag VALUES ('acme', 'import', $1, '-infinity'), ('acme', 'import', $2, '-infinity')", first, waits)
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	_, err := m.Begin(ctx, b.db, "second")
	require.NoError(t, err)
	require.NoError(t, m.Arrive(ctx, to, "main", false))
	require.NoError(t, m.Close(ctx, b.db, "second"))
	ends := store.Ends{From: b.db, To: to}
	nothing := func(string, int) {}
	require.NoError(t, m.Jobs(ctx, ends, func(context.Context) error { return nil }, nothing))
	require.NoError(t, m.Finished(ctx, ends, func(int) {}))
	require.NoError(t, m.Open(ctx, to))

	require.ElementsMatch(t, []job.ID{first, waits}, byTag(t, to, store.Filter{Tags: []string{"import"}}))
	require.Equal(t, []job.ID{waits}, byTag(t, to, store.Filter{Tags: []string{"eu"}}))
	var gone int
	require.NoError(t, to.QueryRow(ctx, "SELECT count(*) FROM tenure.job_tag WHERE gone_at IS NOT NULL").Scan(&gone))
	require.Zero(t, gone)
	id, duplicate, err := store.Enqueue(ctx, to.QueryRow, 2, unique("u", 0))
	require.NoError(t, err)
	require.True(t, duplicate)
	require.Equal(t, first, id)
	var left []string
	require.NoError(t, b.db.QueryRow(ctx, "SELECT array_agg(tenant_id) FROM tenure.unique_period").Scan(&left))
	require.Equal(t, []string{"globex"}, left)
	require.Empty(t, byTag(t, b.db, store.Filter{Tags: []string{"import"}}))
}
