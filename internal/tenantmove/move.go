package tenantmove

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

// Options are operate.MoveOptions, which says what they mean.
type Options struct {
	Wait     time.Duration
	Hold     bool
	Progress func(step string)
}

// Result is operate.Moved, which says what it means.
type Result struct {
	From []string
	To   string
	Held bool
	Jobs map[string]int
}

// RefusedError is a move that cannot be, or not now: called again unchanged it is refused
// again, until somebody has done something.
type RefusedError struct{ error }

// Unwrap returns what is wrong.
func (e *RefusedError) Unwrap() error { return e.error }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Errorf(format, args...)} }

// Mover moves tenants between the pools of a router.
type Mover struct {
	Router *routing.Router
	// Notify tells a pool's acquirer that jobs of a tenant wait there.
	Notify func(context.Context, *routing.Pool, tenancy.ID)
	// Deed is a stage of the move as the audit has it: begun, resumed or given_up in a pool that the tenant
	// is to leave, each together with its first change there; held or ended in the one that it goes to.
	Deed func(stage string) store.Deed
}

// MoveTenant is operate.Tenants.Move.
func (v Mover) MoveTenant(ctx context.Context, id tenancy.ID, to *routing.Pool, o Options) (Result, error) {
	m := &move{Mover: v, id: id, to: to, options: o, step: store.Move{Tenant: string(id), Mover: uuid.New()},
		out: Result{To: to.Name, Jobs: map[string]int{}}}
	stage, err := m.run(ctx)
	err = m.sayInterrupted(ctx, err)
	if err == nil && stage != "" {
		if err = store.Note(ctx, to.Jobs(), m.Deed(stage)); err != nil {
			err = fmt.Errorf("it was moved or held, and that could not be noted: %w", routing.NamePool(to.Name, err))
		}
	}
	return m.out, err
}

// sayInterrupted says of a command that somebody ends no more than that, whatever the statement that it was at says.
func (m *move) sayInterrupted(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) || errors.As(err, new(*RefusedError)) {
		return err
	}
	return fmt.Errorf("it was interrupted, and goes on when it is run again: %w", context.Cause(ctx))
}

// answerWithin bounds what one pool may take to tell what it knows of a tenant.
const answerWithin = 5 * time.Second

// move is one call of MoveTenant.
type move struct {
	Mover
	id      tenancy.ID
	to      *routing.Pool
	options Options
	step    store.Move
	out     Result

	rows  map[*routing.Pool]store.TenantRow // as they were at the beginning
	stays bool                              // the tenant lives in the pool that its jobs come to
	noted bool                              // whose move it is
}

// run returns the stage that it has brought the move to; "": that is noted already.
func (m *move) run(ctx context.Context) (stage string, err error) {
	if err := m.readRows(ctx); err != nil {
		return "", err
	}
	if m.rows[m.to].State == store.TenantMoving {
		return "", m.giveUp(ctx)
	}
	sources, err := m.findSources(ctx)
	if err != nil {
		return "", err
	}
	if m.options.Hold {
		return "held", m.holdTenant(ctx, sources)
	}
	return "ended", m.moveTenant(ctx, sources)
}

// moveTenant moves the tenant from the pools that it is to leave, or has just left.
func (m *move) moveTenant(ctx context.Context, sources []*routing.Pool) error {
	for _, from := range sources {
		if err := m.bringJobs(ctx, from); err != nil {
			return err
		}
	}
	if err := m.openPool(ctx); err != nil {
		return err
	}
	var left []*routing.Pool // those that were closed for it, now or by an earlier move
	for p, row := range m.rows {
		if p != m.to && (row.State == store.TenantMoved || slices.Contains(sources, p)) {
			left = append(left, p)
		}
	}
	if err := m.settleFinished(ctx, left); err != nil {
		return err
	}
	for _, from := range left {
		if err := m.collectLate(ctx, from, slices.Contains(sources, from) || m.rows[from].Other == m.to.Name); err != nil {
			return err
		}
	}
	if err := m.Router.Reroute(ctx, m.id, m.to.Name); err != nil {
		return fmt.Errorf("the tenant lives there now, but the table does not say so; run this again to have it changed: %w", err)
	}
	return nil
}

// reportStep reports a step.
func (m *move) reportStep(format string, args ...any) {
	if m.options.Progress != nil {
		m.options.Progress(fmt.Sprintf(format, args...))
	}
}

// readRows reads the tenant's row in every pool.
func (m *move) readRows(ctx context.Context) error {
	if _, err := m.to.Number(); err != nil {
		return err
	}
	type found struct {
		pool *routing.Pool
		row  store.TenantRow
	}
	answers, err := routing.AskEach(ctx, m.Router.Pools(), answerWithin, func(ctx context.Context, p *routing.Pool) ([]found, error) {
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
		return fmt.Errorf("pool %s: %w", m.to.Name, err)
	case err != nil && row.State == store.TenantArriving: // what is there may still be in a pool that it comes from, too
		return fmt.Errorf("a move is under way, and some pools do not answer: %w", err)
	case err != nil:
		m.reportStep("some pools do not answer, and what they have of the tenant stays there: %v", err)
	}
	for p, row := range m.rows {
		elsewhere := row.State == store.TenantMoving && row.Other != m.to.Name && p != m.to ||
			row.State == store.TenantArriving && p != m.to && m.sourceRow(row).State == store.TenantMoved
		if elsewhere {
			goal := row.Other
			if row.State == store.TenantArriving {
				goal = p.Name
			}
			return refuse("it is being moved to pool %s: let that come to its end first, with: tenure tenants move %s --to %s", goal, m.id, goal)
		}
	}
	m.Router.Forget(m.id)
	return nil
}

// sourceRow is the row in the pool that an arriving tenant comes from.
func (m *move) sourceRow(arriving store.TenantRow) store.TenantRow {
	p, _ := m.Router.Pool(arriving.Other)
	return m.rows[p]
}

// giveUp gives up the move from the pool that the tenant is to be moved to.
func (m *move) giveUp(ctx context.Context) error {
	row := m.rows[m.to]
	goal, ok := m.Router.Pool(row.Other)
	if at := m.rows[goal]; !ok || at.State == store.TenantArriving {
		return refuse("it is about to arrive in pool %s: let that come to its end first, with: tenure tenants move %s --to %s", row.Other, m.id, row.Other)
	}
	m.reportStep("giving up the move to pool %s, by which nothing was moved yet", row.Other)
	if err := m.abandon(ctx, m.to); err != nil {
		return err
	}
	m.Router.Forget(m.id)
	m.Notify(ctx, m.to, m.id)
	return nil
}

// findSources are the pools that are to be closed for the tenant, or have just been.
func (m *move) findSources(ctx context.Context) ([]*routing.Pool, error) {
	home, err := m.findHome(ctx)
	if err != nil {
		return nil, err
	}
	if _, answers := m.rows[home]; !answers {
		return nil, fmt.Errorf("it lives in pool %s: %w", home.Name, routing.ErrPoolDown)
	}
	m.stays = home == m.to
	var out []*routing.Pool
	known := false // that the tenant was moved here
	for _, p := range m.Router.Pools() {
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
				m.reportStep("pool %s has jobs of it, too, although it does not live there", p.Name)
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 && !known && m.rows[m.to].State != store.TenantArriving {
		return nil, refuse("it lives there already, and no other pool has jobs of it")
	}
	return out, nil
}

// findHome is where the tenant lives, and whether its schema may be where it is to live.
func (m *move) findHome(ctx context.Context) (*routing.Pool, error) {
	_, home, err := m.Router.Resolve(ctx, m.id)
	if err != nil {
		return nil, err
	}
	place, err := m.Router.PlaceIn(ctx, m.id, m.to.Name)
	if err != nil {
		return nil, &RefusedError{err}
	}
	risks, err := store.LookForRisks(ctx, m.to.Jobs(), []string{place.Schema}, []string{place.Role})
	switch {
	case err != nil:
		return nil, fmt.Errorf("pool %s: %w", m.to.Name, err)
	case len(risks.NoSchema) > 0 && !m.options.Hold:
		return nil, refuse("it has no schema %q there: run this with --hold, copy the schema, with pg_dump --schema, say, and run this again without", place.Schema)
	case len(risks.NoSchema) == 0 && m.options.Hold:
		m.reportStep("pool %s has a schema %q already: it must hold nothing that is older than the copy", m.to.Name, place.Schema)
	case len(risks.NoSchema) == 0 && home != m.to && !m.rows[home].Held:
		m.reportStep("pool %s has a schema %q already, which its jobs will use as it is, as this copies no data: if pool %s has newer data, move the tenant back and begin again with --hold", m.to.Name, place.Schema, home.Name)
	}
	if len(risks.RefusedRoles) > 0 {
		return nil, refuse("%s there, and cannot be a tenant's: it would keep no tenants apart: name another role", risks.RefusedRoles[0])
	}
	if len(risks.NoRole) > 0 {
		return nil, refuse("role %q does not exist there, or the pool's user is no member of it: create or grant it, and run this again", place.Role)
	}
	return home, nil
}
