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
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// play is what happens on the stage: traffic, invoices, and a murder.
type play struct {
	stage *stage
	calls []traffic.Call
	total int

	mu  sync.Mutex
	ids map[job.ID]bool // guarded by mu; enqueued

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
	return &play{stage: s, calls: calls, total: total, ids: map[job.ID]bool{}, say: say}
}

// perform enqueues everything at its time, kills a holder half-way, and waits until
// all is done.
func (p *play) perform(ctx context.Context) error {
	tenants := placeTenants(p.calls, p.stage.tenants)
	err := traffic.Play(ctx, p.calls, func(ctx context.Context, i int, c traffic.Call) error {
		if err := p.enqueueCall(ctx, tenants(i, c), c); err != nil {
			return err
		}
		if i%(invoiceShare-1) == invoiceShare-2 {
			if err := p.enqueueInvoice(ctx, p.stage.tenants[i%len(p.stage.tenants)], i); err != nil {
				return err
			}
		}
		if i == len(p.calls)/2 && len(p.stage.nodes) > 1 {
			return p.kill(ctx)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.untilDone(ctx)
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
	p.note(e.ID)
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
	p.note(e.ID)
	return nil
}

func (p *play) note(id job.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids[id] = true
}

// kill ends the node that holds the first pool's lock with SIGKILL, while it has work in hand, and times how
// long it takes until all its locks are held by others.
func (p *play) kill(ctx context.Context) error {
	victim, orphaned := p.findVictim(ctx)
	for until := time.Now().Add(workPatience); victim != nil && p.claimedBy(ctx, victim.name, underWay) == 0 && time.Now().Before(until); {
		if err := wait.For(ctx, workTick); err != nil {
			return err
		}
		victim, orphaned = p.findVictim(ctx) // locks may move
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
	p.orphans = p.claimedBy(ctx, victim.name, 0)
	held := len(orphaned)
	p.say("%s is killed with SIGKILL: it held the lock of %s, and had claimed %d jobs",
		victim.name, strings.Join(slices.Sorted(maps.Keys(orphaned)), ", "), p.orphans)
	err := wait.Until(ctx, time.Minute, "the killed node's locks were not taken over", func() (bool, error) {
		for _, l := range p.stage.client.Operator().Pools().Locks(ctx) {
			if epoch, ok := orphaned[l.Pool]; ok && l.Epoch > epoch && l.Holder != "" {
				delete(orphaned, l.Pool)
			}
		}
		return len(orphaned) == 0, nil
	})
	if err != nil {
		return err
	}
	p.takeover = time.Since(began)
	p.killed, p.killedHeld = victim.name, held
	p.say("after %.2f s other nodes hold its locks. Its jobs start again once its session has expired: until then it could still be alive and finish them",
		p.takeover.Seconds())
	if p.orphans > 0 {
		// A new holder waits until it has itself seen the session stand still for so long.
		p.again.Store(&rerun{victim.name, p.orphans, time.Now().Add(p.stage.cfg.Acquire.Session.TTL)})
	}
	return nil
}

const (
	// workPatience is how long a node may live on until it has work in hand that will not be done at once.
	workPatience = 3 * time.Second
	workTick     = 10 * time.Millisecond
	underWay     = 100 * time.Millisecond
)

// findVictim is the node that holds the first lock that is held, and the epochs of its locks, by pool.
func (p *play) findVictim(ctx context.Context) (victim *process, orphaned map[string]int64) {
	orphaned = map[string]int64{}
	for _, l := range p.stage.client.Operator().Pools().Locks(ctx) {
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
	return victim, orphaned
}

// claimedBy counts the jobs that a node claimed so long ago, or longer, and that still stand.
func (p *play) claimedBy(ctx context.Context, node string, ago time.Duration) (n int) {
	for _, db := range p.stage.db {
		var here int
		err := db.QueryRow(ctx, `SELECT count(*) FROM tenure.claim c JOIN tenure.node_session s USING (session_id)
			CROSS JOIN unnest(c.job_ids) AS claimed (id) JOIN tenure.job j ON j.id = claimed.id AND j.turn = c.turn
			WHERE s.node = $1 AND ($2::bigint = 0 OR c.started_at <= clock_timestamp() - $2::bigint * interval '1 ms')`, node, ago.Milliseconds()).Scan(&here)
		if err == nil { // a number for people; the proof does not depend on it
			n += here
		}
	}
	return n
}

// untilDone waits until no job is left that may still run.
func (p *play) untilDone(ctx context.Context) error {
	defer p.again.Store(nil)
	return wait.Until(ctx, 5*time.Minute, "jobs were left", func() (bool, error) {
		counts, err := p.stage.client.Operator().Pools().Count(ctx)
		left := int64(0)
		for _, c := range counts {
			left += c.Waiting + c.Timers
		}
		return left == 0, errors.Join(err, wait.For(ctx, 100*time.Millisecond))
	})
}
