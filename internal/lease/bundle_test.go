package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// bundle is one keeper on a ledger of its own.
type bundle struct {
	t        *testing.T
	db       *pgxpool.Pool // apart from what is tested
	proxy    *faultproxy.Proxy
	routes   routing.Config
	router   *routing.Router
	pool     *routing.Pool
	registry *job.Registry
	workers  *execution.Workers
	sessions *Keepers
	keeper   *Keeper
	events   *recorder
	cfg      Config
	stopped  atomic.Bool
}

// setup makes a keeper, not started, that beats and renews at once and trusts itself
// for long.
func setup(t *testing.T, change func(*Config), fill func(*job.Registry)) *bundle {
	b := &bundle{t: t, registry: job.NewRegistry()}
	b.cfg.Lock = LockConfig{TTL: time.Minute, RenewEvery: 50 * time.Millisecond}
	b.cfg.Session = SessionConfig{TTL: time.Minute, HeartbeatEvery: 50 * time.Millisecond}
	if change != nil {
		change(&b.cfg)
	}
	dsn := storetest.DSN(t, "main", 1)
	var err error
	b.db, err = pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(b.db.Close)
	b.proxy, err = faultproxy.New(storetest.AsRuntime(dsn))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.proxy.Close()) })

	b.registry.Add(job.Spec{Kind: "k", Handle: func(context.Context, *job.Record) error { return nil }})
	if fill != nil {
		fill(b.registry)
	}
	b.registry.Freeze()
	routes := routing.DefaultConfig()
	routes.Pools = map[string]routing.PoolConfig{"main": {DSN: b.proxy.DSN(), MaxConns: fewConns}}
	routes.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}
	b.routes = routes
	b.router, err = routing.New(routes, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, b.router.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.router.Stop(context.Background())) })
	b.workers, err = execution.New(execution.DefaultConfig(), b.registry, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, b.workers.Start(t.Context()))
	b.sessions = NewKeepers(b.cfg, Kept{Finished: time.Hour}, Self{Node: "a", Member: "a-1", GossipAddr: func() string { return "" }, Kinds: b.registry.Handled, Queues: b.registry.Queues}, b.workers, zap.NewNop())
	b.pool, _ = b.router.Pool("main")
	spare, err := b.pool.ConnectLock(t.Context()) // that the pool was verified with: each test shall make its own
	require.NoError(t, err)
	require.NoError(t, spare.Close(t.Context()))
	b.eventually(0, lockConns)
	b.events = newRecorder()
	b.keeper = b.sessions.Add(b.pool, b.events)
	t.Cleanup(func() {
		if !b.stopped.Load() {
			b.proxy.SetRule(nil)
			b.proxy.Hold(nil)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a test that failed may have left anything
			defer cancel()
			_ = b.stop(ctx)
		}
		if s := b.keeper.Current(); s != nil { // of a keeper that was not started
			b.keeper.dropSession(s)
		}
	})
	return b
}

// setupLong is setup, started, with a kind long, whose handler tells that it runs, waits
// until its context ends, tells why, and returns answer.
func setupLong(t *testing.T, answer error) (b *bundle, running chan struct{}, cause chan error) {
	running, cause = make(chan struct{}, 1), make(chan error, 1)
	b = setup(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "long", Handle: func(ctx context.Context, _ *job.Record) error {
			running <- struct{}{}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return answer
		}})
	})
	return b.start(), running, cause
}

func (b *bundle) start() *bundle {
	b.keeper.Start()
	return b
}

// stop stops the workers and the sessions, as a node does.
func (b *bundle) stop(ctx context.Context) error {
	b.stopped.Store(true)
	require.NoError(b.t, b.workers.Stop(context.Background()))
	return b.sessions.Stop(ctx)
}

func (b *bundle) count(sql string, args ...any) (n int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// eventually waits until the ledger shows n.
func (b *bundle) eventually(n int64, sql string, args ...any) {
	b.t.Helper()
	b.until(func() bool { return b.count(sql, args...) == n }, sql)
}

func (b *bundle) until(cond func() bool, msg ...any) {
	b.t.Helper()
	require.Eventually(b.t, cond, patience, 2*time.Millisecond, msg...)
}

// state is what the ledger says of a session.
func (b *bundle) state(id uuid.UUID) (state string, beats int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), "SELECT state, hb_seq FROM tenure.node_session WHERE session_id = $1", id).Scan(&state, &beats))
	return state, beats
}

func (b *bundle) session() *Session {
	b.t.Helper()
	s, err := b.keeper.Session(b.t.Context())
	require.NoError(b.t, err)
	return s
}

// lock takes the acquire lock as an acquirer would.
func (b *bundle) lock(s *Session) (context.Context, *Lock) {
	b.t.Helper()
	sent := Now()
	mine, l, err := store.TakeLock(b.t.Context(), b.db, store.Claimant{Session: s.id, Member: "a-1", SeenSeq: -1}, b.cfg.Lock.TTL)
	require.NoError(b.t, err)
	require.True(b.t, mine)
	ctx, h := b.keeper.Hold(store.Fence{Session: s.id, Epoch: l.Epoch, Incarnation: l.Incarnation}, sent)
	b.t.Cleanup(func() { b.keeper.Release(h) })
	return ctx, h
}

func (b *bundle) enqueue(kind string) job.ID {
	b.t.Helper()
	id, _, err := store.Enqueue(b.t.Context(), b.db.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: kind, Payload: []byte("1")})
	require.NoError(b.t, err)
	return id
}

// ghostsSought waits until the keeper, which was started, has looked for claims that it
// does not know of, so that it does not find those that a test makes next.
func (b *bundle) ghostsSought() {
	b.t.Helper()
	b.until(func() bool { return !b.keeper.conn.fresh.Load() })
	const beats = "SELECT coalesce(sum(hb_seq), 0) FROM tenure.node_session"
	since := b.count(beats) // the search, if it is still under way, is over before the next
	b.until(func() bool { return b.count(beats) > since })
}

// claim enqueues jobs and puts them into a claim of s, as a term would.
func (b *bundle) claim(s *Session, kinds ...string) []execution.ClaimedJob {
	b.t.Helper()
	turn, _, err := store.BeginIncarnation(b.t.Context(), b.db, false)
	require.NoError(b.t, err)
	claims := make([]execution.ClaimedJob, len(kinds))
	jobs := make([]int64, len(kinds))
	for i, kind := range kinds {
		id := b.enqueue(kind)
		jobs[i] = int64(id)
		claims[i] = execution.ClaimedJob{Owner: s, Tenant: &tenancy.Tenant{ID: "acme", Pool: "main", Schema: "acme"},
			Record: job.Record{ID: id, Turn: turn, Kind: kind, Tenant: "acme", Queue: "default", Attempt: 1}}
	}
	claim := b.count("INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, $2, $3, now()) RETURNING id", s.id, turn, jobs)
	for i := range claims {
		claims[i].ID = claim
	}
	s.OpenClaim(claim, len(claims))
	return claims
}

func (b *bundle) submit(s *Session, claims []execution.ClaimedJob) {
	b.t.Helper()
	require.Equal(b.t, len(claims), b.workers.Reserve(s, len(claims)))
	b.workers.Submit(s, claims)
}

func (b *bundle) counts() store.Counts {
	b.t.Helper()
	c, err := store.Count(b.t.Context(), b.db)
	require.NoError(b.t, err)
	return c
}
