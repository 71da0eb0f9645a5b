package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/tenancy"
)

// forScanner is a request for one job.
func forScanner() external.AcquireRequest {
	return external.AcquireRequest{Topic: "scan", Worker: "w", Max: 1, LockFor: time.Hour}
}

// What was acquired for a caller who has gone before he heard of it waits again, and nobody is lost.
func TestExternalJobsWhoseAnswerIsLate(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	cfg, proxy := b.behind(b.named("client"), "p1")
	client := b.client(cfg)
	e, err := client.Enqueue(tenancy.For(t.Context(), "t1"), scan{1}, tenure.External())
	require.NoError(t, err)
	workers := client.ExternalWorkers()
	none := forScanner()
	none.Topic = "nothing" // for the connection, and its statements
	_, err = workers.Acquire(t.Context(), none)
	require.NoError(t, err)

	proxy.HoldWay(faultproxy.ToClient, func(string) bool { return true })
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := workers.Acquire(ctx, forScanner())
		gone <- err
	}()
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.external_job WHERE locked_by = 'w'")
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	proxy.Hold(nil)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.external_job WHERE lock_expires_at IS NULL AND losses = 0")
	got, err := workers.Acquire(t.Context(), forScanner())
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, []any{e.ID, 0}, []any{got[0].Job, got[0].Losses})
}

// A pool that does not answer keeps nobody from the jobs of another, whichever is asked first.
func TestASilentPoolLeavesExternalWorkersTheOthers(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	cfg, proxy := b.behind(b.named("client"), "p2")
	client := b.client(cfg)
	for _, tenant := range b.tenants() {
		_, err := client.Enqueue(tenancy.For(t.Context(), tenant), scan{1}, tenure.External())
		require.NoError(t, err)
	}
	workers := client.ExternalWorkers()
	proxy.Hold(func(string) bool { return true })
	defer proxy.Hold(nil)
	answers := b.count("p1", "SELECT count(*) FROM tenure.external_job")
	require.NotZero(t, answers)
	for range answers {
		got, err := workers.Acquire(t.Context(), forScanner())
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, "p1", got[0].Pool)
	}
	got, err := workers.Acquire(t.Context(), forScanner())
	require.ErrorContains(t, err, "p2", "%v", got)
}

// Each look begins behind the tenant that the last one came to, so that each has its turn.
func TestExternalWorkersServeTenantsInTurn(t *testing.T) {
	t.Parallel()
	const tenants = 20
	b := newTestbed(t, 1, 1)
	b.exec("p1", "INSERT INTO tenure.external_job (tenant_id, queue, kind, payload) SELECT format('t%s', i), 'default', 'scan', '{}' FROM generate_series(1, $1) i, generate_series(1, 2)", tenants)
	workers := b.client(b.named("client")).ExternalWorkers()
	served := map[tenancy.ID]int{}
	for range tenants {
		got, err := workers.Acquire(t.Context(), forScanner())
		require.NoError(t, err)
		require.Len(t, got, 1)
		served[got[0].Tenant]++
	}
	require.Len(t, served, tenants)
}

// Many tenants that have all they may, and rest, do not stand before the one behind them; those that wait
// for the same jobs take turns.
func TestExternalWorkersFindTheOneThatMay(t *testing.T) {
	t.Parallel()
	const tenants = 200 // more than are looked at together
	b := newTestbed(t, 1, 2)
	b.exec("p1", "INSERT INTO tenure.tenant (tenant_id, max_running) SELECT format('full%s', i), 1 FROM generate_series(1, $1) i", tenants)
	b.exec("p1", "INSERT INTO tenure.external_job (tenant_id, queue, kind, payload) SELECT format('full%s', i), 'default', 'scan', '{}' FROM generate_series(1, $1) i, generate_series(1, 2)", tenants)
	client := b.client(b.named("client"))
	workers := client.ExternalWorkers()
	all := forScanner()
	all.Max = 2 * tenants
	got, err := workers.Acquire(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, got, tenants)
	for i := range 2 {
		e, err := client.Enqueue(tenancy.For(t.Context(), "t1"), scan{i}, tenure.External())
		require.NoError(t, err)
		got, err = workers.Acquire(t.Context(), forScanner())
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, e.ID, got[0].Job)
	}

	found := make(chan job.ID, 3)
	for range 3 {
		go func() {
			r := forScanner()
			r.Wait = patience
			got, err := workers.Acquire(t.Context(), r)
			if err != nil || len(got) != 1 {
				t.Errorf("%d jobs: %v", len(got), err)
				return
			}
			found <- got[0].Job
		}()
	}
	want := map[job.ID]bool{}
	for i := range 3 {
		e, err := client.Enqueue(tenancy.For(t.Context(), tenancy.ID(fmt.Sprintf("t%d", 1+i%2))), scan{i}, tenure.External())
		require.NoError(t, err)
		want[e.ID] = true
	}
	for range 3 {
		delete(want, <-found)
	}
	require.Empty(t, want)
}

// External workers get arguments as they were enqueued; what nobody can decrypt is dead.
func TestExternalWorkersReadEncryptedArguments(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Encryption.Keys = []string{secretKey("a")}
	b.cfg.Encryption.Tenants = map[tenancy.ID]encryption.TenantKeys{"t2": {Keys: []string{secretKey("own")}}}
	client := b.client(b.named("client"))
	for _, tenant := range []tenancy.ID{"t1", "t2"} {
		_, err := client.Enqueue(tenancy.For(t.Context(), tenant), scan{42}, tenure.External())
		require.NoError(t, err)
	}
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.external_job WHERE payload = '{\"n\": 42}'"))
	b.cfg.Encryption.Tenants = nil
	ask := forScanner()
	ask.Max = 2
	got, err := b.client(b.named("worker")).ExternalWorkers().Acquire(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, tenancy.ID("t1"), got[0].Tenant)
	require.JSONEq(t, `{"n": 42}`, string(got[0].Payload))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE tenant_id = 't2'"))
}

// What nobody can read takes no place of what can be read, however much of it stands before that: a worker
// that asks for jobs is told of none only if there is none.
func TestExternalJobsThatNobodyCanReadTakeNoPlace(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Encryption.Tenants = map[tenancy.ID]encryption.TenantKeys{"t1": {Keys: []string{secretKey("own")}}}
	client := b.client(b.named("client"))
	for range 5 {
		_, err := client.Enqueue(tenancy.For(t.Context(), "t1"), scan{1}, tenure.External())
		require.NoError(t, err)
	}
	b.exec("p1", `SELECT tenure.enqueue_external('t1', 'scan', '{"n": 2}') FROM generate_series(1, 4)`)
	b.cfg.Encryption.Tenants = nil
	workers := b.client(b.named("worker")).ExternalWorkers()
	ask := forScanner()
	for _, most := range []int{1, 3} {
		ask.Max = most
		got, err := workers.Acquire(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, got, most)
		for _, j := range got {
			require.JSONEq(t, `{"n": 2}`, string(j.Payload))
		}
	}
	require.Equal(t, 5, b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job"))
	got, err := workers.Acquire(t.Context(), ask)
	require.NoError(t, err)
	require.Empty(t, got)
}

// closedRing is a service of keys that does not answer until it is opened.
type closedRing struct {
	encryption.KeyRing
	open atomic.Bool
}

func (r *closedRing) Find(ctx context.Context, tenant, id string) (encryption.Key, error) {
	if !r.open.Load() {
		return encryption.Key{}, errors.New("the service of keys does not answer")
	}
	return r.KeyRing.Find(ctx, tenant, id)
}

// While keys cannot be had no attempt is charged, however often workers ask, and they are told.
func TestExternalJobsOutlastTheirKeysService(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Encryption.Keys = []string{secretKey("a")}
	_, err := b.client(b.named("client")).Enqueue(tenancy.For(t.Context(), "t1"), scan{42}, tenure.External())
	require.NoError(t, err)
	ring := &closedRing{KeyRing: b.cfg.Encryption.Ring()}
	workers := b.client(b.named("worker"), tenure.WithKeyRing(ring)).ExternalWorkers()
	for range 5 {
		got, err := workers.Acquire(t.Context(), forScanner())
		require.ErrorContains(t, err, "the service of keys does not answer")
		require.Empty(t, got)
	}
	ring.open.Store(true)
	got, err := workers.Acquire(t.Context(), forScanner())
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.JSONEq(t, `{"n": 42}`, string(got[0].Payload))
	require.Equal(t, 1, got[0].Attempt, "it is the first one")
}
