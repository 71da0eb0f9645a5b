package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// MoveOptions are for [Client.MoveTenant].
type MoveOptions struct {
	// Wait bounds how long running jobs, and then transactions that may still enqueue,
	// are waited for; 0: as long as the context lasts.
	Wait time.Duration
	// Hold has the tenant held in its old pool and nothing moved yet: no job of it runs, no
	// transaction of it begins, and when MoveTenant returns none is open there any more.
	// Then its own data can be copied. Call MoveTenant again without Hold to go on, or with
	// the old pool to give up. On an error, the tenant is held only if it was before.
	Hold bool
	// Progress, if not nil, is called before each step.
	Progress func(step string)
}

// Moved is what [Client.MoveTenant] did, also up to an error.
type Moved struct {
	From []string       // the pools that jobs were moved from
	To   string         // the pool the tenant lives in; if Held, the one it is to live in
	Held bool           // the tenant is held in its old pool, and its data can be copied
	Jobs map[string]int // moved jobs by state: waiting, scheduled, external, history, suspended, dead, finished
}

// MoveTenant moves a tenant's jobs to another pool and has the tenant live there from
// then on. Its own data must be there already; see [MoveOptions] for how it comes there
// without a write being lost. Its jobs are not started meanwhile and can
// be enqueued all the time, those with a unique key but for the moments in which keys
// and jobs are on their way.
//
// [Client.InTx] follows the tenant. While the tenant is held no handler of it runs, and
// InTx fails with [ErrTenantHeld], as does EnqueueTx in a transaction of the caller's own.
//
// It can be interrupted at any point; called again with the same pool it goes on where
// it was, and brings along what was left behind, in whichever pool. While a move is under
// way no other one is begun, but a move whose running jobs are still being waited for is
// given up by moving the tenant to where it is.
//
// Where a configuration still places the tenant in its old pool, that pool leads on to
// the new one; see routing.TableConfig.Move.
func (c *Client) MoveTenant(ctx context.Context, id tenancy.ID, to string, o MoveOptions) (Moved, error) {
	if err := id.Validate(); err != nil {
		return Moved{}, &inputError{err}
	}
	m := &move{client: c, id: id, options: o, step: store.Move{Tenant: string(id), Mover: uuid.New()},
		out: Moved{To: to, Jobs: map[string]int{}}}
	if err := m.run(ctx, to); err != nil {
		return m.out, fmt.Errorf("move tenant %q to pool %s: %w", id, to, err)
	}
	return m.out, nil
}

// move is one call of MoveTenant.
type move struct {
	client  *Client
	id      tenancy.ID
	options MoveOptions
	step    store.Move
	out     Moved

	to    *routing.Pool
	rows  map[*routing.Pool]store.TenantRow // as they were at the beginning
	stays bool                              // the tenant lives in the pool that its jobs come to
}

func (m *move) run(ctx context.Context, to string) error {
	if err := m.look(ctx, to); err != nil {
		return err
	}
	if m.rows[m.to].State == store.TenantMoving {
		return m.abandon(ctx)
	}
	sources, err := m.sources(ctx)
	if err != nil {
		return err
	}
	if m.options.Hold {
		return m.hold(ctx, sources)
	}
	for _, from := range sources {
		if err := m.bring(ctx, from); err != nil {
			return err
		}
	}
	if err := m.open(ctx); err != nil {
		return err
	}
	var left []*routing.Pool // those that were closed for it, now or by an earlier move
	for p, row := range m.rows {
		if p != m.to && (row.State == store.TenantMoved || slices.Contains(sources, p)) {
			left = append(left, p)
		}
	}
	if err := m.settle(ctx, left); err != nil {
		return err
	}
	for _, from := range left {
		if err := m.collect(ctx, from, slices.Contains(sources, from) || m.rows[from].Other == to); err != nil {
			return err
		}
	}
	if _, err := m.client.router.Reroute(ctx, m.id, to); err != nil {
		return fmt.Errorf("the tenant lives there now, but the table does not say so; run this again to have it changed: %w", err)
	}
	return nil
}

// say reports a step.
func (m *move) say(format string, args ...any) {
	if m.options.Progress != nil {
		m.options.Progress(fmt.Sprintf(format, args...))
	}
}

// look reads the tenant's row in every pool.
func (m *move) look(ctx context.Context, to string) error {
	router := m.client.router
	var ok bool
	if m.to, ok = router.Pool(to); !ok {
		return &inputError{ErrUnknownPool}
	}
	if _, err := m.to.Number(); err != nil {
		return err
	}
	type found struct {
		pool *routing.Pool
		row  store.TenantRow
	}
	answers, err := gather(ctx, router.Pools(), func(ctx context.Context, p *routing.Pool) ([]found, error) {
		if _, err := p.Number(); err != nil {
			return nil, err
		}
		row, err := store.ReadTenant(ctx, p.Jobs(), string(m.id))
		if err != nil {
			return nil, err
		}
		return []found{{p, row}}, nil
	})
	m.rows = map[*routing.Pool]store.TenantRow{}
	for _, a := range answers {
		m.rows[a.pool] = a.row
	}
	row, ok := m.rows[m.to]
	switch {
	case !ok:
		return fmt.Errorf("pool %s: %w", to, err)
	case err != nil && row.State == store.TenantArriving: // what is there may still be in a pool that it comes from, too
		return fmt.Errorf("a move is under way, and some pools do not answer: %w", err)
	case err != nil:
		m.say("some pools do not answer, and what they have of the tenant stays there: %v", err)
	}
	for p, row := range m.rows {
		elsewhere := row.State == store.TenantMoving && row.Other != to && p != m.to ||
			row.State == store.TenantArriving && p != m.to && m.from(row).State == store.TenantMoved
		if elsewhere {
			goal := row.Other
			if row.State == store.TenantArriving {
				goal = p.Name
			}
			return &inputError{fmt.Errorf("it is being moved to pool %s: let that come to its end first, with: tenure tenants move %s --to %s", goal, m.id, goal)}
		}
	}
	router.Forget(m.id)
	return nil
}

// from is the row in the pool that an arriving tenant comes from.
func (m *move) from(arriving store.TenantRow) store.TenantRow {
	p, _ := m.client.router.Pool(arriving.Other)
	return m.rows[p]
}

// abandon gives up the move from the pool that the tenant is to be moved to.
func (m *move) abandon(ctx context.Context) error {
	row := m.rows[m.to]
	goal, ok := m.client.router.Pool(row.Other)
	if at := m.rows[goal]; !ok || at.State == store.TenantArriving {
		return &inputError{fmt.Errorf("it is about to arrive in pool %s: let that come to its end first, with: tenure tenants move %s --to %s", row.Other, m.id, row.Other)}
	}
	m.say("giving up the move to pool %s, by which nothing was moved yet", row.Other)
	if err := m.step.Abandon(ctx, m.to.Jobs()); err != nil {
		return err
	}
	m.client.router.Forget(m.id)
	m.ring(ctx)
	return nil
}

// sources are the pools that are to be closed for the tenant, or have just been.
func (m *move) sources(ctx context.Context) ([]*routing.Pool, error) {
	home, err := m.home(ctx)
	if err != nil {
		return nil, err
	}
	if _, answers := m.rows[home]; !answers {
		return nil, fmt.Errorf("it lives in pool %s: %w", home.Name, ErrPoolDown)
	}
	m.stays = home == m.to
	var out []*routing.Pool
	known := false // that the tenant was moved here
	for _, p := range m.client.router.Pools() {
		row, answers := m.rows[p]
		switch {
		case p == m.to || !answers:
		case row.State == store.TenantMoved:
			known = known || row.Other == m.to.Name
			if row.Other == m.to.Name && m.rows[m.to].State == store.TenantArriving {
				out = append(out, p)
			}
		case p == home || row.State == store.TenantMoving:
			out = append(out, p)
		case m.stays: // the configuration was changed, perhaps, while it had jobs elsewhere
			stray, err := store.HasJobs(ctx, p.Jobs(), string(m.id))
			if err != nil {
				return nil, err
			}
			if stray {
				m.say("pool %s has jobs of it, too, although it does not live there", p.Name)
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 && !known && m.rows[m.to].State != store.TenantArriving {
		return nil, &inputError{fmt.Errorf("it lives there already, and no other pool has jobs of it")}
	}
	return out, nil
}

// home is where the tenant lives, and whether its schema may be where it is to live.
func (m *move) home(ctx context.Context) (*routing.Pool, error) {
	_, home, err := m.client.router.Resolve(ctx, m.id)
	if err != nil {
		return nil, err
	}
	place, err := m.client.router.PlaceIn(ctx, m.id, m.to.Name)
	if err != nil {
		return nil, &inputError{err}
	}
	var roles []string
	if place.Role != "" {
		roles = append(roles, place.Role)
	}
	risks, err := store.LookForRisks(ctx, m.to.Jobs(), []string{place.Schema}, roles)
	switch {
	case err != nil:
		return nil, fmt.Errorf("pool %s: %w", m.to.Name, err)
	case len(risks.NoSchema) > 0 && !m.options.Hold:
		return nil, &inputError{fmt.Errorf("it has no schema %q there: run this with --hold, copy the schema, with pg_dump --schema, say, and run this again without", place.Schema)}
	case len(risks.NoSchema) == 0 && m.options.Hold:
		m.say("pool %s has a schema %q already: it must hold nothing that is older than the copy", m.to.Name, place.Schema)
	}
	switch {
	case len(risks.NoRole) > 0:
		return nil, &inputError{fmt.Errorf("role %q does not exist there, or the pool's user is no member of it: create or grant it, and run this again", place.Role)}
	}
	return home, nil
}

// bring moves the tenant's jobs from a pool that it is to leave.
func (m *move) bring(ctx context.Context, from *routing.Pool) error {
	if m.rows[from].State != store.TenantMoved {
		if err := m.closeFor(ctx, from); err != nil {
			return err
		}
	} else if err := m.takeOver(ctx, from, store.TenantArriving); err != nil {
		return err
	}
	m.say("moving its jobs from pool %s to pool %s", from.Name, m.to.Name)
	return m.jobs(ctx, from, func(context.Context) error { return nil })
}

// closeFor freezes the tenant in a pool, waits for what runs and closes the pool for it.
func (m *move) closeFor(ctx context.Context, from *routing.Pool) error {
	m.say("freezing it in pool %s", from.Name)
	frozen, err := m.step.Begin(ctx, from.Jobs(), m.to.Name)
	if err != nil {
		return err
	}
	if err := m.awaitFlight(ctx, from); err != nil {
		return err
	}
	comesFrom := from.Name
	if m.stays {
		comesFrom, frozen = "", m.rows[m.to].Frozen
	}
	m.say("making its jobs wait in pool %s", m.to.Name)
	if err := m.step.Arrive(ctx, m.to.Jobs(), comesFrom, frozen); err != nil {
		return err
	}
	m.say("closing pool %s for it", from.Name)
	return m.step.Close(ctx, from.Jobs(), m.to.Name)
}

// takeOver makes this the command that goes on with a move from a closed pool.
func (m *move) takeOver(ctx context.Context, from *routing.Pool, there string) error {
	if err := m.step.Take(ctx, from.Jobs(), store.TenantMoved); err != nil {
		return err
	}
	return m.step.Take(ctx, m.to.Jobs(), there)
}

// moveLook is how often it is looked whether what is waited for has ended.
const moveLook = 100 * time.Millisecond

// awaitFlight waits until none of the tenant's jobs is claimed. None can be any more.
func (m *move) awaitFlight(ctx context.Context, from *routing.Pool) error {
	said := 0
	return m.await(ctx, func() (string, error) {
		n, node, err := m.step.InFlight(ctx, from.Jobs())
		if err != nil || n == 0 {
			return "", err
		}
		if n != said {
			m.say("waiting for %d running jobs in pool %s", n, from.Name)
			said = n
		}
		return fmt.Sprintf("%d jobs still run in pool %s, one on node %s, and no other of its jobs is started until they end: run this again to go on, or with --to %s to give up", n, from.Name, node, from.Name), nil
	})
}

// await looks until nothing has to be waited for any more.
func (m *move) await(ctx context.Context, look func() (why string, err error)) error {
	var deadline <-chan time.Time
	if m.options.Wait > 0 {
		timer := time.NewTimer(m.options.Wait)
		defer timer.Stop()
		deadline = timer.C
	}
	for {
		why, err := look()
		if err != nil || why == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		case <-deadline:
			return errors.New(why)
		case <-time.After(moveLook):
		}
	}
}

// states are what the jobs in the tables are called.
var states = map[string]string{"job": "waiting", "timer_job": "scheduled", "external_job": "external",
	"history_job": "history", "suspended_job": "suspended", "dead_letter_job": "dead"}

func (m *move) jobs(ctx context.Context, from *routing.Pool, begin func(context.Context) error) error {
	return m.step.Jobs(ctx, m.ends(from), begin, func(place string, n int) { m.count(from, states[place], n) })
}

func (m *move) count(from *routing.Pool, state string, n int) {
	m.out.Jobs[state] += n
	if !slices.Contains(m.out.From, from.Name) {
		m.out.From = append(m.out.From, from.Name)
	}
}

func (m *move) ends(from *routing.Pool) store.Ends {
	return store.Ends{From: from.Jobs(), To: m.to.Jobs()}
}

// open lets the tenant's jobs run where they have arrived.
func (m *move) open(ctx context.Context) error {
	row, err := store.ReadTenant(ctx, m.to.Jobs(), string(m.id))
	if err != nil {
		return err
	}
	if row.State != store.TenantArriving {
		return nil
	}
	if row.Frozen {
		m.say("it lives in pool %s now, and is frozen as it was before", m.to.Name)
	} else {
		m.say("letting its jobs run in pool %s", m.to.Name)
	}
	if err := m.step.Open(ctx, m.to.Jobs()); err != nil {
		return err
	}
	m.client.router.Forget(m.id)
	m.ring(ctx)
	return nil
}

// ring tells the pool's holder where jobs wait; it finds them by itself, too.
func (m *move) ring(ctx context.Context) { m.client.ringTenant(ctx, m.to, m.id) }

// settle makes sure that no finished job stands in two pools, whichever move was cut short
// between adding a batch and removing it, before any of them is moved on. A pool that does
// not answer may be the one that they came from.
func (m *move) settle(ctx context.Context, left []*routing.Pool) error {
	for _, from := range left {
		if err := m.takeOver(ctx, from, store.TenantActive); err != nil {
			return err
		}
	}
	for _, in := range append(left, m.to) {
		others := map[string]store.DB{}
		for _, p := range m.client.router.Pools() {
			if p != in {
				others[p.Name] = p.Jobs()
			}
		}
		if err := m.step.Settle(ctx, in.Jobs(), others); err != nil {
			return fmt.Errorf("it lives in pool %s now; run this again for the rest: %w", m.to.Name, err)
		}
	}
	return nil
}

// collect brings along what came to a closed pool late: a transaction that saw it open
// may have committed a job after the others were moved. Then come the finished jobs,
// which nobody waits for.
func (m *move) collect(ctx context.Context, from *routing.Pool, justClosed bool) error {
	if justClosed {
		err := m.awaitTransactions(ctx, from, "it was closed",
			fmt.Sprintf("the tenant lives in pool %s now, and a job that one of them commits stays there until this is run again", m.to.Name))
		if err != nil {
			return err
		}
	}
	late := false
	err := m.jobs(ctx, from, func(ctx context.Context) error {
		if late {
			return nil
		}
		late = true
		m.say("moving jobs that were committed late in pool %s", from.Name)
		row, err := store.ReadTenant(ctx, m.to.Jobs(), string(m.id))
		if err != nil {
			return err
		}
		return m.step.Arrive(ctx, m.to.Jobs(), from.Name, row.Frozen)
	})
	if err != nil {
		return err
	}
	if err := m.open(ctx); err != nil {
		return err
	}
	m.say("moving its finished jobs from pool %s", from.Name)
	return m.step.Finished(ctx, m.ends(from), func(n int) { m.count(from, "finished", n) })
}

// awaitTransactions waits until every transaction has ended that is open in a pool now;
// what has just happened there, and why that matters, are for the operator.
func (m *move) awaitTransactions(ctx context.Context, from *routing.Pool, happened, why string) error {
	before, err := store.OpenTransactions(ctx, from.Jobs())
	if err != nil {
		return err
	}
	said, renamed := false, false
	return m.await(ctx, func() (string, error) {
		if len(before) == 0 {
			return "", nil
		}
		now, err := store.OpenTransactions(ctx, from.Jobs())
		if err != nil {
			return "", err
		}
		before = slices.DeleteFunc(before, func(tx string) bool { return !slices.Contains(now, tx) })
		if len(before) == 0 && !renamed { // one of them may have been prepared, which gives it another name
			renamed = true
			before = slices.DeleteFunc(now, func(tx string) bool { return !store.IsPrepared(tx) })
		}
		if len(before) == 0 {
			return "", nil
		}
		if !said {
			m.say("waiting for %d transactions that began in pool %s before %s", len(before), from.Name, happened)
			said = true
		}
		first := store.DescribeTransaction(ctx, from.Jobs(), before[0])
		return fmt.Sprintf("%d transactions that began in pool %s before %s are still open (the first: %s): %s", len(before), from.Name, happened, first, why), nil
	})
}
