package doctor_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/doctor"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 60 * time.Second

// bundle is a pool of its own, and the configuration that names it.
type bundle struct {
	t   *testing.T
	cfg config.Config
	db  *pgx.Conn
}

func setup(t *testing.T, dsn string) *bundle {
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: dsn, MaxConns: 8}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main", Schema: "public2"}}
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	b := &bundle{t, cfg, conn}
	b.exec("CREATE SCHEMA public2")
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// session makes a session that was seen ago, lives for ttl beyond that, and handles "known".
func (b *bundle) session(ago, ttl time.Duration) uuid.UUID {
	id := uuid.New()
	b.exec(`INSERT INTO tenure.node_session (session_id, node, member, version, kinds, last_seen, expires_at)
		VALUES ($1, 'n', $2, 'v', '{known}', clock_timestamp() - $3::interval, clock_timestamp() - $3::interval + $4::interval)`, id, id.String(), ago, ttl)
	return id
}

func (b *bundle) examine() doctor.Examination {
	return doctor.Examine(b.t.Context(), b.cfg, doctor.Options{Within: patience})
}

// finding is the one whose text says this; nothing is found that is not whole.
func (b *bundle) finding(what string) (f doctor.Finding) {
	b.t.Helper()
	e := b.examine()
	for _, one := range e.Findings {
		require.NotEmpty(b.t, one.Why, one.What)
		require.NotEmpty(b.t, one.Mend, one.What)
		require.NotEmpty(b.t, one.Check, one.What)
	}
	i := slices.IndexFunc(e.Findings, func(f doctor.Finding) bool { return strings.Contains(f.What, what) })
	require.GreaterOrEqual(b.t, i, 0, "no finding says %q: %v", what, e.Findings)
	return e.Findings[i]
}

func (b *bundle) lacks(what string) {
	b.t.Helper()
	for _, f := range b.examine().Findings {
		require.NotContains(b.t, f.What, what)
	}
}

// On a sound pool nothing is found but what the tests' server is: careless and a superuser's.
func TestNothingIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("SELECT tenure.enqueue('acme', 'known', '{}')")
	session := b.session(0, time.Hour)
	b.exec("UPDATE tenure.acquire_lock SET holder = $1, holder_member = 'n', renewed_at = clock_timestamp(), expires_at = clock_timestamp() + interval '1 hour'", session)
	e := b.examine()
	require.Equal(t, []string{"main"}, e.Examined)
	require.Empty(t, e.Partly)
	for _, f := range e.Findings {
		require.True(t, strings.HasPrefix(f.What, "fsync") || strings.HasPrefix(f.What, "full_page_writes") || strings.Contains(f.What, "superuser") ||
			f.Check == "replication" || strings.Contains(f.What, "connections to its server"), f) // of other tests on the server
	}
}

func TestPoolsThatAreDown(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.cfg.Pools["gone"] = routing.PoolConfig{DSN: "postgres://app:hunter2@127.0.0.1:1/gone"}
	c, err := pgx.ParseConfig(b.cfg.Pools["main"].DSN)
	require.NoError(t, err)
	b.cfg.Pools["absent"] = routing.PoolConfig{DSN: strings.Replace(b.cfg.Pools["main"].DSN, c.Database, "no_such_database", 1)}
	f := b.finding("cannot be reached")
	require.Equal(t, []string{"gone"}, f.Pools)
	require.Equal(t, doctor.Error, f.Severity)
	require.NotContains(t, f.What+f.Said, "hunter2")
	require.Contains(t, b.finding(`refuses user`).Mend, "tenure migrate --pool absent")
	b.cfg.Pools["main"] = routing.PoolConfig{DSN: b.cfg.Pools["main"].DSN, TenantDSN: "postgres://app:hunter2@127.0.0.1:1/main"}
	f = b.finding("no transaction of a tenant can begin")
	require.Equal(t, []string{"main"}, f.Pools)
	require.NotContains(t, f.What+f.Said, "hunter2")
	e := b.examine()
	require.Equal(t, []string{"main"}, e.Examined)
	require.Equal(t, []string{"absent", "gone"}, e.Partly)
	require.Equal(t, doctor.Error, e.Findings[0].Severity, "the worst first")
}

// A database that takes too long is told of, with what was found until then, and the others are
// not waited for by it.
func TestAPoolThatHangs(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	other, err := pgx.Connect(t.Context(), b.cfg.Pools["main"].DSN)
	require.NoError(t, err)
	defer other.Close(context.WithoutCancel(t.Context()))
	b.exec("BEGIN")
	b.exec("LOCK TABLE tenure.node_session")
	var e doctor.Examination
	require.Eventually(t, func() bool { // on a busy machine it may not come as far as that table within a second
		e = doctor.Examine(t.Context(), b.cfg, doctor.Options{Within: time.Second})
		return slices.ContainsFunc(e.Findings, func(f doctor.Finding) bool { return strings.Contains(f.What, `from "nodes" on`) })
	}, patience, time.Millisecond)
	require.Equal(t, []string{"main"}, e.Partly)
	b.exec("ROLLBACK")
}

// Who has locked a table of the ledger is named, and not those who wait as others do; so does whoever looks there.
func TestALockedTable(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("SET application_name = 'nightly report'; BEGIN; LOCK TABLE tenure.job")
	b.lacks("has held") // nobody minds
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), b.cfg.Pools["main"].DSN)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		return c
	}
	waiting := func(sessions int) {
		require.Eventually(t, func() bool {
			waits := 0
			require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE relation = 'tenure.job'::regclass AND NOT granted").Scan(&waits))
			return waits == sessions
		}, patience, time.Millisecond)
	}
	waits := connect()
	var group sync.WaitGroup
	group.Go(func() { _, _ = waits.Exec(t.Context(), "SELECT FROM tenure.job") })
	waiting(1)
	f := b.finding("has held tenure.job")
	require.Regexp(t, `^user ".+" with application "nightly report" \(pid [0-9]+\) has held tenure.job for .+, and 1 session waits for it$`, f.What)
	require.Equal(t, fmt.Sprintf("wait for it; or, if it is not meant: SELECT pg_terminate_backend(%d)", b.db.PgConn().PID()), f.Mend)
	err := store.Inspect(t.Context(), connect(), func(db store.DB) error { _, err := store.Count(t.Context(), db); return err })
	require.ErrorIs(t, err, store.ErrLocked)
	require.ErrorContains(t, err, `application "nightly report"`)
	work, err := doctor.ExamineWork(t.Context(), connect(), b.cfg, "main", nil)
	require.NoError(t, err)
	require.Contains(t, doctor.Merge([]doctor.Work{work})[0].What, "has held tenure.job")
	b.exec("ROLLBACK")
	group.Wait()
	b.lacks("has held")

	alters, reads := connect(), connect()
	_, err = alters.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	b.exec("BEGIN; SELECT FROM tenure.job")
	group.Go(func() { _, _ = alters.Exec(t.Context(), "LOCK TABLE tenure.job; COMMIT") })
	waiting(1)
	group.Go(func() { _, _ = reads.Exec(t.Context(), "SELECT FROM tenure.job") })
	waiting(2)
	require.Contains(t, b.finding("has held tenure.job").Mend, strconv.Itoa(int(b.db.PgConn().PID())), "not who waits for it")
	b.exec("ROLLBACK")
	group.Wait()
}

func TestTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t, pgtest.Database(t))
	f := b.finding("has no ledger")
	require.Equal(t, []string{"ledger", "run: tenure migrate --pool main; if the pool had jobs, restore it first, as they and its number are gone"}, []string{f.Check, f.Mend})
	require.NoError(t, storetest.Prepare(t.Context(), b.cfg.Pools["main"].DSN, "main", 1))
	b.lacks("has no ledger")
	b.exec("DELETE FROM tenure.migration WHERE version_id = (SELECT max(version_id) FROM tenure.migration)")
	require.Contains(t, b.finding("needs version").Mend, "tenure migrate")
}

func TestPrivileges(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	b := setup(t, dsn)
	b.cfg.Pools["main"] = routing.PoolConfig{DSN: storetest.AsRuntime(dsn)}
	b.lacks("privileges")
	b.exec("REVOKE DELETE ON tenure.job FROM tenure_test_app")
	f := b.finding("lacks privileges")
	require.Equal(t, []string{"privileges", string(doctor.Error)}, []string{f.Check, string(f.Severity)})
	require.Contains(t, f.Mend, "GRANT DELETE ON tenure.job")
	b.exec("GRANT DELETE ON tenure.job TO tenure_test_app")

	b.exec("GRANT SELECT ON tenure.job TO pg_monitor")
	f = b.finding("user pg_monitor has rights on the ledger, and nobody has named it")
	require.Equal(t, []string{"privileges", string(doctor.Warning)}, []string{f.Check, string(f.Severity)})
	require.Equal(t, "if nodes or clients connect as this user: tenure migrate --pool main --grants --runtime pg_monitor; if not, as the ledger's owner: REVOKE SELECT ON tenure.job FROM pg_monitor", f.Mend)
	b.exec("INSERT INTO tenure.tenant_role VALUES ('acme', 'pg_monitor')")
	f = b.finding(`role pg_monitor of tenant "acme" has rights on the ledger, which is all tenants'`)
	require.Equal(t, doctor.Error, f.Severity)
	require.Equal(t, "as the ledger's owner: REVOKE SELECT ON tenure.job FROM pg_monitor", f.Mend)
}

func TestTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.lacks("no schema")
	b.cfg.Tenants.Static["globex"] = routing.TenantConfig{Pool: "main", Role: "no_such_role"}
	require.Contains(t, b.finding("has no schema: globex").Mend, "CREATE SCHEMA globex")
	require.Contains(t, b.finding("does not exist").Mend, `CREATE ROLE "no_such_role"`)
	user := b.db.Config().User
	b.cfg.Pools["main"] = routing.PoolConfig{DSN: storetest.AsRuntime(b.cfg.Pools["main"].DSN)}
	b.cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main", Schema: "public2", Role: user}}
	require.NotContains(t, b.finding(`role cannot be a tenant's, as it would keep nobody apart: role "`+user+`" is a superuser`).Mend, "GRANT")
	b.lacks("no member of")
}

func TestClocks(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.lacks("clock")
	late := func() time.Time { return time.Now().Add(-10 * time.Minute) }
	e := doctor.Examine(t.Context(), b.cfg, doctor.Options{Within: patience, Now: late})
	require.True(t, slices.ContainsFunc(e.Findings, func(f doctor.Finding) bool { return f.Check == "clock" }))
}

func TestConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.lacks("has room for")
	b.cfg.Connections.Nodes = 1000
	require.Contains(t, b.finding("has room for").What, "1000 nodes may open 8 each, 8000 in all")
}

func TestNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.session(0, time.Hour)
	b.lacks("nodes are alive")
	b.session(0, time.Hour)
	f := b.finding("2 nodes are alive, and connections.nodes is 1")
	require.Equal(t, "connections: {nodes: 2}", f.Mend)
	dying := b.session(time.Minute, 90*time.Second)
	b.finding("3 nodes are alive or have died within the last 1m")
	b.exec("DELETE FROM tenure.node_session WHERE session_id = $1", dying)
	require.Equal(t, doctor.Error, b.finding("has no cluster section").Severity)
	b.cfg.Encryption.Kinds, b.cfg.Limits.Kinds = []string{"card.charge"}, map[string]acquisition.LimitConfig{"mail": {Rate: 1}, "mial": {Rate: 1}}
	b.exec("UPDATE tenure.node_session SET kinds = '{mail}'")
	require.Contains(t, b.finding("encryption.kinds names a kind that no node has a handler of: card.charge").Why, "plain text")
	require.Contains(t, b.finding("limits.kinds names a kind that no node has a handler of: mial").Why, "nothing limits")
	b.cfg.Schedules = map[string]acquisition.ScheduleConfig{"weekly": {Kind: "reprot"}, "daily": {Kind: "mail"}, "print": {Kind: "page", External: true}}
	require.Contains(t, b.finding("schedules names a kind that no node has a handler of: reprot").Why, "wait for ever")
	b.exec("INSERT INTO tenure.kind_queue VALUES ('mail', 'mailers')")
	b.cfg.Limits.Queues = map[string]acquisition.LimitConfig{"mailers": {Rate: 1}, "malers": {Rate: 1}, "default": {Rate: 1}}
	require.Equal(t, doctor.Note, b.finding("limits.queues names a queue that is no kind's: malers").Severity)
	b.exec("INSERT INTO tenure.kind_queue VALUES ('mial', 'default')") // by a node without a session
	b.lacks("limits.kinds names")
	b.exec("UPDATE tenure.node_session SET version = member")
	require.Equal(t, doctor.Note, b.finding("several releases").Severity)
	b.cfg.Pools["twin"] = routing.PoolConfig{DSN: storetest.DSN(t, "twin", 1), MaxConns: 8}
	require.Equal(t, []string{"main", "twin"}, b.finding("same number").Pools)
}

// What a node says of its workers is told: which handlers do not return, and what it has no worker left by.
func TestBusyNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	session := b.session(0, time.Hour)
	busy := func(kinds string, kept, left int) {
		b.exec("UPDATE tenure.node_session SET busy = jsonb_build_object('workers', 4, 'kept', $1::int, 'left', $2::int, 'kinds', $3::jsonb)", kept, left, kinds)
	}
	busy(`[{"kind": "hang", "runs": 3, "since": "2020-01-02T03:04:05Z"}]`, 3, 0)
	b.lacks("node n")
	busy(`[{"kind": "hang", "runs": 4, "since": "2020-01-02T03:04:05Z"}]`, 4, 0)
	b.lacks("the end of")
	f := b.finding("node n (member " + session.String() + ") has no worker left of 4; runs that keep them: 4 of kind hang, since 2020-01-02T03:04:05Z")
	require.Equal(t, []any{doctor.Note, doctor.About{Kind: "hang", State: "running"}}, []any{f.Severity, f.About})
	busy(`[{"kind": "long", "runs": 2, "since": "2020-01-02T03:04:05Z"}, {"kind": "hang", "stuck": 2, "since": "2020-01-02T03:04:05Z"}]`, 2, 0)
	f = b.finding("2 handlers ignore the end of their context: 2 of kind hang, since")
	require.Equal(t, []any{doctor.Warning, "hang"}, []any{f.Severity, f.About.Kind})
	busy(`[{"kind": "hang", "runs": 2, "stuck": 6, "since": "2020-01-02T03:04:05Z"}]`, 2, 2)
	f = b.finding("6 handlers ignore the end of their context: 6 of kind hang, since 2020-01-02T03:04:05Z; 2 of them keep a worker each, of 4")
	require.Equal(t, doctor.Error, f.Severity)
	require.Contains(t, f.Mend, "restart the node")
	b.exec("UPDATE tenure.node_session SET state = 'left'")
	b.lacks("the end of their context")
}

func TestLocks(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.lacks("jobs wait")
	b.exec("SELECT tenure.enqueue('acme', 'known', '{}')")
	require.Contains(t, b.finding("jobs wait, and no node works on this pool").Mend, "tenure serve")
	b.session(0, time.Hour)
	b.finding("nobody holds the pool's acquire lock")
	b.exec("UPDATE tenure.acquire_lock SET renewed_at = now() - interval '25 s', expires_at = now() - interval '17 s'")
	b.lacks("jobs wait, and")
	b.exec("DELETE FROM tenure.node_session")
	b.finding("jobs wait, and no node works on this pool")
	b.exec("UPDATE tenure.acquire_lock SET paused = true")
	require.Equal(t, doctor.Note, b.finding("is frozen").Severity)
}

func TestFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("INSERT INTO tenure.frozen (scope, name) VALUES ('queue', 'mail')")
	require.Equal(t, doctor.Note, b.finding("queue mail is frozen, since").Severity)
	b.exec("INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('acme', true)")
	require.Equal(t, "tenure tenants thaw acme", b.finding("tenant acme is frozen").Mend)
	b.exec("INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('globex', true)")
	b.finding("2 tenants are frozen: acme, globex")
}

// That many jobs of a kind fail is told before they are dead.
func TestManyRetrying(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, attempt, due_at) SELECT 'acme', 'default', 'push', '{}', 1, now() + n * interval '1 min' FROM generate_series(1, 99) n")
	b.exec("INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) SELECT 'acme', 'default', 'push', '{}', now() FROM generate_series(1, 99) n")
	b.lacks("tried again")
	b.exec("UPDATE tenure.timer_job SET attempt = 1 WHERE id = (SELECT min(id) FROM tenure.timer_job WHERE attempt = 0)")
	f := b.finding("100 jobs of kind push have failed and are tried again, the next one at ")
	require.Equal(t, []any{doctor.Warning, doctor.About{Kind: "push", State: "retrying"}}, []any{f.Severity, f.About})
	require.Contains(t, f.Mend, "tenure jobs retry --state retrying --kind push")
}

// Tenants of whom more jobs are refused are told, for as long as they are.
func TestFullTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("INSERT INTO tenure.tenant (tenant_id, max_waiting, over_quota_at) VALUES ('acme', 9, now()), ('past', 9, now() - interval '1 h'), ('freed', NULL, now())")
	f := b.finding("1 tenant has as many jobs waiting as may: acme")
	require.Equal(t, []any{doctor.Warning, doctor.About{Tenant: "acme", State: "waiting"}}, []any{f.Severity, f.About})
	require.Contains(t, f.Mend, "tenure tenants limit acme --max-waiting")
}

// Tenants whose move is held, or was interrupted, are told, since when, and how to go on or back.
func TestMoves(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("INSERT INTO tenure.tenant (tenant_id, state, other_pool, held) VALUES ('held', 'moving', 'new', true), ('soon', 'moving', 'new', false), ('here', 'arriving', 'old', false)")
	b.exec("INSERT INTO tenure.audit (at, who, action, tenant_id) VALUES ('2026-01-01', 'ann', 'tenant.move', 'held'), (now(), 'ann', 'tenant.move', 'soon')")
	f := b.finding("tenant held is being moved to pool new, and is held so that its data can be copied; the last command for that was run at 2026-01-01T00:00:00Z by ann")
	require.Equal(t, []any{doctor.Warning, doctor.About{Tenant: "held"}}, []any{f.Severity, f.About})
	require.Contains(t, f.Mend, "tenure tenants move held --to new; or give it up with: tenure tenants move held --to main")
	require.Equal(t, doctor.Note, b.finding("tenant here is being moved here from pool old").Severity)
	b.lacks("tenant soon is being moved")
}

// What does not run until somebody says so is told: dead letters, and schedules that are paused.
func TestAside(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.lacks("dead letter")
	b.exec(`INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error, died_at)
		SELECT 'acme', 'q', CASE WHEN n < 4 THEN 'bill' ELSE 'mail' END, '{}', 'job', 'no', '2026-01-02T03:04:05Z' FROM generate_series(1, 4) n`)
	f := b.finding("4 dead letters, of kind bill 3 of the newest 4, the last of which died at 2026-01-02T03:04:05Z")
	require.Equal(t, []any{doctor.Note, doctor.About{Kind: "bill", State: "dead"}}, []any{f.Severity, f.About})
	require.Contains(t, f.Mend, "tenure jobs dead --pool main")
	require.Contains(t, f.Mend, "tenure jobs retry --pool main --kind bill")
	b.exec("DELETE FROM tenure.dead_letter_job WHERE kind = 'mail'")
	b.finding("3 dead letters, of kind bill, the last")

	b.exec("INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, origin) VALUES ('', 'nightly', 'k', 'q', '@daily', 'set'), ('acme', 'nightly', 'k', 'q', '@daily', 'every'), ('globex', 'hourly', 'k', 'q', '@hourly', 'set')")
	b.lacks("paused")
	b.exec("UPDATE tenure.schedule SET paused = true WHERE name = 'nightly'")
	require.Equal(t, "tenure schedules resume nightly --every-tenant", b.finding("1 schedule is paused: nightly of every tenant").Mend)
	b.exec("INSERT INTO tenure.audit (at, who, action, tenant_id, subject) VALUES ('2026-01-02T03:04:05Z', 'kim', 'schedule.pause', NULL, 'nightly'), ('2026-01-01Z', 'lee', 'schedule.pause', NULL, 'nightly')")
	b.finding("nightly of every tenant (since 2026-01-02T03:04:05Z, by kim)")
	b.exec("UPDATE tenure.schedule SET paused = true WHERE name = 'hourly'; UPDATE tenure.schedule SET paused = false WHERE tenant_id = ''")
	require.Equal(t, "tenure schedules resume nightly --tenant acme", b.finding("2 schedules are paused: nightly of tenant acme, hourly of tenant globex").Mend)
}

// A job that waits for long is told with its queue and kind: from a minute on, and louder from when on there is an alert.
func TestOldestJob(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("SELECT tenure.enqueue('acme', 'known', '{}', queue => 'mail')")
	b.lacks("the oldest job")
	b.exec("UPDATE tenure.job SET created_at = now() - interval '1 day', ready_at = now()")
	b.lacks("the oldest job")
	b.exec("UPDATE tenure.job SET ready_at = now() - interval '5 min'")
	f := b.finding("the oldest job that waits, of kind known in queue mail, could have started 5m")
	require.Equal(t, []any{doctor.Note, doctor.About{Queue: "mail", Kind: "known", State: "waiting"}}, []any{f.Severity, f.About})
	b.exec("UPDATE tenure.job SET ready_at = now() - interval '1 h'")
	require.Equal(t, doctor.Warning, b.finding("the oldest job").Severity)

	b.exec("SELECT tenure.enqueue('nobody', 'known', '{}')") // which cannot start, and is a finding of its own
	b.exec("UPDATE tenure.job SET ready_at = now() - interval '9 h' WHERE tenant_id = 'nobody'")
	b.finding("of kind known in queue mail, could have started 1h0m")
	b.exec("DELETE FROM tenure.job WHERE tenant_id = 'acme'")
	b.lacks("the oldest job")
}

// Jobs that wait for workers outside the cluster wait in vain if none takes any of their topic.
func TestUntakenTopics(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("SELECT tenure.enqueue_external('acme', 'print', '{}') FROM generate_series(1, 3)")
	b.lacks("jobs of topic")
	b.exec("UPDATE tenure.external_job SET ready_at = ready_at - interval '1 h'")
	f := b.finding("3 jobs of topic print wait for workers outside the cluster, the oldest for 1h0m")
	require.Equal(t, []any{doctor.Warning, doctor.About{Kind: "print", State: "waiting"}}, []any{f.Severity, f.About})
	b.exec("UPDATE tenure.external_job SET lock_expires_at = now() + interval '1 h' WHERE id = (SELECT min(id) FROM tenure.external_job)")
	b.lacks("jobs of topic")
}

// A tenant's SQL can make up any number of kinds and topics: those with most, or the oldest, are told of by name.
func TestManyKindsAndTopics(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.session(0, time.Hour)
	b.exec("SELECT tenure.enqueue('acme', 'kind' || n, '{}') FROM generate_series(1, 1000) n")
	b.exec("SELECT tenure.enqueue('acme', 'kind777', '{}')")
	b.exec("SELECT tenure.enqueue_external('acme', 'topic' || n, '{}') FROM generate_series(1, 100) n")
	b.exec("UPDATE tenure.external_job SET ready_at = ready_at - interval '1 h' - CASE kind WHEN 'topic77' THEN interval '1 h' ELSE '0' END")
	b.finding("2 jobs of kind kind777 wait")
	b.finding("jobs of 995 more kinds wait, and no live node has a handler for them: ")
	b.finding("1 job of topic topic77 waits for workers outside the cluster, the oldest for 2h0m")
	b.finding("jobs of 95 more topics wait for workers outside the cluster, for up to 1h0m")
	b.exec("UPDATE tenure.job SET ready_at = ready_at - interval '1 h'")
	b.lacks("the oldest job") // as none of these could start
	require.Less(t, len(b.examine().Findings), 30)
}

func TestJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	gone, live := b.session(time.Hour, 15*time.Second), b.session(0, time.Hour)
	b.exec("SELECT tenure.enqueue('acme', 'strange', '{}')")
	require.Contains(t, b.finding("1 job of kind strange waits").Mend, "--kind strange")

	b.exec("INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT $1, turn, ARRAY[id], clock_timestamp() FROM tenure.job", gone)
	require.Contains(t, b.finding("has 1 claim and was seen last").What, gone.String())

	b.lacks("has been with node")
	b.exec("UPDATE tenure.claim SET session_id = $1, started_at = clock_timestamp() - interval '1 hour'", live)
	b.lacks("has 1 claim")
	require.Equal(t, doctor.Note, b.finding("longer than execution.timeout of 15m0s").Severity)
	b.finding("and has not said how far it is")
	b.exec("INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, written_at) SELECT id, turn, 1, 'n', now(), now() - interval '10 min' FROM tenure.job")
	b.finding("and said last how far it is 10m")
	b.exec("UPDATE tenure.job SET timeout_ms = 7200000")
	b.lacks("has been with node")
	b.exec("UPDATE tenure.job SET timeout_ms = 60000")
	require.Equal(t, doctor.Warning, b.finding("longer than its timeout of 1m0s").Severity)

	var id job.ID
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT id FROM tenure.enqueue('acme', 'known', '{}')").Scan(&id))
	b.lacks("cannot be read")
	storetest.Damage(t, b.db, "job", id)
	require.Contains(t, b.finding("of tenant acme cannot be read: unexpected chunk number").Mend, "tenure jobs cancel "+id.String())
}

// What others leave open on a server is found, and how to end it.
func TestWhatHoldsUpVacuum(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{Settings: map[string]string{"autovacuum": "off", "max_prepared_transactions": "2"}})
	require.NoError(t, server.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), server.DSN("main"), "main", 1))
	b := setup(t, server.DSN("main"))
	b.finding("autovacuum is off on its server")
	b.exec("ALTER TABLE tenure.claim SET (autovacuum_enabled = false)")
	require.Contains(t, b.finding("autovacuum is off for table tenure.claim").Mend, `ALTER TABLE tenure."claim" RESET`)

	b.lacks("dead rows, and was due")
	b.exec("CREATE TABLE tenure.scrap AS SELECT FROM generate_series(1, 20000)")
	b.exec("ALTER TABLE tenure.scrap REPLICA IDENTITY FULL") // the ledger is published
	b.exec("DELETE FROM tenure.scrap")
	require.Eventually(t, func() bool {
		b.exec("SELECT") // before version 15 a session tells what it has done with its next statement
		return slices.ContainsFunc(b.examine().Findings, func(f doctor.Finding) bool { return strings.Contains(f.What, "table tenure.scrap has 20000 dead rows") })
	}, patience, 50*time.Millisecond)

	b.lacks("replication slot")
	b.exec("SELECT pg_create_physical_replication_slot('left_behind', true)")
	require.Contains(t, b.finding("replication slot left_behind").Mend, "pg_drop_replication_slot('left_behind')")

	b.exec("BEGIN")
	b.exec("CREATE TABLE t ()")
	b.exec("PREPARE TRANSACTION 'forgotten'")
	b.lacks("forgotten")
	e := doctor.Examine(t.Context(), b.cfg, doctor.Options{Within: patience, Open: time.Nanosecond})
	i := slices.IndexFunc(e.Findings, func(f doctor.Finding) bool { return strings.Contains(f.What, "prepared transaction forgotten") })
	require.GreaterOrEqual(t, i, 0, e.Findings)
	require.Contains(t, e.Findings[i].Mend, "ROLLBACK PREPARED 'forgotten'")
	b.exec("ROLLBACK PREPARED 'forgotten'")

	b.cfg.Pools["main"] = routing.PoolConfig{DSN: storetest.AsRuntime(server.DSN("main"))} // NOINHERIT
	b.exec("BEGIN")
	b.exec("SELECT pg_current_xact_id()")
	f := b.finding("Postgres hides from user tenure_test_app since when others' transactions are open: session " + strconv.Itoa(int(b.db.PgConn().PID())) + " of user ")
	require.Equal(t, []string{string(doctor.Note), "transactions"}, []string{string(f.Severity), f.Check})
	_, grant, found := strings.Cut(f.Mend, "as a superuser: ")
	require.True(t, found)
	b.exec("COMMIT")
	b.exec(grant)
	b.exec("BEGIN")
	b.exec("SELECT pg_current_xact_id()")
	b.lacks("Postgres hides")
	e = doctor.Examine(t.Context(), b.cfg, doctor.Options{Within: patience, Open: time.Nanosecond})
	require.True(t, slices.ContainsFunc(e.Findings, func(f doctor.Finding) bool {
		return f.Severity == doctor.Warning && strings.Contains(f.What, "idle in transaction) has been open for ")
	}), e.Findings)
	b.exec("COMMIT")
}

// Jobs of a tenant that no routing rule knows are found, whatever has added them; not those of whom the table knows.
func TestTenantsThatNobodyRoutesAreFound(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("SELECT tenure.enqueue('acme', 'known', '{}'), tenure.enqueue('globex', 'known', '{}'), tenure.enqueue('acmee', 'known', '{}', delay => '1 day')")
	require.Equal(t, "jobs", b.finding(`2 tenants have jobs here, and no routing rule knows them: acmee, globex`).Check)
	b.exec("CREATE TABLE customer AS SELECT 'globex' AS id, 'main' AS pool")
	b.cfg.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT pool FROM public.customer WHERE id = $1"}
	require.Contains(t, b.finding("1 tenant has jobs here, and no routing rule knows it: acmee").Mend, `tenure tenants reassign "acmee" --to TENANT`)
	b.cfg.Schedules = map[string]acquisition.ScheduleConfig{"nightly": {Tenants: []tenancy.ID{"globex", "initech", "acme"}}}
	b.finding("schedules or encryption.tenants of the configuration name 1 tenant that no routing rule knows: initech")

	other := storetest.DSN(t, "other", 2)
	b.cfg.Pools["other"] = routing.PoolConfig{DSN: other, MaxConns: 8}
	b.exec("UPDATE customer SET pool = 'other'")
	f := b.finding("1 tenant has jobs here, and is led to another pool, such as other: globex")
	require.Equal(t, []any{doctor.Error, []string{"main"}, doctor.About{Tenant: "globex"}}, []any{f.Severity, f.Pools, f.About})
	require.Contains(t, f.Mend, "tenure tenants move globex --to other")
	b.cfg.Tenants.Static["acme"] = routing.TenantConfig{Pool: "other", Schema: "public2"}
	b.finding("2 tenants have jobs here, and are led to another pool, such as other: acme, globex")
	there, err := pgx.Connect(t.Context(), other)
	require.NoError(t, err)
	defer there.Close(context.WithoutCancel(t.Context()))
	_, err = there.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', 'moved', 'main'), ('globex', 'moved', 'main')")
	require.NoError(t, err)
	b.lacks("led to another pool")

	b.exec("DROP TABLE customer")
	b.finding("tenants.table cannot be asked")
}

// The lookup table is looked at as nodes ask it, also while nobody has a job.
func TestTheLookupTable(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	b := setup(t, dsn)
	b.exec("CREATE SCHEMA app; CREATE TABLE app.customer AS SELECT 'globex' AS id, 'main' AS pool; GRANT USAGE ON SCHEMA public2 TO tenure_test_app")
	b.cfg.Pools["main"] = routing.PoolConfig{DSN: storetest.AsRuntime(dsn)}
	b.cfg.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT pool FROM app.customer WHERE id = $1"}
	f := b.finding("tenants.table cannot be asked")
	require.Equal(t, []any{doctor.Error, "tenants", "ERROR: permission denied for schema app (SQLSTATE 42501)"}, []any{f.Severity, f.Check, f.Said})
	grants := func() {
		t.Helper()
		_, sql, ok := strings.Cut(b.finding("tenants.table cannot be asked").Mend, "execute in pool main, as its owner: ")
		require.True(t, ok)
		b.exec(sql)
		b.lacks("tenants.table")
	}
	grants()
	b.cfg.Tenants.Table.Move = "UPDATE app.customer SET pool = $2 WHERE id = $1"
	grants()
	b.cfg.Tenants.Table.List = "SELECT id FROM app.clients WHERE pool = $1"
	require.Contains(t, b.finding("tenants.table cannot be asked").Said, `relation "app.clients" does not exist`)
	require.Equal(t, doctor.Warning, b.finding("tenants.table cannot be asked").Severity, "whoever it knows can be enqueued for")
	b.cfg.Tenants.Table.List = ""
	b.exec("CREATE FUNCTION app.place(id text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF id IS NULL THEN RAISE 'whose?' USING ERRCODE = 'AP404'; END IF; RETURN 'main'; END $$")
	query := b.cfg.Tenants.Table.Query
	b.cfg.Tenants.Table.Query = "SELECT app.place($1)"
	b.lacks("tenants.table")
	b.cfg.Tenants.Table.Query = query

	b.exec("INSERT INTO app.customer VALUES ('initech', 'gone'); SELECT tenure.enqueue('initech', 'known', '{}')")
	b.finding(`tenant initech has jobs here, and its route cannot be used: tenants.table: tenant "initech" is routed to pool "gone"`)
	b.cfg.Tenants.Table.Query = "SELECT (1 / (length($1) - 7))::text" // an error that a tenant's id makes
	require.Equal(t, "ERROR: division by zero (SQLSTATE 22012)", b.finding("tenants.table cannot be asked").Said)
}

// All rows that the table lists are looked at, whoever has jobs: no process alone sees that two tenants share a schema.
func TestRowsOfTheLookupTable(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.cfg.Tenants.Static["acme"] = routing.TenantConfig{Pool: "main", Schema: "public2", Role: "tenure_test_app"}
	b.exec("CREATE SCHEMA shared; GRANT USAGE ON SCHEMA shared, public2 TO tenure_test_app; CREATE TABLE customer (id text, schema text, role text)")
	b.exec("INSERT INTO customer VALUES ('a', 'public2', NULL), ('b', 'shared', 'tenure_test_app'), ('c', 'shared', 'tenure_test_app'), ('d', 'nowhere', 'tenure_test_app'), ('acme', 'shared', NULL)")
	b.cfg.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT 'main', schema, role FROM public.customer WHERE id = $1", List: "SELECT id FROM public.customer WHERE $1 = 'main' ORDER BY id"}
	require.Contains(t, b.finding(`tenants "b" and "c" of tenants.table share schema "shared"`).Mend, "UNIQUE")
	b.finding(`the row of tenant a cannot be used: tenants.table: tenants "acme" and "a" share schema "public2" in pool "main"`)
	require.Contains(t, b.finding("1 tenant has no schema: nowhere").Mend, "or the table")
	b.lacks("tenants without a role") // they have roles, or are refused
	b.exec("UPDATE customer SET schema = 'alone', role = NULL WHERE id = 'c'")
	b.lacks("share schema \"shared\"")
	b.finding("tenants without a role")

	// In another pool, before there is any job there.
	b.cfg.Pools["twin"] = routing.PoolConfig{DSN: storetest.DSN(t, "twin", 2), MaxConns: 8}
	b.exec("INSERT INTO customer VALUES ('twin', 'missing', 'tenure_test_app')")
	const pool = "CASE id WHEN 'twin' THEN 'twin' ELSE 'main' END"
	b.cfg.Tenants.Table.Query, b.cfg.Tenants.Table.List = "SELECT "+pool+", schema, role FROM public.customer WHERE id = $1", "SELECT id FROM public.customer WHERE $1 = "+pool
	require.Equal(t, []string{"twin"}, b.finding("1 tenant has no schema: missing").Pools)
}

// Days of finished jobs are tables: a subscriber needs to be told of them as of one, and who looks at all of them locks each.
func TestManyDays(t *testing.T) {
	t.Parallel()
	b := setup(t, storetest.DSN(t, "main", 1))
	b.exec("CREATE PUBLICATION rooted FOR TABLE tenure.completed_job WITH (publish_via_partition_root = true)")
	b.exec(`CREATE PUBLICATION "of days" FOR TABLE tenure.completed_job`)
	require.Contains(t, b.finding("publication of days publishes").Mend, `ALTER PUBLICATION "of days" SET (publish_via_partition_root = true)`)
	b.lacks("publication rooted")
	b.lacks("tenure.job_status takes")
	b.exec("SELECT tenure.make_day(d::date) FROM generate_series(now() + interval '10 days', now() + interval '510 days', interval '1 day') d")
	require.Contains(t, b.finding("tenure.job_status takes").Mend, "execution.retention")
}
