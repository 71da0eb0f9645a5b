package routing_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// lacking is a configuration without a pool and what is placed there.
func lacking(c routing.Config, pool string) routing.Config {
	c.Pools, c.Tenants.Static = maps.Clone(c.Pools), maps.Clone(c.Tenants.Static)
	delete(c.Pools, pool)
	maps.DeleteFunc(c.Tenants.Static, func(_ tenancy.ID, s routing.TenantConfig) bool { return s.Pool == pool })
	return c
}

// A tenant that was moved to a pool, through it, or is about to be, would be lost with it.
// One that is not placed where the forwarding address stands needs nothing.
func TestApplyKeepsWhatMovedTenantsNeed(t *testing.T) {
	t.Parallel()
	dsns := map[string]string{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("p%d", i)
		dsns[name] = storetest.DSN(t, name, i)
	}
	all := withPools(dsns)
	all.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "p1"}, "globex": {Pool: "p3"}}
	r := started(t, all)
	row := func(pool, tenant, state, other string) {
		t.Helper()
		exec(t, dsns[pool], fmt.Sprintf("INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('%s', '%s', NULLIF('%s', '')) "+
			"ON CONFLICT (tenant_id) DO UPDATE SET state = EXCLUDED.state, other_pool = EXCLUDED.other_pool", tenant, state, other))
	}
	refused := func(why string) {
		t.Helper()
		change, err := r.Apply(t.Context(), lacking(all, "p2"))
		require.ErrorIs(t, err, routing.ErrInUse)
		require.EqualError(t, err, "pool p2 cannot be taken away: the pool is still in use: "+why+", first")
		require.Empty(t, change)
		poolOf(t, r, "p2")
	}
	_, p, err := r.Resolve(t.Context(), "acme") // so that something is remembered, which does not count
	require.NoError(t, err)
	require.Equal(t, "p1", p.Name)

	row("p1", "globex", "moved", "p2") // it is placed in p3
	row("p1", "initech", "moved", "p2")
	row("p1", "acme", "moving", "p2")
	refused(`tenant "acme" is being moved between it and pool p1; let that come to its end`)
	row("p1", "acme", "moved", "p2")
	refused("tenant \"acme\" is placed in pool p1 and lives there since it was moved; move it with `tenure tenants move`")
	row("p2", "acme", "moved", "p3")
	refused(`tenant "acme" is placed in pool p1 and led through it to pool p3; place it where it lives`)
	row("p1", "acme", "arriving", "p2")
	row("p2", "acme", "moving", "p1")
	refused(`tenant "acme" is being moved between it and pool p1; let that come to its end`)
	row("p1", "acme", "moved", "p3")
	row("p3", "acme", "moved", "p2")
	refused("tenant \"acme\" is placed in pool p1 and lives there since it was moved; move it with `tenure tenants move`")

	// A pool that does not answer cannot be asked, but what it said last is known.
	s := shutterOf(t, dsns["p1"])
	s.close(t)
	refused("tenant \"acme\" is placed in pool p1 and lives there since it was moved; move it with `tenure tenants move`")
	s.open(t)

	placed := lacking(all, "p2")
	placed.Tenants.Static["acme"] = routing.TenantConfig{Pool: "p3"}
	_, err = r.Apply(t.Context(), placed)
	require.ErrorIs(t, err, routing.ErrInUse, "p3 leads on")
	row("p3", "acme", "active", "")
	row("p2", "acme", "moved", "p3")
	takeAway(t, r, placed)
	leadsTo(t, r, "acme", "p3")
}

// A configuration that places a tenant elsewhere leaves its jobs behind, which is refused
// as long as it has any. Where it was moved to by command it may be placed.
func TestApplyLeavesNoJobsBehind(t *testing.T) {
	t.Parallel()
	dsns := map[string]string{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("p%d", i)
		dsns[name] = storetest.DSN(t, name, i)
	}
	placed := func(acme string) routing.Config {
		c := withPools(dsns)
		c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: acme}, "globex": {Pool: "p1"}, "initech": {Pool: "p1"}}
		return c
	}
	r := started(t, placed("p1"))
	refused := func(c routing.Config, why string) {
		t.Helper()
		change, err := r.Apply(t.Context(), c)
		require.ErrorIs(t, err, routing.ErrHasJobs)
		require.EqualError(t, err, why)
		require.Empty(t, change)
		leadsTo(t, r, "acme", "p1")
	}
	taken := func(acme string) {
		t.Helper()
		_, err := r.Apply(t.Context(), placed(acme))
		require.NoError(t, err)
		leadsTo(t, r, "acme", acme)
	}
	why := func(others string) string {
		return fmt.Sprintf("tenant \"acme\" cannot be placed in pool p2: a configuration does not move jobs, and it has unfinished ones in pool p1, "+
			"suspended and dead ones among them%s: move it with `tenure tenants move acme --to p2` and then change the configuration", others)
	}
	both := placed("p2")
	both.Tenants.Static["globex"] = routing.TenantConfig{Pool: "p3"}
	for table, more := range map[string]string{
		"job": "", "external_job": "", "timer_job": ", due_at",
		"suspended_job": ", origin", "dead_letter_job": ", origin, error",
	} {
		values := strings.NewReplacer("due_at", "now()", "origin", "'job'", "error", "''").Replace(more)
		exec(t, dsns["p1"], fmt.Sprintf("INSERT INTO tenure.%s (tenant_id, queue, kind, payload%s) "+
			"SELECT tenant_id, 'default', 'k', '{}'%s FROM unnest('{acme,globex,initech}'::text[]) tenant_id", table, more, values))
		refused(placed("p2"), why(""))
		refused(both, why(", as may 1 other"))
		exec(t, dsns["p1"], fmt.Sprintf("DELETE FROM tenure.%s WHERE tenant_id <> 'initech'", table))
	}
	taken("p2")
	taken("p1")

	exec(t, dsns["p1"], "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'default', 'k', '{}')")
	refused(placed("p2"), why(""))
	table := placed("p1")
	delete(table.Tenants.Static, "acme")
	table.Tenants.Table = &routing.TableConfig{Pool: "p3", Query: "SELECT 'p2' WHERE $1 = 'acme'"}
	refused(table, why(""))
	table.Tenants.Table.Query = "SELECT 'p1' WHERE $1 = 'acme'"
	_, err := r.Apply(t.Context(), table)
	require.NoError(t, err, "it stays where it is")
	refused(placed("p2"), why(""))
	exec(t, dsns["p1"], "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', 'moved', 'p2')") // and one came late
	taken("p2")

	// A pool that does not answer cannot be asked, and must not keep its tenants.
	exec(t, dsns["p2"], "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'default', 'k', '{}')")
	shutterOf(t, dsns["p2"]).close(t)
	taken("p3")
}

// What the table said lately is asked again: it may have been corrected since. What it
// says of a tenant that was moved counts, too.
func TestApplyKeepsWhatTheTableLeadsTo(t *testing.T) {
	t.Parallel()
	dsns := map[string]string{"p1": storetest.DSN(t, "p1", 1), "p2": storetest.DSN(t, "p2", 2)}
	exec(t, dsns["p1"], "CREATE SCHEMA app; CREATE TABLE app.tenant (id text PRIMARY KEY, pool text); INSERT INTO app.tenant VALUES ('acme', 'p2'), ('globex', 'p1'), ('initech', 'p2')")
	all := withPools(dsns)
	all.Tenants.Table = &routing.TableConfig{Pool: "p1", Query: "SELECT pool FROM app.tenant WHERE id = $1", Cache: time.Hour}
	r := started(t, all)
	for id, pool := range map[tenancy.ID]string{"acme": "p2", "globex": "p1"} {
		_, p, err := r.Resolve(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, pool, p.Name)
	}
	_, err := r.Apply(t.Context(), lacking(all, "p2"))
	require.ErrorIs(t, err, routing.ErrInUse)
	require.EqualError(t, err, `pool p2 cannot be taken away: the pool is still in use: tenants.table leads tenant "acme" to it`)
	_, p, err := r.Resolve(t.Context(), "acme")
	require.NoError(t, err, "nothing was changed")
	require.Equal(t, "p2", p.Name)

	exec(t, dsns["p1"], "UPDATE app.tenant SET pool = 'p1' WHERE id = 'acme'; INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('initech', 'moved', 'p2')")
	_, err = r.Apply(t.Context(), lacking(all, "p2"))
	require.ErrorContains(t, err, "tenants.table leads tenant \"initech\" to it; move it with `tenure tenants move`, first")
	exec(t, dsns["p1"], "DELETE FROM app.tenant WHERE id = 'initech'")
	takeAway(t, r, lacking(all, "p2"))
	leadsTo(t, r, "acme", "p1")
}

// Where tenants live is known by what the table and a pool's ledger have said, also under another configuration and while
// their database cannot be asked: the tenants' own pools are none the worse for it.
func TestApplyRemembersWhereTenantsLive(t *testing.T) {
	t.Parallel()
	dsns := map[string]string{"p1": storetest.DSN(t, "p1", 1), "p2": storetest.DSN(t, "p2", 2), "p3": storetest.DSN(t, "p3", 3)}
	exec(t, dsns["p1"], "CREATE SCHEMA app; CREATE TABLE app.tenant (id text PRIMARY KEY, pool text); INSERT INTO app.tenant VALUES ('listed', 'p2'); INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('moved', 'moved', 'p2')")
	c := withPools(dsns)
	c.Tenants.Table = &routing.TableConfig{Pool: "p1", Query: "SELECT pool FROM app.tenant WHERE id = $1", Cache: time.Hour}
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"moved": {Pool: "p1"}}
	r := started(t, c)
	known := func(id tenancy.ID, when string) {
		t.Helper()
		_, p, err := r.Resolve(t.Context(), id)
		require.NoError(t, err, when)
		require.Equal(t, "p2", p.Name, when)
	}
	known("listed", "at first")
	known("moved", "at first")
	s := shutterOf(t, dsns["p1"])
	s.close(t)
	c = lacking(c, "p3")
	takeAway(t, r, c)
	known("listed", "another pool went")
	known("moved", "another pool went")
	c = lacking(c, "none")
	p1 := c.Pools["p1"]
	p1.MaxConns++
	c.Pools["p1"] = p1
	takeAway(t, r, c)
	known("listed", "the pool has other settings")
	known("moved", "the pool has other settings")
	s.open(t)
	require.Eventually(t, func() bool { _, err := poolOf(t, r, "p1").Number(); return err == nil }, patience, 10*time.Millisecond)
	_, err := r.Apply(t.Context(), lacking(c, "p2"))
	require.ErrorIs(t, err, routing.ErrInUse)

	exec(t, dsns["p1"], "UPDATE app.tenant SET pool = 'p1'")
	_, err = r.Apply(t.Context(), c)
	require.NoError(t, err)
	leadsTo(t, r, "listed", "p1") // it is asked again
}

// What could not be asked in the time that there was may have jobs, and is not taken away.
func TestApplyThatIsCutShortTakesNothingAway(t *testing.T) {
	t.Parallel()
	c := withPools(map[string]string{"kept": storetest.DSN(t, "kept", 1), "used": storetest.DSN(t, "used", 2)})
	exec(t, c.Pools["used"].DSN, "INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ('acme', 'default', 'k', '{}', now() + interval '1 h')")
	r := started(t, c)
	proxy, err := faultproxy.New(storetest.DSN(t, "silent", 3))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	proxy.Hold(func(string) bool { return true })
	defer proxy.Hold(nil)
	next := lacking(c, "used")
	next.Pools["silent"] = routing.PoolConfig{DSN: proxy.DSN()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = r.Apply(ctx, next)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "not all pools could be asked for jobs in time")
	poolOf(t, r, "used")
}

// A pool's settings may change, but not the database that they lead to: what is there would
// be forgotten. Where that cannot be seen at once, the pool stays out when it is.
func TestApplyStaysOnTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	to := func(dsn string) routing.Config {
		c := withPools(map[string]string{"main": dsn})
		c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}
		return c
	}
	r := started(t, to(dsn))
	apply := func(dsn string) error {
		change, err := r.Apply(t.Context(), to(dsn))
		for _, p := range change.Removed {
			r.Close(p)
		}
		return err
	}
	require.ErrorContains(t, apply(storetest.DSN(t, "main", 1)), "pool main: its DSN leads to another database than before: correct the DSN")
	s := pgtest.Server(t, devpg.Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	require.ErrorContains(t, apply(s.DSN("main")), "pool main: its DSN leads to another server than before")
	requireUp(t, poolOf(t, r, "main"), 1)

	proxy, err := faultproxy.New(s.DSN("main"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	require.NoError(t, apply(proxy.DSN()), "it does not answer")
	proxy.SetRule(nil)
	require.Eventually(t, func() bool {
		_, err := poolOf(t, r, "main").Number()
		return err != nil && strings.Contains(err.Error(), "its DSN leads to another server than before")
	}, patience, 10*time.Millisecond)
	require.NoError(t, apply(dsn+"&application_name=x"), "and back")
	requireUp(t, poolOf(t, r, "main"), 1)
}

// TestApplyOfCredentials: who rotates a password, or the user, changes no pool: what runs on it goes on, and new
// connections are made by the new ones. Those that the server refuses are refused, with what else is new.
func TestApplyOfCredentials(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	r := started(t, withPools(map[string]string{"main": dsn}))
	p := poolOf(t, r, "main")
	apply := func(dsn string) (routing.Change, error) {
		return r.Apply(t.Context(), withPools(map[string]string{"main": dsn}))
	}
	users := func() (open, next string) {
		t.Helper()
		c, err := p.ConnectLock(t.Context())
		require.NoError(t, err)
		defer c.Close(t.Context())
		require.NoError(t, c.QueryRow(t.Context(), "SELECT current_user").Scan(&next))
		require.NoError(t, p.Jobs().QueryRow(t.Context(), "SELECT current_user").Scan(&open))
		return open, next
	}
	open, next := users()
	require.Equal(t, []string{"postgres", "postgres"}, []string{open, next})
	change, err := apply(storetest.AsRuntime(dsn))
	require.NoError(t, err)
	require.Empty(t, append(change.Added, change.Removed...))
	require.Same(t, p, poolOf(t, r, "main"))
	open, next = users()
	require.Equal(t, []string{"postgres", "tenure_test_app"}, []string{open, next})
	_, err = apply(storetest.As(dsn, "nobody_here"))
	require.ErrorContains(t, err, `pool main: its server refuses user "nobody_here"`)
	_, next = users()
	require.Equal(t, "tenure_test_app", next)
	_, err = r.Apply(t.Context(), withPools(map[string]string{"main": dsn, "new": pgtest.Database(t)}))
	require.ErrorContains(t, err, "pool new: has no ledger")
	_, next = users()
	require.Equal(t, "postgres", next, "what else is refused holds no password back")
	for _, more := range []string{"&target_session_attrs=read-write", "&target_session_attrs=read-write&application_name=x"} {
		change, err = apply(storetest.AsRuntime(dsn) + more)
		require.NoError(t, err)
		require.Len(t, change.Removed, 1, "other settings are another pool")
		r.Close(change.Removed[0])
	}
}

// takeAway applies a configuration that lacks one pool.
func takeAway(t *testing.T, r *routing.Router, cfg routing.Config) {
	t.Helper()
	change, err := r.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, change.Removed, 1)
	r.Close(change.Removed[0])
}

func leadsTo(t *testing.T, r *routing.Router, id tenancy.ID, pool string) {
	t.Helper()
	_, p, err := r.Resolve(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, pool, p.Name)
}

// A pool that was out of service before stays so, and keeps no other change from coming into
// force. It may be mended by the configuration, or be taken away.
func TestApplyBesideAPoolThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	good, bad := storetest.DSN(t, "good", 1), storetest.DSN(t, "bad", 2)
	exec(t, bad, "UPDATE tenure.pool SET name = 'else'")
	dsns := map[string]string{"good": good, "bad": bad}
	r := started(t, withPools(dsns))
	requireUnfit(t, poolOf(t, r, "bad"), `the database says that it is pool "else"`)

	dsns["new"] = storetest.DSN(t, "new", 3)
	_, err := r.Apply(t.Context(), withPools(dsns))
	require.NoError(t, err)
	requireUp(t, poolOf(t, r, "new"), 3)
	requireUnfit(t, poolOf(t, r, "bad"), `the database says that it is pool "else"`)

	dsns["bad"] = pgtest.Database(t)
	_, err = r.Apply(t.Context(), withPools(dsns))
	require.ErrorContains(t, err, "pool bad: has no ledger", "a change to what cannot be used is refused")
	dsns["bad"] = storetest.DSN(t, "bad", 2)
	_, err = r.Apply(t.Context(), withPools(dsns))
	require.NoError(t, err)
	requireUp(t, poolOf(t, r, "bad"), 2)

	exec(t, good, "UPDATE tenure.pool SET name = 'else'")
	again := started(t, withPools(dsns))
	requireUnfit(t, poolOf(t, again, "good"), `the database says that it is pool "else"`)
	delete(dsns, "good")
	_, err = again.Apply(t.Context(), withPools(dsns))
	require.NoError(t, err)
}
