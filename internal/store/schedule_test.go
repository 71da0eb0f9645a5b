package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// schedule sets a schedule of acme's that has been due for a minute, unless change says otherwise.
func (b *bundle) schedule(t *testing.T, name string, change func(*store.Schedule)) {
	t.Helper()
	now, err := store.ScheduleClock(t.Context(), b.db)
	require.NoError(t, err)
	due := now.Add(-time.Minute)
	s := store.Schedule{Tenant: "acme", Name: name, Origin: store.ScheduleSet, Kind: "k", Queue: "default", Payload: []byte(`{"n": 1}`), Meta: []byte(`{"by": "me"}`), Priority: 3, MaxAttempts: 2,
		Times: store.Times{Spec: "@every 1h", Since: now.Add(-time.Hour), Missed: "one"}, NextAt: &due}
	if change != nil {
		change(&s)
	}
	_, err = store.SetSchedule(t.Context(), b.db, &s, s.Origin)
	require.NoError(t, err)
}

// firings has every due schedule fire once, an hour from now next.
func (b *bundle) firings(t *testing.T) (f store.Firings, names []string) {
	t.Helper()
	due, now, err := store.DueSchedules(t.Context(), b.db, 100)
	require.NoError(t, err)
	for i := range due {
		f.Add(&due[i], store.Given{}, []time.Time{due[i].At}, now.Add(time.Hour))
		names = append(names, due[i].Name)
	}
	return f, names
}

func (b *bundle) named(t *testing.T, name string) store.Schedule {
	t.Helper()
	all, err := store.Schedules(t.Context(), b.db, store.ScheduleFilter{Name: &name})
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// What was read as due is fired once, however often it is tried; not by anyone who does not hold
// the lock, and not what has changed since.
func TestASchedulesRunIsAddedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(t, "nightly", nil)
	b.schedule(t, "changed", nil)
	b.schedule(t, "paused", nil)
	b.schedule(t, "reworded", nil)
	f, names := b.firings(t)
	require.ElementsMatch(t, []string{"nightly", "changed", "paused", "reworded"}, names)
	b.schedule(t, "reworded", func(s *store.Schedule) { s.Payload = []byte(`{"n": 2}`) }) // by which its key may be another one
	due := b.named(t, "changed").NextAt
	b.schedule(t, "changed", func(s *store.Schedule) { s.Spec, s.Since, s.NextAt = "@every 2h", time.Now(), due })
	require.NoError(t, store.PauseSchedule(t.Context(), b.db, "paused", true, []string{"acme"}, []*time.Time{nil}))

	other := b.fence
	other.Epoch--
	fired, err := store.FireSchedules(t.Context(), b.db, other, &f)
	require.NoError(t, err)
	require.Empty(t, fired)
	require.NotNil(t, b.named(t, "nightly").NextAt)
	require.True(t, b.named(t, "nightly").NextAt.Before(time.Now()), "it is due still")

	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { _, _ = store.FireSchedules(context.WithoutCancel(t.Context()), b.db, b.fence, &f) })
	}
	group.Wait()
	_, err = store.FireSchedules(t.Context(), b.db, b.fence, &f)
	require.NoError(t, err)
	jobs, err := store.List(t.Context(), b.db, store.Filter{Limit: 100})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	j, s := jobs[0], b.named(t, "nightly")
	require.Equal(t, s.LastJob, j.ID)
	require.Equal(t, []any{"acme", "default", "k", int16(3), 2}, []any{j.Tenant, j.Queue, j.Kind, j.Priority, j.MaxAttempts})
	require.JSONEq(t, `{"n": 1}`, string(j.Payload))
	require.Contains(t, string(j.Meta), `"by": "me"`)
	require.Contains(t, string(j.Meta), `"schedule": "nightly"`)
	require.Contains(t, string(j.Meta), `"scheduled_at": "`+s.LastAt.UTC().Format("2006-01-02T15:04"))
	require.True(t, s.NextAt.After(time.Now()))
	p := b.page(t, 0)
	require.Len(t, b.claim(t, p), 1, "it can be claimed like any other")
}

// What somebody has locked waits, and nothing waits for it.
func TestSchedulesFireBesideALockedOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(t, "locked", nil)
	b.schedule(t, "free", nil)
	f, _ := b.firings(t)
	b.locks(t, "SELECT FROM tenure.schedule WHERE name = 'locked' FOR UPDATE")
	fired, err := store.FireSchedules(t.Context(), b.db, b.fence, &f)
	require.NoError(t, err)
	require.Len(t, fired, 1)
	require.Equal(t, 1, fired[0].Count)
	require.NotZero(t, b.named(t, "free").LastJob)
	require.Zero(t, b.named(t, "locked").LastJob)
}

// What is not due is neither listed, nor waited for, nor keeps a pool awake.
func TestWhichSchedulesAreDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	requireDue := func(want bool, why string) {
		t.Helper()
		due, _, err := store.DueSchedules(t.Context(), b.db, 100)
		require.NoError(t, err)
		require.Equal(t, want, len(due) > 0, why)
		in, ok, err := store.NextTimer(t.Context(), b.db)
		require.NoError(t, err)
		require.Equal(t, want, ok && in == 0, why)
		idle, _, err := store.RenewIdle(t.Context(), b.db, b.fence, ttl, ttl)
		require.NoError(t, err)
		require.Equal(t, want, idle.Due != nil && *idle.Due <= 0, why)
	}
	requireDue(false, "there is none")
	b.schedule(t, "all", func(s *store.Schedule) { s.Tenant, s.NextAt = store.EveryTenant, nil })
	requireDue(false, "one for every tenant is nobody's")
	b.schedule(t, "one", func(s *store.Schedule) { s.Waits = true })
	requireDue(true, "its time has come")
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", true))
	requireDue(false, "its tenant is frozen")
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", false))
	require.NoError(t, store.PauseSchedule(t.Context(), b.db, "one", true, []string{"acme"}, []*time.Time{nil}))
	requireDue(false, "it is paused")
	past := time.Now().Add(-time.Second)
	require.NoError(t, store.PauseSchedule(t.Context(), b.db, "one", false, []string{"acme"}, []*time.Time{&past}))
	requireDue(true, "it goes on")

	id, lane, err := store.RunSchedule(t.Context(), b.db, "acme", "one", nothing)
	require.NoError(t, err)
	require.Equal(t, &store.Lane{Queue: "default", Tenant: "acme", Priority: 3}, lane)
	requireDue(false, "the run before has not ended")
	for _, place := range []string{"timer_job", "suspended_job", "dead_letter_job"} {
		move := map[string]string{
			"timer_job":       "INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, due_at) SELECT id, tenant_id, queue, kind, payload, now() + interval '1 day' FROM tenure.job",
			"suspended_job":   "INSERT INTO tenure.suspended_job (id, tenant_id, queue, kind, payload, origin) SELECT id, tenant_id, queue, kind, payload, 'job' FROM tenure.timer_job",
			"dead_letter_job": "INSERT INTO tenure.dead_letter_job (id, tenant_id, queue, kind, payload, origin, error) SELECT id, tenant_id, queue, kind, payload, 'job', 'e' FROM tenure.suspended_job",
		}[place]
		_, err := b.owner.Exec(t.Context(), move)
		require.NoError(t, err)
		_, err = b.owner.Exec(t.Context(), map[string]string{"timer_job": "DELETE FROM tenure.job", "suspended_job": "DELETE FROM tenure.timer_job", "dead_letter_job": "DELETE FROM tenure.suspended_job"}[place])
		require.NoError(t, err)
		due, _, err := store.DueSchedules(t.Context(), b.db, 100)
		require.NoError(t, err)
		require.Equal(t, place == "dead_letter_job", len(due) == 1, "job %d in %s", id, place)
	}
	requireDue(true, "a dead letter has ended")
}

// Setting a schedule again changes what it is; when it is due changes with its times only.
func TestSettingASchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(t, "s", nil)
	before := b.named(t, "s")
	later := time.Now().Add(time.Hour)
	b.schedule(t, "s", func(s *store.Schedule) { s.Payload, s.Missed, s.NextAt = []byte(`{"n": 2}`), "all", &later })
	after := b.named(t, "s")
	require.JSONEq(t, `{"n": 2}`, string(after.Payload))
	require.Equal(t, "all", after.Missed)
	require.Equal(t, []any{before.Since, before.NextAt}, []any{after.Since, after.NextAt})
	end := time.Now().Add(time.Minute)
	b.schedule(t, "s", func(s *store.Schedule) { s.End, s.NextAt = &end, &later })
	after = b.named(t, "s")
	require.NotEqual(t, before.Since, after.Since)
	require.WithinDuration(t, later, *after.NextAt, time.Millisecond)

	own := store.Schedule{Tenant: "acme", Name: "s", Origin: store.ScheduleConfig, Kind: "k", Queue: "default", Payload: []byte("1"), Times: store.Times{Spec: "@daily", Since: time.Now(), Missed: "one"}}
	_, err := store.SetSchedule(t.Context(), b.db, &own, store.ScheduleConfig, store.ScheduleEvery)
	require.ErrorIs(t, err, store.ErrScheduleElsewhere)
	require.ErrorIs(t, store.DeleteSchedule(t.Context(), b.db, "acme", "s", store.ScheduleConfig), store.ErrScheduleElsewhere)
	require.ErrorIs(t, store.DeleteSchedule(t.Context(), b.db, "acme", "none", store.ScheduleSet), store.ErrNoSchedule)
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', 'moved', 'p2')")
	require.NoError(t, err)
	var busy *store.TenantBusyError
	require.ErrorAs(t, store.DeleteSchedule(t.Context(), b.db, "acme", "s", store.ScheduleSet), &busy)
	_, _, err = store.RunSchedule(t.Context(), b.db, "acme", "s", nothing)
	require.ErrorAs(t, err, &busy)
	require.ErrorAs(t, store.PauseSchedule(t.Context(), b.db, "s", true, []string{"acme"}, []*time.Time{nil}), &busy)
	own.Name = "t"
	_, err = store.SetSchedule(t.Context(), b.db, &own, store.ScheduleConfig)
	require.ErrorAs(t, err, &busy)
}

// Every column of a schedule moves with its tenant, also if the move is interrupted and repeated.
func TestMovingSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	to := second(t)
	end := time.Now().Add(24 * time.Hour)
	b.schedule(t, "s", func(s *store.Schedule) {
		s.End, s.Zone, s.Missed, s.Waits, s.Jitter = &end, "Europe/Amsterdam", "skip", true, time.Second
	})
	_, _, err := store.RunSchedule(t.Context(), b.db, "acme", "s", nothing)
	require.NoError(t, err)
	require.NoError(t, store.PauseSchedule(t.Context(), b.db, "s", true, []string{"acme"}, []*time.Time{nil}))
	b.schedule(t, "other", func(s *store.Schedule) { s.Tenant = "globex" })
	_, err = b.db.Exec(t.Context(), "DELETE FROM tenure.job")
	require.NoError(t, err)
	before := b.named(t, "s")
	_, err = b.owner.Exec(t.Context(), "UPDATE tenure.schedule SET origin = 'every' WHERE name = 's'")
	require.NoError(t, err)
	before.Origin = "every"
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	require.NoError(t, m.Arrive(t.Context(), to, "main", false))
	moved := map[string]int{}
	count := func(place string, n int) { moved[place] += n }
	begun := 0
	begin := func(context.Context) error { begun++; return nil }
	require.NoError(t, m.Jobs(t.Context(), store.Ends{From: b.db, To: to}, begin, count))
	require.Equal(t, map[string]int{"schedule": 1}, moved)
	require.Equal(t, 1, begun)
	after, err := store.Schedules(t.Context(), to, store.ScheduleFilter{})
	require.NoError(t, err)
	require.Equal(t, []store.Schedule{before}, after)
	left, err := store.Schedules(t.Context(), b.db, store.ScheduleFilter{})
	require.NoError(t, err)
	require.Len(t, left, 1)
	due, _, err := store.DueSchedules(t.Context(), to, 10)
	require.NoError(t, err)
	require.Empty(t, due)
	require.NoError(t, m.Jobs(t.Context(), store.Ends{From: b.db, To: to}, begin, count))
	require.Equal(t, 1, begun, "there is nothing left to move")
}

// nothing is what a kind gives that is not known.
func nothing(context.Context, *store.NewJob) (store.Given, error) { return store.Given{}, nil }
