package promises_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// everySecond is a tenant's schedule whose runs are all made up for.
func everySecond(tenant tenancy.ID) operate.Schedule {
	return operate.Schedule{Tenant: tenant, Name: "tick", Args: plain{1}, Rule: "@every 1s", Missed: operate.MissedAll}
}

func (b *testbed) set(c *tenure.Client, s operate.Schedule) time.Time {
	b.t.Helper()
	next, err := c.Operator().Schedules().Set(b.t.Context(), s)
	require.NoError(b.t, err)
	return next
}

// ticks counts what a tenant's schedule has added, wherever it stands.
const ticks = `SELECT count(*) FROM (SELECT meta FROM tenure.job WHERE tenant_id = $1 UNION ALL SELECT meta FROM tenure.completed_job WHERE tenant_id = $1) j WHERE meta->>'schedule' = 'tick'`

// requireEveryTick sees that each second from the first run on to the last has one run, over all
// pools, once the schedule is paused.
func (b *testbed) requireEveryTick(tenant string) {
	b.t.Helper()
	times := map[time.Time]int{}
	runs := 0
	for _, db := range b.db {
		rows, err := db.Query(b.t.Context(), `SELECT (meta->>'scheduled_at')::timestamptz FROM (SELECT tenant_id, meta FROM tenure.job UNION ALL SELECT tenant_id, meta FROM tenure.completed_job) j
			WHERE tenant_id = $1 AND meta->>'schedule' = 'tick'`, tenant)
		require.NoError(b.t, err)
		for rows.Next() {
			var at time.Time
			require.NoError(b.t, rows.Scan(&at))
			times[at.UTC()]++
			runs++
		}
		require.NoError(b.t, rows.Err())
	}
	all := slices.SortedFunc(maps.Keys(times), time.Time.Compare)
	require.NotEmpty(b.t, all)
	require.Len(b.t, all, runs, "no second has two runs")
	require.Equal(b.t, runs, int(all[len(all)-1].Sub(all[0])/time.Second)+1, "every second has one, of %v to %v", all[0], all[len(all)-1])
}

// Holders are killed and stopped while schedules of two tenants are due every second: each second
// has its run, once.
func TestSchedulesFireOnceWhileTheLockMoves(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	first := b.startChild(b.gossiping("n1"))
	nodes := map[string]*child{first.member: first}
	add := func(name string) {
		c := b.startChild(b.gossiping(name, slices.Collect(maps.Values(nodes))[0].addr))
		nodes[c.member] = c
	}
	add("n2")
	add("n3")
	operator := b.client(b.named("operator"))
	for _, id := range b.tenants() {
		b.set(operator, everySecond(id))
	}
	for round, end := range []func(*child){(*child).kill, (*child).stop, (*child).kill} {
		before := b.count("p1", ticks, "t1")
		b.atLeast(before+3, "p1", ticks, "t1")
		var holder *child
		require.Eventually(t, func() bool {
			var member string
			err := b.db["p1"].QueryRow(t.Context(), "SELECT coalesce(holder_member, '') FROM tenure.acquire_lock").Scan(&member)
			holder = nodes[member]
			return err == nil && holder != nil
		}, patience, 5*time.Millisecond)
		delete(nodes, holder.member)
		end(holder)
		before = b.count("p1", ticks, "t2")
		b.atLeast(before+3, "p1", ticks, "t2")
		add(fmt.Sprintf("m%d", round))
	}
	for _, id := range b.tenants() {
		require.NoError(t, operator.Operator().Schedules().Pause(t.Context(), id, "tick"))
		b.requireEveryTick(string(id))
	}
}

// atLeast waits until a query returns a number that is not less than want.
func (b *testbed) atLeast(want int, pool, sql string, args ...any) {
	b.t.Helper()
	got := -1
	require.Eventually(b.t, func() bool {
		err := b.db[pool].QueryRow(b.t.Context(), sql, args...).Scan(&got)
		return err == nil && got >= want
	}, patience, 10*time.Millisecond, "%s: want %d", sql, want)
}

// A tenant moves to and fro while its schedule is due every second: each second has its run, once.
func TestSchedulesMoveWithTheirTenant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	n := b.start(b.gossiping("a"), b.registry(nil))
	b.set(n.Client(), everySecond("t1"))
	for i, to := range []string{"p2", "p1", "p2"} {
		from := []string{"p1", "p2", "p1"}[i]
		before := b.count(from, ticks, "t1")
		b.atLeast(before+2, from, ticks, "t1")
		require.Equal(t, 1, b.move(n.Client(), "t1", to).Jobs["schedules"])
	}
	before := b.count("p2", ticks, "t1")
	b.atLeast(before+2, "p2", ticks, "t1")
	require.NoError(t, n.Operator().Schedules().Pause(t.Context(), "t1", "tick"))
	b.requireEveryTick("t1")
	found, err := n.Operator().Schedules().List(t.Context(), operate.ScheduleFilter{Tenant: "t1"})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "p2", found[0].Pool)
}

// A copy of a schedule for every tenant goes on in a pool that was added since the schedule was set: its pattern comes with it.
func TestACopyMovesToAPoolThatLacksItsSchedule(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	n := b.start(b.gossiping("a"), b.registry(nil))
	b.set(n.Client(), everySecond(operate.EveryTenant))
	b.atLeast(1, "p1", ticks, "t1")
	b.exec("p2", "DELETE FROM tenure.schedule")
	require.Equal(t, 1, b.move(n.Client(), "t1", "p2").Jobs["schedules"])
	require.Equal(t, 2, b.count("p2", "SELECT count(*) FROM tenure.schedule WHERE (tenant_id, origin) IN (('', 'set'), ('t1', 'every'))"))
	b.atLeast(b.count("p2", ticks, "t1")+2, "p2", ticks, "t1")
}

// In an idle pool, whose holder dozes, a schedule is due all the same, and one that is set wakes it.
func TestSchedulesEndADoze(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock = acquisition.LockConfig{TTL: 4 * time.Second, RenewEvery: time.Second}
	b.cfg.Acquire.Session = acquisition.SessionConfig{TTL: 8 * time.Second, HeartbeatEvery: 2 * time.Second}
	b.cfg.Acquire.IdleWait = b.cfg.Acquire.Lock.RenewEvery
	n := b.start(b.gossiping("a"), b.registry(nil))
	n.holds("p1")
	dozes := func() {
		t.Helper()
		b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE expires_at - renewed_at > interval '6 s'")
	}
	dozes()
	soon := everySecond("t1")
	soon.Rule = "R1/PT12S"
	due := b.set(n.Client(), soon)
	dozes()
	require.True(t, databaseTime(b, "p1").Before(due), "it is not due while it dozes, or this shows nothing")
	b.atLeast(1, "p1", ticks, "t1")

	dozes()
	every := operate.Schedule{Tenant: operate.EveryTenant, Name: "all", Args: plain{1}, Rule: "@daily"}
	b.set(b.client(b.named("operator")), every) // which sends no hints
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.schedule WHERE origin = 'every' AND tenant_id = 't1'")
}

// What the configuration says of schedules comes and changes as nodes are reloaded, also for
// tenants that are added; what was set stays as it is, and what is wrong changes nothing.
func TestSchedulesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2) // t1, t2 in p1; t3, t4 in p2
	later := without(b.gossiping("a"), "p9")
	later.Tenants.Static = maps.Clone(later.Tenants.Static)
	delete(later.Tenants.Static, "t4")
	later.Schedules = map[string]acquisition.ScheduleConfig{
		"all": {EveryTenant: true, Kind: "plain", Rule: "@daily", Jitter: time.Hour},
		"one": {Tenants: []tenancy.ID{"t1", "t3"}, Kind: "plain", Rule: "@daily"},
	}
	n := b.start(later, b.registry(nil))
	own := everySecond("t2")
	own.Name, own.Rule = "own", "@daily"
	b.set(n.Client(), own)
	names := func() (all []string) {
		found, err := n.Operator().Schedules().List(t.Context(), operate.ScheduleFilter{})
		require.NoError(t, err)
		for _, s := range found {
			if s.Tenant != operate.EveryTenant {
				all = append(all, fmt.Sprint(s.Tenant, " ", s.Name, " ", s.Rule))
			}
		}
		return all
	}
	become := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Equal(want, names()) }, patience, 20*time.Millisecond, "%v", want)
	}
	become("t1 all @daily", "t1 one @daily", "t2 all @daily", "t2 own @daily", "t3 all @daily", "t3 one @daily")

	bad := later
	bad.Schedules = map[string]acquisition.ScheduleConfig{"all": {EveryTenant: true, Kind: "plain", Rule: "61 * * * *"}}
	require.ErrorContains(t, n.reload(bad), "schedules.all.rule")
	next := without(b.gossiping("a"), "p9")
	next.Schedules = map[string]acquisition.ScheduleConfig{
		"all": {EveryTenant: true, Kind: "plain", Rule: "@hourly"},
		"two": {Tenants: []tenancy.ID{"t1"}, Kind: "plain", Rule: "@daily"},
	}
	require.NoError(t, n.reload(next))
	// what another node's file may have goes on for a while
	become("t1 all @hourly", "t1 one @daily", "t1 two @daily", "t2 all @hourly", "t2 own @daily", "t3 all @hourly", "t3 one @daily", "t4 all @hourly")

	// Of a tenant that only the lookup table may know the reload says that it does not.
	next.Schedules["two"] = acquisition.ScheduleConfig{Tenants: []tenancy.ID{"t1", "nobody"}, Kind: "plain", Rule: "@daily"}
	require.ErrorContains(t, n.reload(next), "schedules.two.tenants[1]")
	next.Tenants.Table = &routing.TableConfig{Pool: "p1", Query: "SELECT 'p1' WHERE $1 = 'somebody'"}
	done, err := n.Reload(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, []tenancy.ID{"nobody"}, done.Unknown)
}

// The jobs of a schedule have what their kind gives by default, whoever has set it and whoever adds them: its queue, its
// exclusive key, its timeout, and that their arguments are encrypted. What the schedule says itself stays.
func TestScheduledJobsHaveWhatTheirKindGives(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Encryption.Keys = []string{secretKey("a")}
	b.cfg.Schedules = map[string]acquisition.ScheduleConfig{
		"configured": {Tenants: []tenancy.ID{"t1"}, Kind: "per-account", Args: `{"account": "hidden"}`, Rule: "@every 1s"},
		"elsewhere":  {Tenants: []tenancy.ID{"t1"}, Kind: "per-account", Args: `{"account": "hidden"}`, Rule: "@every 1s", Queue: "other"},
		"spread":     {EveryTenant: true, Kind: "per-account", Args: `{"account": "hidden"}`, Rule: "@every 1s"},
	}
	seen := make(chan string, 1000)
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[perAccount]) error {
		var meta struct{ Schedule string }
		if err := json.Unmarshal(j.Meta, &meta); err != nil {
			return err
		}
		deadline, _ := ctx.Deadline()
		seen <- fmt.Sprint(meta.Schedule, ": ", j.Args.Account, " ", j.ExclusiveKey, " ", j.Queue, " ", time.Until(deadline) < 90*time.Second)
		return nil
	}, job.ExclusiveBy(func(a perAccount) string {
		if a.Account == "" {
			panic("no account")
		}
		return "key of " + a.Account
	}), job.Queue("ledgers"), job.Timeout(90*time.Second))
	n := b.start(b.named("a"), r)
	s := operate.Schedule{Tenant: "t1", Name: "bare", Args: perAccount{"hidden"}, Rule: "@every 1s"}
	bare := b.client(b.named("operator")) // which has no handlers
	b.set(bare, s)
	s.Name = "own"
	b.set(n.Client(), s)
	runs := func(want ...string) {
		t.Helper()
		left := map[string]bool{}
		for _, name := range want {
			left[name] = true
		}
		for len(left) > 0 {
			select {
			case got := <-seen:
				name, gives, _ := strings.Cut(got, ": ")
				queue := "ledgers"
				if name == "elsewhere" {
					queue = "other"
				}
				require.Equal(t, "hidden key of hidden "+queue+" true", gives, name)
				delete(left, name)
			case <-time.After(patience):
				require.Fail(t, "some schedules added no job", "%v", left)
			}
		}
	}
	runs("configured", "elsewhere", "spread", "bare", "own")
	b.exec("p1", "DELETE FROM tenure.schedule WHERE origin <> 'set'")
	s.Rule = "@yearly"
	for _, by := range []*tenure.Client{n.Client(), bare} {
		for _, name := range []string{"at once by one that has the handler", "bare", "own"} {
			if s.Name = strings.ReplaceAll(name, " ", "-"); by == n.Client() {
				b.set(n.Client(), s)
			}
			_, err := by.Operator().Schedules().Run(t.Context(), "t1", s.Name)
			require.NoError(t, err)
			runs(s.Name)
		}
	}
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE payload::text LIKE '%hidden%'"))
	found, err := bare.Operator().Schedules().List(t.Context(), operate.ScheduleFilter{Name: "bare"})
	require.NoError(t, err)
	require.Equal(t, "ledgers", found[0].Queue, "it is shown where the jobs go")

	s.Name, s.Args = "bad", job.RawArgs{Name: "per-account", Payload: []byte(`{"account": 7}`)}
	_, err = n.Operator().Schedules().Set(t.Context(), s)
	require.ErrorContains(t, err, "for its exclusive key")
	require.True(t, tenure.Refused(err))
	b.set(bare, s) // who cannot know
	s.Name, s.Args, s.Rule = "panics", perAccount{}, "@every 1s"
	b.set(bare, s)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.schedule WHERE name = 'panics' AND next_at < clock_timestamp() - interval '1 s'")
	_, err = n.Operator().Schedules().Run(t.Context(), "t1", "panics")
	require.ErrorContains(t, err, "panicked: no account")
	_, err = n.Operator().Schedules().Run(t.Context(), "t1", "bad")
	require.ErrorContains(t, err, "for its exclusive key")
	require.True(t, tenure.Refused(err))

	n.stop()
	b.start(b.named("without"), job.NewRegistry()).holds("p1")
	s.Name, s.Args = "handled-by-none", perAccount{"hidden"}
	b.set(bare, s)
	const there = "SELECT least(count(*), 1) FROM tenure.job WHERE kind = 'per-account' AND queue = 'ledgers' AND meta->>'schedule' = $1"
	b.eventually(1, "p1", there, s.Name)
	s.Name, s.Rule = "run-by-another", "@yearly"
	b.set(bare, s)
	_, err = bare.Operator().Schedules().Run(t.Context(), "t1", s.Name)
	require.NoError(t, err)
	require.Equal(t, 1, b.count("p1", there, s.Name), "the ledger remembers the queue of a kind that no node has")
}

// Workers outside the cluster get the jobs of schedules that say so, of the configuration's, of one for every tenant and
// after a move too; no node needs a handler, and a run waits for the one before to end.
func TestSchedulesForExternalWorkers(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	b.cfg.Encryption.Keys = []string{secretKey("a")}
	b.cfg.Schedules = map[string]acquisition.ScheduleConfig{"configured": {Tenants: []tenancy.ID{"t1"}, Kind: "scan", Args: `{"n": 1}`, Rule: "@every 1s", External: true}}
	r := b.registry(nil)
	job.Handle(r, func(context.Context, *job.Job[perAccount]) error { return nil }, job.ExclusiveBy(func(a perAccount) string { return a.Account }))
	n := b.start(b.gossiping("a"), r)
	b.set(n.Client(), operate.Schedule{Tenant: "t1", Name: "keyed", Args: perAccount{"7"}, Rule: "@every 1s", External: true})
	b.atLeast(2, "p1", "SELECT count(*) FROM tenure.external_job WHERE exclusive_key = '7'")
	every := operate.Schedule{Tenant: operate.EveryTenant, Name: "every", Args: scan{1}, Rule: "@every 1s", Wait: true, External: true}
	b.set(n.Client(), every)
	workers := n.Client().ExternalWorkers()
	type run struct{ schedule, tenant string }
	until := func(want ...run) {
		t.Helper()
		for began := time.Now(); len(want) > 0; {
			require.Less(t, time.Since(began), patience, "%v", want)
			got, err := workers.Acquire(t.Context(), external.AcquireRequest{Topic: "scan", Worker: "w", Max: 10, LockFor: time.Minute, Wait: time.Second})
			require.NoError(t, err)
			for _, j := range got {
				var meta struct{ Schedule string }
				require.NoError(t, json.Unmarshal(j.Meta, &meta))
				require.JSONEq(t, `{"n": 1}`, string(j.Payload))
				want = slices.DeleteFunc(want, func(r run) bool { return r == run{meta.Schedule, string(j.Tenant)} })
				require.NoError(t, workers.Complete(t.Context(), external.Result{Lock: j.Lock}))
			}
		}
	}
	until(run{"configured", "t1"}, run{"every", "t1"}, run{"every", "t2"})
	b.move(n.Client(), "t1", "p2")
	until(run{"configured", "t1"}, run{"every", "t1"}, run{"every", "t2"})
	for _, p := range []string{"p1", "p2"} {
		require.Zero(t, b.count(p, "SELECT count(*) FROM tenure.job"))
	}
	every.Wait = false
	b.set(n.Client(), every)
	until(run{"every", "t2"})
	every.External, every.Elsewhere = false, true
	b.set(n.Client(), every) // which is all that has changed
	b.atLeast(1, "p2", "SELECT count(*) FROM tenure.job WHERE tenant_id = 't2'")
	every.External = true
	b.set(n.Client(), every)
	until(run{"every", "t2"})
	require.NoError(t, n.Operator().Schedules().Pause(t.Context(), operate.EveryTenant, "every"))
	id, err := n.Operator().Schedules().Run(t.Context(), "t2", "every")
	require.NoError(t, err)
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.external_job WHERE id = $1", int64(id)))
	require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.job WHERE id = $1", int64(id)))
}

// What the API is asked for is done, or refused with the field that is wrong.
func TestSchedulesByTheAPI(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	n := b.start(b.gossiping("a"), b.registry(nil))
	ctx, all := t.Context(), n.Operator().Schedules()
	good := operate.Schedule{Tenant: "t1", Name: "s", Args: plain{1}, Rule: "@daily"}
	b.set(n.Client(), good)
	for says, change := range map[string]func(*operate.Schedule){
		"name":         func(s *operate.Schedule) { s.Name = "two words" },
		"tenant":       func(s *operate.Schedule) { s.Tenant = "" },
		"args":         func(s *operate.Schedule) { s.Args = nil },
		"register one": func(s *operate.Schedule) { s.Args = job.RawArgs{Name: "pian", Payload: []byte("{}")} },
		"queue":        func(s *operate.Schedule) { s.Queue = "two words" },
		"priority":     func(s *operate.Schedule) { s.Priority = job.MinPriority - 1 },
		"max attempts": func(s *operate.Schedule) { s.MaxAttempts = -1 },
		"meta":         func(s *operate.Schedule) { s.Meta = map[string]any{jobmeta.Prefix + "x": 1} },
		"rule":         func(s *operate.Schedule) { s.Rule = "61 * * * *" },
		"time_zone":    func(s *operate.Schedule) { s.TimeZone = "Europe/Amsterdm" },
		"missed":       func(s *operate.Schedule) { s.Missed = "some" },
		"jitter":       func(s *operate.Schedule) { s.Jitter = time.Second },
		"no time left": func(s *operate.Schedule) { s.End = time.Now().Add(-time.Hour) },
	} {
		bad := good
		change(&bad)
		_, err := all.Set(ctx, bad)
		require.ErrorContains(t, err, says)
		require.True(t, tenure.Refused(err), err)
	}
	found, err := all.List(ctx, operate.ScheduleFilter{Tenant: "t1", Name: "s"})
	require.NoError(t, err)
	require.Equal(t, "@daily", found[0].Rule, "what was in force stays")

	require.NoError(t, all.Pause(ctx, "t1", "s"))
	id, err := all.Run(ctx, "t1", "s")
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1", int64(id))
	require.NoError(t, all.Resume(ctx, "t1", "s"))
	require.NoError(t, all.Delete(ctx, "t1", "s"))
	require.ErrorIs(t, all.Delete(ctx, "t1", "s"), operate.ErrNoSchedule)
	_, err = all.Run(ctx, "t1", "s")
	require.ErrorIs(t, err, operate.ErrNoSchedule)
	require.ErrorIs(t, all.Pause(ctx, "nobody", "s"), tenure.ErrUnknownTenant)

	every := good
	every.Tenant, every.Rule = operate.EveryTenant, "@every 1s"
	b.set(n.Client(), every)
	b.atLeast(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE meta->>'schedule' = 's' AND id <> $1", int64(id))
	b.atLeast(1, "p2", "SELECT count(*) FROM tenure.completed_job WHERE meta->>'schedule' = 's'")
	require.NoError(t, all.Pause(ctx, operate.EveryTenant, "s"))
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.schedule WHERE tenant_id = 't2' AND paused"))
	require.NoError(t, all.Resume(ctx, operate.EveryTenant, "s"))
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.schedule WHERE tenant_id = 't2' AND NOT paused"))
	require.Error(t, all.Delete(ctx, "t1", "s"), "it is every tenant's")
	require.NoError(t, all.Delete(ctx, operate.EveryTenant, "s"))
	err = all.Delete(ctx, operate.EveryTenant, "s")
	require.ErrorIs(t, err, operate.ErrNoSchedule)
	require.NotContains(t, err.Error(), "try again")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.schedule"))
	require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.schedule"))
}
