package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/traffic"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// play is what happens on the stage: traffic, invoices, and a murder.
type play struct {
	stage *stage
	calls []traffic.Call
	total int

	enqueued atomic.Int64
	mu       sync.Mutex
	ids      map[string]map[job.ID]bool // guarded by mu; enqueued, by pool

	say func(format string, args ...any)

	victim     atomic.Pointer[string] // the node that was killed; nil: none yet
	killed     string
	killedHeld int // locks it held
	orphans    int // jobs it had claimed
	takeover   time.Duration
	again      atomic.Pointer[rerun] // what the killed node left; nil: nothing
}

// rerun is when the jobs that a killed node had claimed start again, about.
type rerun struct {
	node string
	jobs int
	at   time.Time
}

func newPlay(s *stage, calls []traffic.Call, say func(format string, args ...any)) *play {
	// One invoice after so many calls.
	total := len(calls) + len(calls)/(invoiceShare-1)
	ids := map[string]map[job.ID]bool{}
	for _, p := range s.pools {
		ids[p] = map[job.ID]bool{}
	}
	return &play{stage: s, calls: calls, total: total, ids: ids, say: say}
}

func (p *play) enqueuedCount() int { return int(p.enqueued.Load()) }

// enqueuers is how many enqueue at a time: one alone would fall behind a burst.
const enqueuers = 8

// perform enqueues everything at its time, kills a holder half-way, and waits until
// all is done.
func (p *play) perform(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan func() error)
	var group sync.WaitGroup
	for range enqueuers {
		group.Go(func() {
			for enqueue := range due {
				if err := enqueue(); err != nil {
					cancel(err)
				}
			}
		})
	}
	p.feed(ctx, due, cancel)
	close(due)
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return p.untilDone(ctx)
}

// feed hands out each call at its time.
func (p *play) feed(ctx context.Context, due chan<- func() error, fail context.CancelCauseFunc) {
	tenants := placeTenants(p.calls, p.stage.tenants)
	began := time.Now()
	var murder sync.WaitGroup
	defer murder.Wait()
	for i, c := range p.calls {
		if err := wait(ctx, c.At-time.Since(began)); err != nil {
			return
		}
		tenant := tenants(i, c)
		hand := []func() error{func() error { return p.enqueueCall(ctx, tenant, c) }}
		if i%(invoiceShare-1) == invoiceShare-2 {
			hand = append(hand, func() error { return p.enqueueInvoice(ctx, p.stage.tenants[i%len(p.stage.tenants)], i) })
		}
		for _, f := range hand {
			select {
			case due <- f:
			case <-ctx.Done():
				return
			}
		}
		if i == len(p.calls)/2 && len(p.stage.nodes) > 1 {
			murder.Go(func() {
				if err := p.kill(ctx); err != nil {
					fail(err)
				}
			})
		}
	}
}

// placeTenants maps the recording's tenants to the demo's. One service that stands
// for a whole recording is spread over all, the first ones being the loudest.
func placeTenants(calls []traffic.Call, ids []tenancy.ID) func(i int, c traffic.Call) tenancy.ID {
	index := map[string]int{}
	for i, name := range traffic.Tenants(calls) {
		index[name] = i
	}
	return func(i int, c traffic.Call) tenancy.ID {
		if len(index) >= len(ids) && c.Tenant != "llm" {
			return ids[index[c.Tenant]%len(ids)]
		}
		// Squaring a number between 0 and 1 makes small ones frequent.
		x := float64(i*7919%1000) / 1000
		return ids[int(x*x*float64(len(ids)))]
	}
}

func (p *play) enqueueCall(ctx context.Context, tenant tenancy.ID, c traffic.Call) error {
	e, err := p.stage.client.Enqueue(tenancy.For(ctx, tenant), call{Function: c.Kind, Took: c.Took})
	if err != nil {
		return err
	}
	p.note(tenant, e.ID)
	return nil
}

// enqueueInvoice adds the invoice and the job that sends it in one transaction of
// the tenant.
func (p *play) enqueueInvoice(ctx context.Context, tenant tenancy.ID, n int) error {
	var e tenure.Enqueued
	err := p.stage.client.InTx(tenancy.For(ctx, tenant), func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, "INSERT INTO invoice (id) VALUES ($1)", n); err != nil {
			return err
		}
		e, err = p.stage.client.EnqueueTx(ctx, tx, invoice{Invoice: n})
		return err
	})
	if err != nil {
		return err
	}
	p.note(tenant, e.ID)
	return nil
}

func (p *play) note(tenant tenancy.ID, id job.ID) {
	p.mu.Lock()
	p.ids[p.stage.cfg.Tenants.Static[tenant].Pool][id] = true
	p.mu.Unlock()
	p.enqueued.Add(1)
}

// kill ends the node that holds the first pool's lock with SIGKILL, and times how
// long it takes until all its locks are held by others.
func (p *play) kill(ctx context.Context) error {
	orphaned := map[string]int64{} // epochs by pool
	var victim *process
	for _, l := range p.stage.client.LockStatuses(ctx) {
		if l.Holder == "" {
			continue
		}
		name := holderOf(l.Holder)
		if victim == nil {
			victim = p.stage.node(name)
		}
		if victim != nil && victim.name == name {
			orphaned[l.Pool] = l.Epoch
		}
	}
	if victim == nil {
		return errors.New("no node holds a lock, so none can be killed")
	}
	if err := victim.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", victim.name, err)
	}
	began := time.Now()
	p.victim.Store(&victim.name)
	<-victim.done
	p.orphans = p.claimedBy(ctx, victim.name)
	held := len(orphaned)
	p.say("%s is killed with SIGKILL: it held the lock of %s, and had claimed %d jobs",
		victim.name, strings.Join(slices.Sorted(maps.Keys(orphaned)), ", "), p.orphans)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the killed node's locks were not taken over within a minute"))
	defer cancel()
	for len(orphaned) > 0 {
		for _, l := range p.stage.client.LockStatuses(ctx) {
			if epoch, ok := orphaned[l.Pool]; ok && l.Epoch > epoch && l.Holder != "" {
				delete(orphaned, l.Pool)
			}
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	p.takeover = time.Since(began)
	p.killed, p.killedHeld = victim.name, held
	p.say("after %.2f s other nodes hold its locks. Its jobs start again once its session has expired: until then it could be alive, and finish them",
		p.takeover.Seconds())
	if p.orphans > 0 {
		// A new holder waits until it has itself seen the session stand still for so long.
		p.again.Store(&rerun{victim.name, p.orphans, time.Now().Add(p.stage.cfg.Acquire.Session.TTL)})
	}
	return nil
}

// claimedBy counts the jobs that a node had claimed and that still stand.
func (p *play) claimedBy(ctx context.Context, node string) (n int) {
	for _, db := range p.stage.db {
		var here int
		err := db.QueryRow(ctx, `SELECT count(*) FROM tenure.claim c JOIN tenure.node_session s USING (session_id)
			CROSS JOIN unnest(c.job_ids) AS claimed (id) JOIN tenure.job j ON j.id = claimed.id AND j.turn = c.turn
			WHERE s.node = $1`, node).Scan(&here)
		if err == nil { // a number for people; the proof does not depend on it
			n += here
		}
	}
	return n
}

// untilDone waits until no job is left that may still run.
func (p *play) untilDone(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("jobs were left after five minutes"))
	defer cancel()
	for {
		counts, err := p.stage.client.Count(ctx)
		if err != nil {
			return err
		}
		left := int64(0)
		for _, c := range counts {
			left += c.Waiting + c.Timers
		}
		if left == 0 {
			p.again.Store(nil)
			return nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
