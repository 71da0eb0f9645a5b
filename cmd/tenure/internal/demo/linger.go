package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

const (
	// flowEvery is how far apart jobs are that are enqueued while the cluster is looked at.
	flowEvery = 60 * time.Millisecond
	// flowLongest is what its calls take at most.
	flowLongest = 400 * time.Millisecond
	// dieEvery is how far apart nodes die meanwhile, and deadFor how long they are dead.
	dieEvery, deadFor = time.Minute, 15 * time.Second
)

// charge is a job that fails now and then, and for good if its card has expired.
type charge struct {
	Card    int  `json:"card"`
	Expired bool `json:"expired,omitempty"`
}

func (charge) Kind() string { return "card.charge" }

func chargeCard(ctx context.Context, j *job.Job[charge]) error {
	switch {
	case j.Args.Expired:
		return job.Discard(fmt.Errorf("card %d has expired", j.Args.Card))
	case j.Args.Card%5 == 0 && j.Attempt == 1:
		return errors.New("the bank does not answer")
	}
	return wait.For(ctx, 50*time.Millisecond)
}

// linger gives who looks around something to see, until ctx ends: traffic, and nodes that die and come
// back.
func (s *stage) linger(ctx context.Context, p *play, say func(string, ...any)) {
	var group sync.WaitGroup
	group.Go(func() { s.flow(ctx, p) })
	if len(s.nodes) > 1 {
		group.Go(func() {
			if err := s.loseNodes(ctx, say); err != nil && ctx.Err() == nil {
				say("no more nodes die: %v", err)
			}
		})
	}
	group.Wait()
}

// flow enqueues jobs. What cannot be enqueued just now is left out.
func (s *stage) flow(ctx context.Context, p *play) {
	tenants := placeTenants(p.calls, s.tenants)
	for n := 0; wait.For(ctx, flowEvery) == nil; n++ {
		c := p.calls[n%len(p.calls)]
		c.Took = min(c.Took, flowLongest)
		tenant := tenants(n, c)
		switch {
		case n%invoiceShare == 0:
			_ = p.enqueueInvoice(ctx, tenant, len(p.calls)+n)
		case n%7 == 0:
			_, _ = s.client.Enqueue(tenancy.For(ctx, tenant), charge{Card: n, Expired: n%49 == 0})
		default:
			_ = p.enqueueCall(ctx, tenant, c)
		}
	}
}

// loseNodes has the node with most locks die every now and then, and starts it again. The one that died
// in the play comes back first.
func (s *stage) loseNodes(ctx context.Context, say func(string, ...any)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for {
		for _, p := range s.nodes {
			if !p.runs() {
				say("%s starts again", p.name)
				if err := s.startNode(ctx, self, p.name, p.port); err != nil {
					return err
				}
			}
		}
		if wait.For(ctx, dieEvery-deadFor) != nil {
			return nil
		}
		victim, held := s.busiest(ctx)
		if victim == nil {
			continue
		}
		say("%s is killed: it held %d of %d locks", victim.name, held, len(s.pools))
		if err := victim.cmd.Process.Kill(); err != nil {
			return err
		}
		<-victim.done
		if wait.For(ctx, deadFor) != nil {
			return nil
		}
	}
}

// busiest is the node that holds most locks; nil: none holds any.
func (s *stage) busiest(ctx context.Context) (most *process, held int) {
	locks := map[string]int{}
	for _, l := range s.client.Operator().Pools().Locks(ctx) {
		if l.Err == nil && l.Remaining > 0 {
			locks[holderOf(l.Holder)]++
		}
	}
	for _, p := range s.nodes {
		if n := locks[p.name]; p.runs() && n > held {
			most, held = p, n
		}
	}
	return most, held
}
