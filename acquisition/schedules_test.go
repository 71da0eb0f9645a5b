package acquisition

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// hourly makes a schedule that has been due since so many hours and a half.
func (b *bundle) hourly(name, missed string, waits bool, hours int) {
	b.t.Helper()
	b.exec(`INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, missed, waits, since, next_at)
		SELECT 'acme', $1, 'k', 'default', '@every 1h', $2, $3, d.at - interval '1 hour', d.at
		FROM (SELECT clock_timestamp() - $4 * interval '1 hour' - interval '30 minutes' AS at) d`, name, missed, waits, hours)
}

const jobsOf = "SELECT count(*) FROM tenure.job WHERE meta->>'schedule' = $1"

// fire works out what schedules are due, and fires it, as a term's loop does.
func (b *bundle) fire(tm *term) error {
	use, err := tm.schedules.look()(b.t.Context())
	if err != nil {
		return err
	}
	use()
	return tm.timers.fire(b.t.Context())
}

// What was missed is left out, done once, or made up for, as each schedule says, and each goes on
// from now.
func TestSchedulesMakeUpForMissedRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	for _, missed := range []string{"skip", "one", "all"} {
		b.hourly(missed, missed, false, 3)
		b.hourly(missed+"-waits", missed, true, 3)
	}
	b.hourly("long", "all", false, 1000)
	tm, _ := b.term(t.Context())
	for range 5 { // the longest takes a slice by itself
		require.NoError(t, b.fire(tm))
	}
	for name, want := range map[string]int64{"skip": 0, "skip-waits": 0, "one": 1, "one-waits": 1, "all": 4, "all-waits": 1, "long": 100} {
		require.Equal(t, want, b.count(jobsOf, name), name)
	}
	require.Equal(t, int64(6), b.count("SELECT count(*) FROM tenure.schedule WHERE next_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour'"))
	require.EqualValues(t, 4, b.count("SELECT count(DISTINCT meta->>'scheduled_at') FROM tenure.job WHERE meta->>'schedule' = 'all'"))
	require.NoError(t, b.fire(tm))
	require.EqualValues(t, 1, b.count(jobsOf, "all-waits"), "the one before has not ended")
	require.WithinDuration(t, time.Now().Add(30*time.Minute), tm.timers.next, time.Minute, "what waits is not looked at all the time")
	for want := int64(2); want <= 4; want++ {
		b.exec("DELETE FROM tenure.job WHERE id = (SELECT last_job FROM tenure.schedule WHERE name = 'all-waits')")
		require.NoError(t, b.fire(tm))
		require.EqualValues(t, 1, b.count(jobsOf, "all-waits"))
		require.Equal(t, 5-want, b.count("SELECT ceil(extract(epoch FROM clock_timestamp() - next_at) / 3600)::bigint + 1 FROM tenure.schedule WHERE name = 'all-waits'"), "so many are to come")
	}
	tm.duties.group.Wait()
}

// However many schedules are due, and however much they have to make up for, so much is fired
// between two claims as takes a moment; and all of it is, in the end.
func TestP12SchedulesFireInSlices(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.exec(`INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, since, next_at)
		SELECT 'acme', 's' || n, 'k', 'default', '0 * * * *', clock_timestamp() - interval '1 day', clock_timestamp() - interval '1 minute' FROM generate_series(1, 1000) n`)
	for n := range 10 {
		b.hourly(fmt.Sprint("all", n), "all", false, 99)
	}
	tm, _ := b.term(t.Context())
	require.NoError(t, b.fire(tm))
	require.LessOrEqual(t, b.count("SELECT count(*) FROM tenure.job"), int64(2*minSlice), "jobs are claimed before more of them")
	require.False(t, tm.timers.fireDuty.due.After(time.Now()), "the next ones are fired right after that")
	for b.count("SELECT count(*) FROM tenure.schedule WHERE next_at <= clock_timestamp()") > 0 {
		require.NoError(t, b.fire(tm))
	}
	require.EqualValues(t, 2000, b.count("SELECT count(*) FROM tenure.job"))
	tm.duties.group.Wait()
}

// A schedule that cannot be read here does not keep others from firing, and is told of once.
func TestAnUnreadableScheduleIsToldOf(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	for n := range minSlice + 1 {
		b.hourly(fmt.Sprint("bad", n), "one", false, 1)
	}
	b.exec("UPDATE tenure.schedule SET time_zone = 'Mars/Olympus'")
	b.hourly("good", "one", false, 0)
	tm, logged := b.term(t.Context())
	for range 3 {
		require.NoError(t, b.fire(tm))
	}
	require.EqualValues(t, 1, b.count(jobsOf, "good"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.job"))
	require.Len(t, logged.FilterMessageSnippet("a schedule is due and is not fired").All(), minSlice+1)
	require.True(t, tm.timers.next.After(time.Now()), "it is not tried all the time")
	tm.duties.group.Wait()
}

// Jobs start while it is worked out what schedules are to do, however long that takes; what cannot be worked out is
// set aside with its schedule.
func TestP12WorkingOutSchedulesHoldsUpNoJobs(t *testing.T) {
	t.Parallel()
	ran := make(chan job.ID, 10)
	b := setup(t, nil, tells(ran)).start()
	b.hourly("stuck", "one", false, 2)
	b.hourly("refused", "one", false, 1)
	b.hourly("good", "one", false, 0)
	b.exec("UPDATE tenure.schedule SET kind = name")
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	m.GiveWith(func(_ context.Context, j *store.NewJob) (store.Given, error) {
		switch j.Kind {
		case "stuck":
			nudge(began)
			<-goOn
		case "refused":
			return store.Given{}, errors.New("it has no key")
		}
		return store.Given{}, nil
	})
	require.NoError(t, m.Start(t.Context()))
	within(t, began)
	for range 3 {
		id := b.enqueue("tell")
		m.Hint(Hint{Pool: "main", Lanes: []store.Lane{laneOf("acme", 0)}})
		require.Equal(t, id, within(t, ran))
	}
	require.Zero(t, b.count("SELECT count(*) FROM tenure.job WHERE meta IS NOT NULL"))
	close(goOn)
	b.eventually(2, "SELECT count(*) FROM tenure.job WHERE meta->>'schedule' IN ('stuck', 'good')")
	require.Zero(t, b.count(jobsOf, "refused"))
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// A key ring that hangs for a kind holds up that kind's schedules, however many of them are due, and no others.
func TestAKindThatHangsHoldsUpNoOtherSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	for n := range 40 {
		b.hourly(fmt.Sprint("hangs", n), "one", false, 2)
	}
	b.exec("UPDATE tenure.schedule SET kind = 'hangs'")
	b.hourly("good", "one", false, 0)
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	m.GiveWith(func(ctx context.Context, j *store.NewJob) (store.Given, error) {
		if j.Kind == "hangs" {
			<-ctx.Done()
		}
		return store.Given{}, ctx.Err()
	})
	require.NoError(t, m.Start(t.Context()))
	b.eventually(1, "SELECT count(*) FROM tenure.schedule WHERE name = 'good' AND last_job IS NOT NULL")
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// A look is taken as soon as something is due, whatever was looked for before.
func TestADueScheduleIsLookedForAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, _ := b.term(t.Context())
	require.NoError(t, b.fire(tm))
	for n := range 2 {
		b.hourly(fmt.Sprint("s", n), "one", false, 0)
		tm.schedules.next.due = time.Now().Add(time.Hour)
		require.NoError(t, tm.timers.fire(t.Context()))
		require.False(t, tm.schedules.next.due.After(time.Now()))
		tm.timers.fireDuty.due = time.Now().Add(time.Hour)
		require.NoError(t, b.fire(tm))
		require.EqualValues(t, n+1, b.count("SELECT count(*) FROM tenure.job"))
		require.True(t, tm.timers.next.After(time.Now()))
	}
	tm.duties.group.Wait()
}

// spreadNow does what the background query does.
func (b *bundle) spreadNow(tm *term) {
	b.t.Helper()
	use, err := tm.spreader.spread()(b.t.Context())
	require.NoError(b.t, err)
	use()
}

// spreadLater does what the background query does when what the configuration lacks has gone on for long enough.
func (b *bundle) spreadLater(tm *term) {
	b.t.Helper()
	for key, since := range tm.spreader.lacking {
		tm.spreader.lacking[key] = since.Add(-goesOnFor)
	}
	b.spreadNow(tm)
}

// After the database's clock ran ahead a schedule goes on from now, at the next term or within the same one; but
// none fires for a time twice, and what else is due late, or never, stays so.
func TestSchedulesGoOnAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	ahead := func() { // it was so by a day when they fired
		b.exec("DELETE FROM tenure.schedule")
		for name, c := range map[string]struct{ spec, missed, last, next, set string }{
			"one":      {spec: "@every 1h", missed: "one", last: "-30 min", next: "1 day 30 min"},
			"skip":     {spec: "@every 1h", missed: "skip", last: "-30 min", next: "1 day 30 min"},
			"ended":    {spec: "@every 1h", missed: "one", last: "-30 min", set: "end_at = clock_timestamp() + interval '12 h'"},
			"jitter":   {spec: "0 * * * *", missed: "one", next: "1 day 1 h", set: "jitter_ms = 600000"},
			"all":      {spec: "@every 1h", missed: "all", last: "-30 min", next: "1 day 30 min"}, // and it had more to make up for than it may at a time
			"fired":    {spec: "@every 1h", missed: "one", last: "23 h 30 min", next: "1 day 30 min"},
			"paused":   {spec: "@every 1h", missed: "one", last: "-30 min", next: "1 day 30 min", set: "paused = true"},
			"thrice":   {spec: "R3/PT15M", missed: "one", last: "-45 min"}, // for the last time
			"seldom":   {spec: "@every 9000h", missed: "one", next: "8998 h 30 min"},
			"strange":  {spec: "@every 1h", missed: "one", next: "1 day 30 min", set: "time_zone = 'Mars/Olympus'"},
			"in order": {spec: "@every 1h", missed: "one", last: "-30 min", next: "30 min"},
		} {
			b.exec(`INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, missed, since, last_at, next_at)
				SELECT 'acme', $1, 'k', 'default', $2, $3, now() - interval '90 min', now() + nullif($4, '')::interval, now() + nullif($5, '')::interval`,
				name, c.spec, c.missed, c.last, c.next)
			if c.set != "" {
				b.exec("UPDATE tenure.schedule SET "+c.set+" WHERE name = $1", name)
			}
		}
	}
	const soon = "SELECT count(*) FROM tenure.schedule WHERE next_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '70 min' AND name = ANY ($1)"
	behind := []string{"one", "skip", "ended", "jitter", "all"}
	ahead()
	tm, _ := b.term(t.Context())
	b.spreadNow(tm)
	require.EqualValues(t, len(behind), b.count(soon, behind))
	require.EqualValues(t, 6, b.count(soon, []string{"one", "skip", "ended", "jitter", "in order", "all", "fired", "paused", "thrice", "seldom", "strange"}))

	ahead()
	tm.spreader.clock = tm.spreader.clock.Add(-time.Hour) // whatever keeps this process from going on meanwhile
	b.spreadNow(tm)
	require.Zero(t, b.count(soon, behind), "what the clock did not do is somebody's will")
	tm.readInbox(mail{setBack: true}) // as its keeper saw, also if it had run ahead for less than a minute
	_, _, err := store.RunSchedule(t.Context(), b.db, "acme", "fired", nothing)
	require.NoError(t, err)
	b.spreadNow(tm)
	require.EqualValues(t, len(behind), b.count(soon, behind))
	require.Zero(t, b.count(soon, []string{"fired"}), "somebody's run between does not have it fire twice")
	tm.duties.group.Wait()
}

// The configuration's schedules come, change and go with it; those that were set stay as they are.
func TestConfiguredSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.hourly("set", "one", false, 0)
	b.hourly("mine", "one", false, 0)
	tm, logged := b.term(t.Context())
	configure := func(all map[string]ScheduleConfig) {
		require.NoError(t, ValidateSchedules(all))
		tm.spreader.settings.schedules.Store(&all)
		b.spreadNow(tm)
	}
	rows := func() (all []string) {
		r, err := store.Schedules(t.Context(), b.db, store.ScheduleFilter{})
		require.NoError(t, err)
		for _, s := range r {
			all = append(all, fmt.Sprint(s.Tenant, "/", s.Name, " ", s.Origin, " ", s.Spec))
		}
		return all
	}
	acme := []tenancy.ID{"acme", "elsewhere"}
	configure(map[string]ScheduleConfig{"a": {Tenants: acme, Kind: "k", Rule: "@daily"}, "b": {Tenants: acme, Kind: "k", Rule: "@daily"}, "mine": {Tenants: acme, Kind: "k", Rule: "@daily"}})
	require.Equal(t, []string{"acme/a config @daily", "acme/b config @daily", "acme/mine set @every 1h", "acme/set set @every 1h"}, rows())
	b.exec("UPDATE tenure.schedule SET next_at = clock_timestamp() + interval '1 minute', paused = true WHERE name = 'a'")
	const written = "SELECT sum(xmin::text::bigint) FROM tenure.schedule"
	before := b.count(written)
	configure(map[string]ScheduleConfig{"a": {Tenants: acme, Kind: "k", Rule: "@daily"}, "b": {Tenants: acme, Kind: "k", Rule: "@daily"}, "mine": {Tenants: acme, Kind: "k", Rule: "@daily"}})
	require.Equal(t, before, b.count(written), "nothing has changed, and nothing is written")
	require.Len(t, logged.FilterMessageSnippet("is not in force").All(), 4, "mine, and three for an unknown tenant, each once")
	configure(map[string]ScheduleConfig{"a": {Tenants: acme, Kind: "k", Queue: "mail", Rule: "@daily"}, "c": {Tenants: acme, Kind: "k", Rule: "@hourly"}})
	b.spreadLater(tm)
	require.Equal(t, []string{"acme/a config @daily", "acme/c config @hourly", "acme/mine set @every 1h", "acme/set set @every 1h"}, rows())
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE name = 'a' AND queue = 'mail' AND paused AND next_at < clock_timestamp() + interval '2 minutes'"),
		"when it is due, and that it is paused, stays")
	configure(map[string]ScheduleConfig{"a": {Tenants: acme, Kind: "k", Queue: "mail", Rule: "@daily", External: true}, "c": {Tenants: acme, Kind: "k", Rule: "@hourly"}})
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE name = 'a' AND external"))
	configure(nil)
	b.spreadLater(tm)
	require.Equal(t, []string{"acme/mine set @every 1h", "acme/set set @every 1h"}, rows())

	// Before it dozes a holder looks once more whether tenants have come, if they are to have schedules.
	require.False(t, tm.spreader.mayLack(time.Now()))
	configure(map[string]ScheduleConfig{"a": {Tenants: acme, Kind: "k", Rule: "@daily"}})
	require.True(t, tm.spreader.mayLack(time.Now()))
	require.False(t, tm.spreader.mayLack(tm.spreader.began))
	configure(nil)
	b.exec("UPDATE tenure.schedule SET tenant_id = '' WHERE name = 'set'")
	b.spreadNow(tm)
	require.True(t, tm.spreader.mayLack(time.Now()))
	tm.spreader.began, tm.spreader.every = time.Time{}, false
	require.True(t, tm.spreader.mayLack(time.Time{}), "it has not looked yet")
	tm.duties.group.Wait()
}

// A run is made that is due while the lock is with a node whose file lacks its schedule, or its tenant, or has other
// times for it, as during a deploy; and the schedule is there when the lock comes back. What no file has any more goes,
// which the audit says.
func TestADeployLosesNoRunOfASchedule(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	acme := []tenancy.ID{"acme"}
	after := map[string]ScheduleConfig{
		"new":     {Tenants: acme, Kind: "k", Rule: "@daily"},
		"changed": {Tenants: acme, Kind: "k", Rule: "@daily"},
		"every":   {EveryTenant: true, Kind: "k", Rule: "@daily"},
		"many":    {EveryTenant: true, Kind: "k", Rule: "@daily"},
	}
	before := map[string]ScheduleConfig{"changed": {Tenants: acme, Kind: "k", Rule: "@hourly"}, "many": after["many"]}
	tm, _ := b.term(t.Context())
	tm.spreader.settings.schedules.Store(&after)
	b.spreadNow(tm)
	b.exec("UPDATE tenure.schedule SET next_at = clock_timestamp() - interval '1 second' WHERE tenant_id = 'acme'") // which nobody makes, as the lock is given away
	routes := b.routes
	routes.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"globex": {Pool: "main"}}
	_, err := b.router.Apply(t.Context(), routes)
	require.NoError(t, err)
	was := tm.spreader
	old := &spreader{place: was.place, router: was.router, settings: was.settings, termBegan: was.termBegan, fire: was.fire, step: firstStep, lacking: map[store.ScheduleKey]time.Time{}}
	tm.spreader.settings.schedules.Store(&before)
	tm.spreader = old
	b.spreadNow(tm)
	_, err = b.router.Apply(t.Context(), b.routes)
	require.NoError(t, err)
	b.spreadNow(tm)
	for range 5 { // slices
		require.NoError(t, b.fire(tm))
	}
	for name := range after {
		require.EqualValues(t, 1, b.count(jobsOf, name), name)
	}
	b.spreadLater(tm)
	require.EqualValues(t, 0, b.count("SELECT count(*) FROM tenure.schedule WHERE name IN ('new', 'every')"))
	require.EqualValues(t, 2, b.count("SELECT count(*) FROM tenure.audit WHERE who = 'node a' AND action = 'schedule.delete' AND subject IN ('new', 'every') AND detail->>'origin' = 'config'"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE name = 'many' AND tenant_id = 'acme'"), "its tenant is there again")
	tm.duties.group.Wait()
}

// A schedule for every tenant is each tenant's own, also of those that come later, each with its
// delay; it changes and goes with what it is a copy of, and gives way to a tenant's own.
func TestSchedulesForEveryTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, _ := b.term(t.Context())
	tenants := func(n int) {
		routes := b.routes
		routes.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
		for i := range n {
			routes.Tenants.Static[tenancy.ID(fmt.Sprint("t", i))] = routing.TenantConfig{Pool: "main"}
		}
		routes.Tenants.Static["acme"] = routing.TenantConfig{Pool: "main"}
		_, err := b.router.Apply(t.Context(), routes)
		require.NoError(t, err)
	}
	tenants(5)
	b.hourly("all", "one", false, 0) // acme's own
	all := map[string]ScheduleConfig{"all": {EveryTenant: true, Kind: "k", Rule: "0 3 * * *", Jitter: time.Hour}}
	tm.spreader.settings.schedules.Store(&all)
	b.spreadNow(tm)
	const copies = "SELECT count(*) FROM tenure.schedule WHERE origin = 'every' AND name = 'all'"
	require.EqualValues(t, 5, b.count(copies))
	require.Greater(t, b.count("SELECT count(DISTINCT jitter_ms) FROM tenure.schedule WHERE origin = 'every'"), int64(1))
	require.Zero(t, b.count("SELECT count(*) FROM tenure.schedule WHERE origin = 'every' AND (jitter_ms > 3600000 OR next_at - jitter_ms * interval '1 ms' <> date_trunc('hour', next_at - jitter_ms * interval '1 ms'))"))
	b.exec("UPDATE tenure.schedule SET next_at = clock_timestamp() - interval '1 minute' WHERE tenant_id = 't1'")
	tenants(8)
	b.spreadNow(tm)
	require.EqualValues(t, 8, b.count(copies))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE tenant_id = 't1' AND next_at < clock_timestamp()"), "the others stay as they are")
	require.NoError(t, b.fire(tm))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.job WHERE tenant_id = 't1' AND meta->>'schedule' = 'all'"))
	tenants(6)
	b.spreadNow(tm)
	require.EqualValues(t, 8, b.count(copies), "for a while, as another file may know them")
	b.spreadLater(tm)
	require.EqualValues(t, 6, b.count(copies), "tenants that there are no more have none")
	all = map[string]ScheduleConfig{"all": {EveryTenant: true, Kind: "k", Rule: "0 4 * * *"}}
	tm.spreader.settings.schedules.Store(&all)
	b.spreadNow(tm)
	require.EqualValues(t, 6, b.count(copies+" AND spec = '0 4 * * *' AND jitter_ms = 0 AND next_at > clock_timestamp() AND extract(hour FROM next_at AT TIME ZONE 'UTC') = 4"))
	none := map[string]ScheduleConfig{}
	tm.spreader.settings.schedules.Store(&none)
	b.spreadNow(tm)
	b.spreadLater(tm)
	require.Zero(t, b.count(copies))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule"), "acme's own stays")
	tm.duties.group.Wait()
}

// A schedule for every tenant that cannot be worked out here keeps no other one from reaching tenants, and is told of.
func TestAnUnreadableScheduleIsNotSpread(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, logged := b.term(t.Context())
	for _, name := range []string{"bad", "good"} {
		b.exec("INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, next_at) VALUES ('', $1, 'k', 'default', '@daily', clock_timestamp())", name)
	}
	b.exec("UPDATE tenure.schedule SET time_zone = 'Mars/Olympus' WHERE name = 'bad'")
	for range 2 {
		b.spreadNow(tm)
	}
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE tenant_id = 'acme' AND name = 'good'"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE tenant_id = 'acme'"))
	require.Len(t, logged.FilterMessageSnippet("is not in force").FilterField(zap.String("schedule", "bad")).All(), 1)
	tm.duties.group.Wait()
}

// A schedule for every tenant that was set is due until tenants have it, and adds no jobs itself.
func TestASetScheduleIsSpreadAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, _ := b.term(t.Context())
	b.spreadNow(tm)
	b.exec("INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, next_at) VALUES ('', 'all', 'k', 'default', '@daily', clock_timestamp())")
	tm.spreader.spreadDuty.due = time.Now().Add(time.Hour)
	require.NoError(t, b.fire(tm))
	require.False(t, tm.spreader.spreadDuty.due.After(time.Now()))
	require.True(t, tm.timers.next.After(time.Now()), "it is looked at again in a while")
	b.spreadNow(tm)
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE tenant_id = 'acme' AND origin = 'every'"))
	require.NoError(t, b.fire(tm))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.schedule WHERE next_at IS NULL AND tenant_id = ''"))
	require.Zero(t, b.count("SELECT count(*) FROM tenure.job"))
	tm.duties.group.Wait()
}

func TestBadConfiguredSchedules(t *testing.T) {
	t.Parallel()
	good := ScheduleConfig{Tenants: []tenancy.ID{"acme"}, Kind: "k", Rule: "@daily"}
	require.NoError(t, ValidateSchedules(map[string]ScheduleConfig{"s": good}))
	for says, change := range map[string]func(*ScheduleConfig){
		"schedules.s.kind":                func(c *ScheduleConfig) { c.Kind = "" },
		"schedules.s.args":                func(c *ScheduleConfig) { c.Args = "{" },
		"schedules.s.queue":               func(c *ScheduleConfig) { c.Queue = "two words" },
		"schedules.s: does not say which": func(c *ScheduleConfig) { c.Tenants = nil },
		"or says so twice":                func(c *ScheduleConfig) { c.EveryTenant = true },
		"schedules.s.tenants[0]":          func(c *ScheduleConfig) { c.Tenants = []tenancy.ID{""} },
		"schedules.s.rule":                func(c *ScheduleConfig) { c.Rule = "61 * * * *" },
		"schedules.s.time_zone":           func(c *ScheduleConfig) { c.TimeZone = "Europe/Amsterdm" },
		"schedules.s.end":                 func(c *ScheduleConfig) { c.End = "tomorrow" },
		"schedules.s.missed":              func(c *ScheduleConfig) { c.Missed = "some" },
		"schedules.s.priority":            func(c *ScheduleConfig) { c.Priority = 2000 },
		"schedules.s.max_attempts":        func(c *ScheduleConfig) { c.MaxAttempts = -1 },
		"schedules.s.jitter":              func(c *ScheduleConfig) { c.Jitter = time.Second },
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, ValidateSchedules(map[string]ScheduleConfig{"s": bad}), says)
	}
}

// nothing is what a kind gives that is not known.
func nothing(context.Context, *store.NewJob) (store.Given, error) { return store.Given{}, nil }
