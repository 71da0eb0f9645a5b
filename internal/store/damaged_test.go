package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// addMany adds so many jobs of a tenant that wait.
func (b *bundle) addMany(t *testing.T, tenant string, n int) (ids []job.ID) {
	for range n {
		ids = append(ids, b.enqueue(t, store.NewJob{Tenant: tenant}))
	}
	return ids
}

// damaged are the jobs of a page that cannot be read.
func damaged(p store.Page) (ids []job.ID) {
	for _, w := range p.Jobs {
		if w.Damage != "" {
			ids = append(ids, w.Record.ID)
		}
	}
	return ids
}

// wholePage is the first page, with all of its jobs.
func (b *bundle) wholePage(t *testing.T) store.Page {
	t.Helper()
	return untilWhole(t, func() (store.Page, error) { return b.page(t, 0), nil })
}

// untilWhole reads a page until there was time for all of its jobs.
func untilWhole(t *testing.T, read func() (store.Page, error)) (p store.Page) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		p, err = read()
		require.NoError(t, err)
		return !slices.ContainsFunc(p.Jobs, func(w store.Waiting) bool { return w.Left })
	}, 30*time.Second, time.Millisecond)
	return p
}

// A page with jobs that cannot be read shows which these are, without their payload, and the others whole.
func TestPageWithDamagedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := append(b.addMany(t, "acme", 8), b.addMany(t, "beta", 8)...)
	lost := []job.ID{ids[0], ids[4], ids[5], ids[15]}
	for _, id := range lost {
		storetest.Damage(t, b.owner, "job", id)
	}
	p := b.wholePage(t)
	require.Len(t, p.Jobs, 16)
	require.Equal(t, lost, damaged(p))
	for _, w := range p.Jobs {
		require.False(t, w.TooLarge)
		require.Equal(t, w.Damage != "", w.Record.Payload == nil)
		if w.Damage != "" {
			require.Contains(t, w.Damage, "unexpected chunk number")
		}
	}
	found, err := store.FindDamaged(t.Context(), b.db, 100)
	require.NoError(t, err)
	require.Len(t, found, len(lost))
	require.Equal(t, "beta", found[3].Tenant)
	require.Equal(t, lost[3], found[3].ID)
	require.Contains(t, found[3].Damage, "unexpected chunk number")

	// Text that the connection's encoding has no equivalent for cannot be read, either.
	cfg := b.db.Config().ConnConfig.Copy()
	cfg.RuntimeParams["client_encoding"] = "LATIN1"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	euro := b.enqueue(t, store.NewJob{Tenant: "gamma", Payload: []byte(`{"price": "€"}`)})
	var req store.PageRequest
	for _, tenant := range []string{"beta", "gamma"} {
		req.Add(store.Lane{Queue: "default", Tenant: tenant}, 0, 100)
	}
	p = untilWhole(t, func() (store.Page, error) {
		return store.ReadPage(t.Context(), conn, &req, store.KindsOf([]string{"k"}), false)
	})
	require.Len(t, p.Jobs, 9)
	require.Equal(t, []job.ID{lost[3], euro}, damaged(p))
}

// Accepted claims say which of their jobs cannot be read.
func TestAcceptDamagedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.addMany(t, "acme", 3)
	p, peer := b.page(t, 0), openSession(t, b.db, "peer")
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, request(p, peer))
	require.NoError(t, err)
	storetest.Damage(t, b.owner, "job", ids[1])
	accepted, err := store.AcceptClaims(t.Context(), b.db, peer, nil)
	require.NoError(t, err)
	require.Len(t, accepted, 1)
	require.Equal(t, []bool{false, true, false}, accepted[0].Damaged)
	require.NotNil(t, accepted[0].Jobs[2].Payload)
}

// Wherever a job stands, it is listed if it cannot be read, with what is wrong with it in the payload's place,
// and so are the others; it can be cancelled.
func TestDamagedJobsAreListedAndCancelled(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name   string
		cancel func(t *testing.T, b *bundle, id job.ID)
	}{
		{"by an operator", func(t *testing.T, b *bundle, id job.ID) {
			_, err := store.Cancel(t.Context(), b.db, id, true)
			require.NoError(t, err)
		}},
		{"by SQL", func(t *testing.T, b *bundle, id job.ID) {
			execute(t, b.db, "SELECT tenure.cancel($1)", int64(id))
			p := b.page(t, 0)
			u := store.Unwanted{Removals: p.Removals}
			for _, w := range p.Jobs {
				if w.Unwanted {
					u.Add(w.Record.ID, w.Record.Turn)
				}
			}
			_, err := store.CancelWaiting(t.Context(), b.db, b.fence, u, true)
			require.NoError(t, err)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			places := map[job.ID]string{}
			for _, place := range store.Places {
				for range 3 {
					id := b.enqueue(t, store.NewJob{})
					places[id] = place
					if place == "job" {
						continue
					}
					with := map[string]string{"timer_job": "due_at) SELECT now() + interval '1 hour'", "external_job": "due_at) SELECT now() + interval '1 hour'",
						"suspended_job": "origin) SELECT 'job'", "dead_letter_job": "error, origin) SELECT 'x', 'job'"}[place]
					columns, values, _ := strings.Cut(with, ")")
					execute(t, b.owner, "WITH gone AS (DELETE FROM tenure.job WHERE id = $1 RETURNING *) INSERT INTO tenure."+place+
						" ("+columns+", id, tenant_id, queue, kind, payload)"+values+", id, tenant_id, queue, kind, payload FROM gone", int64(id))
				}
			}
			for id, place := range places {
				if id%3 == 0 {
					storetest.Damage(t, b.owner, place, id)
				}
			}
			check := func() {
				t.Helper()
				all, err := store.List(t.Context(), b.db, store.Filter{Limit: 100})
				require.NoError(t, err)
				require.Len(t, all, len(places))
				for _, s := range all {
					var wrong struct {
						Damage string `json:"tenure:damaged"`
					}
					require.NoError(t, json.Unmarshal(s.Payload, &wrong))
					if s.ID%3 == 0 {
						require.Contains(t, wrong.Damage, "unexpected chunk number")
					} else {
						require.Empty(t, wrong.Damage)
					}
				}
			}
			check()
			for id := range places {
				way.cancel(t, b, id)
			}
			check()
			cancelled, err := store.List(t.Context(), b.db, store.Filter{State: "cancelled", Limit: 100})
			require.NoError(t, err)
			require.Len(t, cancelled, len(places))
		})
	}
}

// Timers and suspended jobs that cannot be read are put off, and keep no others from being moved.
func TestDamagedTimersArePutOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	since := time.Now().Add(-time.Hour)
	var ids []job.ID
	for i := range 12 {
		ids = append(ids, b.enqueue(t, store.NewJob{Tenant: []string{"acme", "beta"}[i%2], DueAt: since}))
	}
	storetest.Damage(t, b.owner, "timer_job", ids[1])
	storetest.Damage(t, b.owner, "timer_job", ids[8])
	requireDamaged := func(err error, id job.ID) {
		t.Helper()
		var damaged *store.DamagedError
		require.ErrorAs(t, err, &damaged)
		require.Len(t, damaged.Jobs, 1)
		require.Equal(t, id, damaged.Jobs[0].ID)
	}
	_, err := store.FireTimersOf(t.Context(), b.db, b.fence, []string{"beta"}, 100)
	requireDamaged(err, ids[1])
	fired, err := store.FireTimersOf(t.Context(), b.db, b.fence, []string{"beta"}, 100)
	require.NoError(t, err)
	require.Equal(t, 5, fired[0].Count)
	_, err = store.FireTimers(t.Context(), b.db, b.fence, 100)
	requireDamaged(err, ids[8])
	fired, err = store.FireTimers(t.Context(), b.db, b.fence, 100)
	require.NoError(t, err)
	require.Equal(t, 5, fired[0].Count)
	in, ok, err := store.NextTimer(t.Context(), b.db)
	require.NoError(t, err)
	require.True(t, ok)
	require.Greater(t, in, 9*time.Minute)

	waiting := b.page(t, 0).Jobs
	for _, w := range waiting[:4] {
		require.NoError(t, store.SuspendJob(t.Context(), b.db, w.Record.ID, since))
	}
	storetest.Damage(t, b.owner, "suspended_job", waiting[2].Record.ID)
	_, err = store.ResumeDue(t.Context(), b.db, 100)
	requireDamaged(err, waiting[2].Record.ID)
	resumed, err := store.ResumeDue(t.Context(), b.db, 100)
	require.NoError(t, err)
	require.Len(t, resumed, 3)
}

// The ends of runs are written of jobs that cannot be read any more, too: of one that has ended without
// its payload; one that was to run again stays as it is.
func TestDamagedJobsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	outcomes := []job.Outcome{{State: job.Done}, {State: job.Dead}, {State: job.Cancelled}, {State: job.Retrying, Delay: time.Hour}, {State: job.Returned}}
	ids := b.addMany(t, "acme", 2*len(outcomes))
	p := b.page(t, 0)
	b.claim(t, p)
	var runs []store.Finished
	for i := range p.Jobs {
		if i%2 == 0 {
			storetest.Damage(t, b.owner, "job", p.Jobs[i].Record.ID)
		}
		runs = append(runs, store.Finished{Record: &p.Jobs[i].Record, Outcome: outcomes[i/2]})
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "n"}, true, runs, nil)
	require.NoError(t, err)
	require.Zero(t, lost)
	require.Equal(t, job.Retrying, runs[6].Outcome.State, "what the caller has is left alone")
	var stand []string
	for i, id := range ids {
		var place, text string
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT place, tenure.legible(payload)::text FROM (
			SELECT 'job' AS place, id, payload FROM tenure.job UNION ALL SELECT 'timer_job', id, payload FROM tenure.timer_job
			UNION ALL SELECT 'dead_letter_job', id, payload FROM tenure.dead_letter_job UNION ALL SELECT outcome, id, payload FROM tenure.completed_job) j WHERE id = $1`, int64(id)).Scan(&place, &text))
		require.Equal(t, i%2 == 0, text != `{"n": 1}`, "%s: %s", place, text)
		stand = append(stand, place)
	}
	require.Equal(t, []string{"done", "done", "dead_letter_job", "dead_letter_job", "cancelled", "cancelled", "job", "timer_job", "job", "job"}, stand)
	require.Equal(t, []job.ID{ids[6], ids[8]}, damaged(b.wholePage(t)), "those may be mended yet")
}

// A job that has lost its node too often is a dead letter though it cannot be read.
func TestReapingDamagedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.addMany(t, "acme", 4)
	p := b.page(t, 0)
	b.claim(t, p)
	for _, id := range ids[:3] {
		storetest.Damage(t, b.owner, "job", id)
	}
	execute(t, b.owner, "INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", int64(ids[1]))
	execute(t, b.owner, "UPDATE tenure.job SET losses = 2 WHERE id = $1", int64(ids[0]))
	died := openSession(t, b.db, "died")
	execute(t, b.owner, "UPDATE tenure.claim SET session_id = $1", died)
	execute(t, b.owner, "UPDATE tenure.node_session SET state = 'dead' WHERE session_id = $1", died)
	r, err := store.ReapClaims(t.Context(), b.db, b.fence, 3, 0, true)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 1}, []int{r.Back, r.Dead, r.Cancelled})
	require.Equal(t, []job.ID{ids[2]}, damaged(b.wholePage(t)))
}

// A job of external workers that cannot be read keeps none from acquiring the others, and becomes a dead letter like them.
func TestDamagedExternalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	execute(t, b.owner, "INSERT INTO tenure.external_job (tenant_id, queue, kind, payload) SELECT t, 'default', 'topic', '{}' FROM unnest('{acme,beta}'::text[]) AS t, generate_series(1, 5)")
	var ids []job.ID
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT array_agg(id ORDER BY id) FROM tenure.external_job").Scan(&ids))
	storetest.Damage(t, b.owner, "external_job", ids[2])
	request := &store.ExternalRequest{Topic: "topic", Worker: "w", LockFor: time.Hour, Max: 100, Bytes: 1 << 20, Look: 100}
	jobs, _, err := store.AcquireExternal(t.Context(), b.db, request)
	require.NoError(t, err)
	require.Len(t, jobs, 9)
	found, err := store.FindDamaged(t.Context(), b.db, 100)
	require.NoError(t, err)
	require.Len(t, found, 1)

	storetest.Damage(t, b.owner, "external_job", ids[0])
	execute(t, b.owner, "UPDATE tenure.external_job SET lock_expires_at = now() - interval '1 minute', losses = 100 WHERE locked_by = 'w'")
	n, err := store.SweepExternal(t.Context(), b.db, 100)
	require.NoError(t, err)
	require.Equal(t, 9, n)
	var dead int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.dead_letter_job WHERE payload ? 'tenure:damaged'").Scan(&dead))
	require.Equal(t, 1, dead)
}

// Nothing that stops statements for many rows is taken, whoever writes it: no time that no clock and no list can do
// with, no number at its type's end, no NULL in a list.
func TestWhatStandsInTheTablesIsBounded(t *testing.T) {
	t.Parallel()
	conn := connectTo(t, storetest.DSN(t, "main", 1))
	for _, sql := range []string{
		"job (tenant_id, queue, kind, payload, turn) VALUES ('acme', 'q', 'k', '{}', 7)",
		"timer_job (tenant_id, queue, kind, payload, turn, due_at) VALUES ('acme', 'q', 'k', '{}', 7, '2300-01-01 UTC')",
		"suspended_job (tenant_id, queue, kind, payload, origin) VALUES ('acme', 'q', 'k', '{}', 'job')",
		"external_job (tenant_id, queue, kind, payload) VALUES ('acme', 'q', 'k', '{}')",
		"schedule (name, tenant_id, kind, queue, payload, spec, time_zone, origin, missed) VALUES ('s', 'acme', 'k', 'q', '{}', '@daily', 'UTC', 'set', 'skip')",
		"node_session (session_id, node, member, gossip_addr, version, kinds, expires_at) VALUES (gen_random_uuid(), 'n', 'n', '', '', '{}', now())",
		"claim (session_id, turn, job_ids) SELECT session_id, 7, '{1}' FROM tenure.node_session",
		"rate_bucket VALUES ('acme', 'kind', 'k', now())",
		"tenant (tenant_id) VALUES ('acme')",
	} {
		execute(t, conn, "INSERT INTO tenure."+sql)
	}
	for _, at := range []string{"infinity", "-infinity", "294276-01-01 UTC", "1969-01-01 UTC"} {
		for _, column := range []string{"timer_job SET due_at", "suspended_job SET due_at", "suspended_job SET resume_at", "external_job SET due_at"} {
			_, err := conn.Exec(t.Context(), fmt.Sprintf("UPDATE tenure.%s = '%s'", column, at))
			require.ErrorContains(t, err, "_time", "%s = %s", column, at)
		}
	}
	long := "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 90) n)" // no index of the waiting jobs takes it
	for _, set := range []string{
		"job SET turn = 2147483647", "job SET attempt = 32767", "job SET losses = -1", "timer_job SET turn = -1",
		"schedule SET jitter_ms = -1", "schedule SET jitter_ms = 9223372036854775807", "schedule SET next_at = '-infinity'", "schedule SET next_at = 'infinity'",
		"claim SET job_ids = '{NULL,3}'", "claim SET job_ids = '{{1},{2}}'", "node_session SET kinds = '{NULL}'", "node_session SET expires_at = '2200-01-01'",
		"acquire_lock SET expires_at = '2200-01-01'", "tenant SET weight = 2147483647", "rate_bucket SET full_at = 'infinity'",
		"timer_job SET queue = " + long, "schedule SET queue = " + long, "job SET kind = " + long, "timer_job SET exclusive_key = " + long, "acquire_lock SET epoch = 9223372036854775807",
	} {
		_, err := conn.Exec(t.Context(), "UPDATE tenure."+set)
		require.ErrorContains(t, err, "_bounds", set)
	}
}
