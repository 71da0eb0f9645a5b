package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
)

// pending is a pool that is not in service yet.
type pending struct {
	pool *Pool
	late bool // it has not been tried yet; else it did not answer
}

// verifyAll verifies pools of a configuration. It returns those that are not in service, and
// are to be watched once the configuration is in force: they did not answer, or cannot be
// used, with why in refused, or were not tried soon: a server with a thousand
// pools must not keep the others waiting.
func (r *Router) verifyAll(ctx context.Context, pools []*Pool, in *routes) (rest []pending, refused []error) {
	looks := make([]verification, len(pools))
	soon, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var group sync.WaitGroup
	for i, p := range pools {
		group.Go(func() {
			done, err := p.server.verifying.wait(soon)
			if err != nil {
				looks[i].err = err
				return
			}
			defer done()
			looks[i] = r.verify(ctx, p, in)
		})
	}
	group.Wait()
	// Of two ledgers with one number the older one gets in: jobs may depend on it.
	order := make([]int, len(pools))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(looks[a].installed, looks[b].installed) })
	for _, i := range order {
		if !errors.Is(looks[i].err, ErrDialLimit) {
			looks[i].err = r.letIn(pools[i], looks[i], in)
		}
	}
	later := 0
	for i, p := range pools {
		late := false
		switch err := looks[i].err; {
		case err == nil:
			continue
		case errors.Is(err, ErrDialLimit):
			late = true
			later++
		case isPermanent(err):
			refused = append(refused, err)
		default:
			r.logNoAnswer(p, err)
		}
		rest = append(rest, pending{p, late})
	}
	if later > 0 {
		r.log.Info("many pools are on one server; the rest of them come into service one after another", zap.Int("pools", later))
	}
	return rest, refused
}

func (r *Router) watchAll(rest []pending) {
	for _, p := range rest {
		r.tasks.start(func() { r.watch(r.run, p.pool, p.late) })
	}
}

// verification is what was found out about a pool's database.
type verification struct {
	found
	err error
}

// verify is bounded, so that a database that hangs delays neither Start nor the next try. A
// connection that takes longer still serves that.
func (r *Router) verify(ctx context.Context, p *Pool, in *routes) verification {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	f, err := p.inspect(ctx, in, r.use)
	return verification{f, err}
}

// letIn puts a configuration's pool into service when its database can be used.
func (r *Router) letIn(p *Pool, v verification, in *routes) error {
	r.verdict.Lock() // of two pools with one number only one gets in
	defer r.verdict.Unlock()
	err := v.err
	if err == nil {
		err = checkUnique(p, v.number, in.list())
	}
	if err == nil && r.use == store.ToRun { // the arithmetic is of nodes: a client or a command opens a few connections
		err = in.checkCapacity(p, v.systemID, v.maxConns, in.cfg.Connections.Nodes)
	}
	p.enter(v.found, err)
	if err != nil {
		p.dropSpare() // nobody comes for it
	}
	return err
}

// checkUnique refuses p when a pool in service has its number. Two pools in one
// database do not get here: it has one name, and knows it.
func checkUnique(p *Pool, number int, others []*Pool) error {
	for _, other := range others {
		if n, err := other.Number(); err != nil || other == p || n != number {
			continue
		}
		return &store.PoolError{Pool: p.Name, What: fmt.Sprintf("it has the same number %d as pool %s, so their job ids would collide", number, other.Name),
			Fix: "they were migrated apart; migrate new pools with one configuration that names all of them"}
	}
	return nil
}

// retryPolicy spaces out tries to reach a pool: in the end it rests for twice as long as a try
// may take. One that somebody has to mend is looked at less often.
var (
	retryPolicy = backoff.Policy{First: 200 * time.Millisecond, Longest: 2 * connectTimeout}
	unfitPolicy = backoff.Policy{First: retryPolicy.First, Longest: 2 * retryPolicy.Longest}
)

// watch verifies a pool until it is up: one that is down or unfit, or that was to be tried
// too late for Start. Why it is not up is said once.
func (r *Router) watch(ctx context.Context, p *Pool, late bool) {
	said := ""
	if err := p.Unfit(); err != nil {
		said = err.Error()
	}
	retry := backoff.Backoff{Policy: retryPolicy}
	for {
		if !late {
			select {
			case <-ctx.Done():
				return
			case <-p.gone:
				return
			case <-time.After(retry.Next()):
			}
		}
		done, err := p.server.verifying.wait(ctx)
		if err != nil {
			return
		}
		if !p.isGone() {
			in := r.routes.Load()
			err = r.letIn(p, r.verify(ctx, p, in), in)
		}
		if err == nil {
			p.enterTimelines(true)
		}
		done()
		retry.Policy = retryPolicy
		switch {
		case p.isGone():
			return
		case err == nil && late:
			r.log.Debug("pool is up", zap.String("pool", p.Name))
			return
		case err == nil:
			r.log.Info("pool is up", zap.String("pool", p.Name))
			return
		case isPermanent(err):
			retry.Policy = unfitPolicy
			if why := p.Unfit(); why.Error() != said {
				logUnfit(p, why)
				said = why.Error()
			}
		case late:
			r.logNoAnswer(p, err)
		}
		late = false
	}
}

// watchDenied looks at a pool that was refused while it was in service until it is let in: nobody
// else may want a connection.
func (r *Router) watchDenied(ctx context.Context, p *Pool) {
	retry := backoff.Backoff{Policy: unfitPolicy}
	for p.stillDenied() {
		select {
		case <-ctx.Done():
			return
		case <-p.gone:
			return
		case <-time.After(retry.Next()):
		}
		done, err := p.server.verifying.wait(ctx)
		if err != nil {
			return
		}
		if r.verify(ctx, p, r.routes.Load()).err == nil { // by each way
			connects{pool: p}.note(nil)
		}
		done()
	}
}

func logUnfit(p *Pool, why error) {
	p.log.Error("pool is out of service until this is mended; it is tried again in the background", zap.Error(why))
}

func (r *Router) logNoAnswer(p *Pool, err error) {
	r.log.Warn("pool does not answer; trying again in the background", zap.String("pool", p.Name), zap.Error(err))
}
