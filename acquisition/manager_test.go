package acquisition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

func TestHintIsSentOnOnce(t *testing.T) {
	t.Parallel()
	lanes := []store.Lane{laneOf("acme", 0)}
	for name, c := range map[string]struct {
		seen      Held
		forwarded bool
		sendErr   error
		sent      bool
		here      bool
	}{
		"nobody is known":          {seen: Held{}, here: true},
		"held here":                {seen: Held{Holding: true, Holder: "me"}, here: true},
		"held elsewhere":           {seen: Held{Holder: "other"}, sent: true},
		"offered to me":            {seen: Held{Holder: "me"}, here: true},
		"sent on already":          {seen: Held{Holder: "other"}, forwarded: true, here: true},
		"the other is not reached": {seen: Held{Holder: "other"}, sendErr: errors.New("no route"), sent: true, here: true},
	} {
		e := &fakeElector{sendErr: c.sendErr}
		a := newIdleAcquirer(e)
		a.sight.Store(&c.seen)
		a.takeHint(Hint{Pool: "main", Lanes: lanes, Forwarded: c.forwarded})
		var want []string
		if c.sent {
			want = []string{fmt.Sprintf("%d to other: %s", MessageHint, Hint{Pool: "main", Lanes: lanes, Forwarded: true}.Encode())}
		}
		require.Equal(t, want, e.messages(), name)
		if c.here {
			require.Equal(t, lanes, a.inbox.take().lanes, name)
		} else {
			require.Equal(t, mail{}, a.inbox.take(), name)
		}
	}
}

func TestManagerReceives(t *testing.T) {
	t.Parallel()
	e := &fakeElector{}
	a := newIdleAcquirer(e)
	counted := newMetrics()
	m := &Manager{acquirers: map[string]*acquirer{"main": a}, node: a.node}
	m.node.metrics = counted
	dropped := func() (n float64) {
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(counted.dropped))
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, one := range f.GetMetric() {
				require.Equal(t, unknownPool, one.GetLabel()[0].GetValue())
				n += one.GetCounter().GetValue()
			}
		}
		return n
	}
	in := a.inbox
	about := About{Pool: "main"}.Encode()
	require.NoError(t, m.Receive(MessageHint, "b-1", Hint{Pool: "main"}.Encode()))
	require.Equal(t, mail{discover: true}, in.take())
	require.NoError(t, m.Receive(MessageOffer, "b-1", about))
	require.Equal(t, mail{offered: true}, in.take())
	require.NoError(t, m.Receive(MessageOffer, "b-1", About{Pool: "main", Soon: true}.Encode()))
	require.Equal(t, mail{soon: "b-1"}, in.take())
	require.NoError(t, m.Receive(MessageAnswer, "b-1", about))
	require.NoError(t, m.Receive(MessageAnswer, "c-1", About{Pool: "main", No: true}.Encode()))
	require.Equal(t, mail{ready: []string{"b-1"}, refused: []string{"c-1"}}, in.take())
	require.Empty(t, e.messages())
	room := Capacity{Pool: "main", Session: uuid.New(), Taken: 3, Free: 4, Over: []int64{5}}
	require.NoError(t, m.Receive(MessageCapacity, "b-1", room.Encode()))
	require.Equal(t, mail{reports: []report{{"b-1", room}}}, in.take())
	require.False(t, a.assistant.events.takeAssigned())
	require.NoError(t, m.Receive(MessageInvite, "b-1", about))
	by, holds := a.assistant.invitation()
	require.True(t, holds)
	require.Equal(t, "b-1", by)
	require.False(t, a.assistant.events.takeAssigned())
	require.NoError(t, m.Receive(MessageAssigned, "c-1", about))
	require.True(t, a.assistant.events.takeAssigned())
	by, _ = a.assistant.invitation()
	require.Equal(t, "c-1", by, "anyone who gives also invites")

	require.Zero(t, dropped())
	room.Pool = "other" // which is not configured here
	require.NoError(t, m.Receive(MessageHint, "b-1", Hint{Pool: "other"}.Encode()))
	require.NoError(t, m.Receive(MessageCapacity, "b-1", room.Encode()))
	for _, kind := range []byte{MessageOffer, MessageInvite, MessageAssigned, MessageAnswer} {
		require.NoError(t, m.Receive(kind, "b-1", About{Pool: "other"}.Encode()))
		require.Error(t, m.Receive(kind, "b-1", nil))
	}
	require.Equal(t, 6.0, dropped(), "each of them")
	require.Equal(t, []string{fmt.Sprintf(`%d to b-1: {"p":"other","n":true}`, MessageAnswer)}, e.messages(), "only to an offer")
	require.NoError(t, m.Receive(99, "b-1", about), "of a later version")
	require.Error(t, m.Receive(MessageHint, "b-1", []byte("{")))
	require.Error(t, m.Receive(MessageCapacity, "b-1", []byte("{}")))
	require.Equal(t, mail{}, in.take())

	a.sight.Store(&Held{Pool: "main", Holding: true, Holder: "me", Epoch: 7})
	require.True(t, m.Holds("main"))
	require.False(t, m.Holds("other"))
	require.Equal(t, []Held{{Pool: "main", Holding: true, Holder: "me", Epoch: 7}}, m.Locks())
}

// One node by itself, from a waiting job to a lock that is let go of.
func TestManagerRunsJobs(t *testing.T) {
	t.Parallel()
	ran := make(chan job.ID, 10)
	b := setup(t, nil, tells(ran)).start()
	first := b.enqueue("tell")
	e := &fakeElector{changes: make(chan struct{}, 1)}
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, e, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Stop(t.Context()), "not started")
	require.NoError(t, m.Start(t.Context()))
	require.Equal(t, first, within(t, ran), "found without a hint")
	require.True(t, m.Holds("main"))

	second := b.enqueue("tell")
	m.Hint(Hint{Pool: "main", Lanes: []store.Lane{laneOf("acme", 0)}})
	require.Equal(t, second, within(t, ran))
	b.eventually(2, "SELECT count(*) FROM tenure.completed_job")

	e.changes <- struct{}{}
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, m.Stop(t.Context()))
	require.False(t, m.Holds("main"))
	require.Empty(t, b.readLock().Holder)
	require.NoError(t, b.stop(t.Context()))
	require.Zero(t, b.count("SELECT count(*) FROM tenure.claim"))
}

// A pool is out of reach and is taken away: the next of its name may be another database.
func TestApplyForgetsWhatWasOutOfReach(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{changes: make(chan struct{}, 1)}
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, e, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context()))
	a := m.findAcquirer("main")
	a.noteReach(false)
	require.Equal(t, []string{"main"}, e.lacking())
	m.Apply(nil)
	require.Empty(t, e.lacking())
	a.noteReach(false) // its keeper still tries to end the session
	require.Empty(t, e.lacking())
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// A configuration comes into force between the look at where a tenant lives and the look
// at its jobs, of which some were enqueued because of it.
func TestClaimGoesByTheNewestConfiguration(t *testing.T) {
	t.Parallel()
	ran := make(chan string, 10)
	b := setup(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "tell", Handle: func(ctx context.Context, _ *job.Record) error {
			tenant, _ := tenancy.FromContext(ctx)
			ran <- tenant.Schema
			return nil
		}})
	}).start()
	b.enqueue("tell")
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context()))
	require.Equal(t, "acme", within(t, ran), "and the term knows where it lives")

	var once sync.Once
	applied := make(chan error, 1)
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "j.position > lane.after") {
			once.Do(func() {
				next := b.routes
				next.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main", Schema: "acme2"}}
				_, err := b.router.Apply(context.Background(), next)
				applied <- err
			})
		}
		return faultproxy.Pass
	})
	b.enqueue("tell")
	m.Hint(Hint{Pool: "main", Lanes: []store.Lane{laneOf("acme", 0)}})
	require.NoError(t, within(t, applied))
	require.Equal(t, "acme2", within(t, ran))
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// The settings of a pool change: what is counted of it goes on with its next acquirer, also
// when the last one comes to its end only later. What was taken away is counted no more.
func TestAPoolsCountsOutliveItsSettings(t *testing.T) {
	t.Parallel()
	running, finish := make(chan struct{}), make(chan struct{})
	finished := sync.OnceFunc(func() { close(finish) })
	defer finished()
	b := setup(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "long", Handle: func(context.Context, *job.Record) error {
			running <- struct{}{}
			<-finish
			return nil
		}})
	})
	core, logged := observer.New(zap.InfoLevel)
	b.sessions = lease.NewKeepers(b.cfg.Lease(), lease.Kept{}, lease.Self{Node: "a", Member: "a-1", GossipAddr: func() string { return "" }, Kinds: b.registry.Handled, Queues: b.registry.Queues}, b.workers, zap.New(core))
	registry := prometheus.NewPedanticRegistry()
	metric := func(name string) (values []float64) {
		t.Helper()
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, one := range f.GetMetric() {
				if f.GetName() == name {
					values = append(values, one.GetGauge().GetValue()+one.GetCounter().GetValue())
				}
			}
		}
		return values
	}
	left := func(n int) {
		t.Helper()
		b.until(func() bool { return logged.FilterMessage("pool left").Len() == n })
	}
	// The former acquirer is still telling its successor, and holds the lock, as far as it knows,
	// when the next one takes it.
	taken := make(chan struct{})
	told := sync.OnceFunc(func() { close(taken) })
	defer told()
	elector := slowElector{fakeElector: &fakeElector{successor: "b-1", changes: make(chan struct{}, 1)}, goOn: taken}
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, elector, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, registry.Register(m.Metrics()))
	require.NoError(t, registry.Register(b.workers.Metrics()))
	require.NoError(t, m.Start(t.Context()))
	b.enqueue("long")
	within(t, running)
	former := m.findAcquirer("main")
	next := b.routes
	next.Pools = map[string]routing.PoolConfig{"main": {DSN: b.proxy.DSN(), MaxConns: fewConns + 1}}
	_, err = b.router.Apply(t.Context(), next)
	require.NoError(t, err)
	m.Apply(b.router.Pools())
	b.until(func() bool {
		return m.Holds("main") && slices.Equal(metric("tenure_lock_epoch"), []float64{float64(b.readLock().Epoch)})
	}, "the next one has taken the lock")
	told()
	former.group.Wait()
	finished()
	left(1)
	require.Equal(t, []float64{1}, metric("tenure_lock_held"))
	require.Equal(t, []float64{float64(b.readLock().Epoch)}, metric("tenure_lock_epoch"))
	require.Equal(t, []float64{1}, metric("tenure_jobs_claimed_total"))
	ofRuns := []string{"tenure_jobs_started_total", "tenure_jobs_finished_total", "tenure_job_wait_seconds", "tenure_job_run_seconds"}
	for _, name := range ofRuns {
		require.Len(t, metric(name), 1, name)
	}

	m.Apply(nil)
	left(2)
	for _, name := range append(ofRuns, "tenure_lock_held", "tenure_lock_epoch", "tenure_jobs_claimed_total") {
		require.Empty(t, metric(name))
	}
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// A pool is taken away while jobs are claimed there, and the node stops at once: that claim
// is waited for as well, as its session would end before it.
func TestStopWaitsForAPoolThatIsLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	claims, held := make(chan struct{}, 1), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	defer goOn()
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "INSERT INTO tenure.claim ") {
			nudge(claims)
			<-held
		}
		return faultproxy.Pass
	})
	b.enqueue("k")
	require.NoError(t, m.Start(t.Context()))
	within(t, claims)
	m.Apply(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, m.Stop(ctx), context.DeadlineExceeded)
	goOn()
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
	require.Zero(t, b.count("SELECT count(*) FROM tenure.claim"))
}

func TestManagerHasMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{}, zap.NewNop())
	require.NoError(t, err)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(m.Metrics()))
	m.node.metrics.changes.WithLabelValues("main", "taken").Inc()
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(families), "tenure_lock_changes_total")
	cfg := b.cfg
	cfg.Batch = 0
	_, err = NewManager(cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{}, zap.NewNop())
	require.ErrorContains(t, err, "acquire.batch")
}
