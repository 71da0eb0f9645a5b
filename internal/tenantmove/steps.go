package tenantmove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// states are what the jobs in the tables, and the schedules, are called.
var states = map[string]string{"job": "waiting", "timer_job": "scheduled", "external_job": "external",
	"suspended_job": "suspended", "dead_letter_job": "dead", "schedule": "schedules"}

// bringJobs moves the tenant's jobs from a pool that it is to leave.
func (m *move) bringJobs(ctx context.Context, from *routing.Pool) error {
	if m.rows[from].State != store.TenantMoved {
		if err := m.closePool(ctx, from); err != nil {
			return err
		}
	} else if err := m.takeOver(ctx, from, store.TenantArriving); err != nil {
		return err
	}
	m.reportStep("moving its jobs from pool %s to pool %s", from.Name, m.to.Name)
	return m.moveJobs(ctx, from, func(context.Context) error { return nil })
}

// closePool freezes the tenant in a pool, waits for what runs and closes the pool for it.
func (m *move) closePool(ctx context.Context, from *routing.Pool) error {
	m.reportStep("freezing it in pool %s", from.Name)
	frozen, err := m.begin(ctx, from)
	if err != nil {
		return err
	}
	if err := m.awaitFlight(ctx, from, fmt.Sprintf(", and no other of its jobs is started until they end: run this again to go on, or with --to %s to give up", from.Name)); err != nil {
		return err
	}
	comesFrom := from.Name
	if m.stays {
		comesFrom, frozen = "", m.rows[m.to].Frozen
	}
	m.reportStep("making its jobs wait in pool %s", m.to.Name)
	if err := m.step.Arrive(ctx, m.to.Jobs(), comesFrom, frozen); err != nil {
		return err
	}
	if !m.stays {
		if err := m.step.Limits(ctx, from.Jobs(), m.to.Jobs()); err != nil {
			return err
		}
	}
	m.reportStep("closing pool %s for it", from.Name)
	return m.step.Close(ctx, from.Jobs(), m.to.Name)
}

// begin freezes the tenant in a pool that it is to leave, and notes who does that.
func (m *move) begin(ctx context.Context, from *routing.Pool) (frozen bool, err error) {
	m.noted = true
	return m.step.Begin(ctx, store.Noted(from.Jobs(), m.Deed("begun")), m.to.Name)
}

// abandon gives up a move from a pool, and notes who does that.
func (m *move) abandon(ctx context.Context, from *routing.Pool) error {
	return store.InNoted(ctx, from.Jobs(), m.Deed("given_up"), func(db store.DB) error { return m.step.Abandon(ctx, db) })
}

// takeOver makes this the command that goes on with a move from a closed pool, and notes who does that if
// nothing of this command has been noted yet.
func (m *move) takeOver(ctx context.Context, from *routing.Pool, there string) error {
	take := func(db store.DB) error { return m.step.Take(ctx, db, store.TenantMoved) }
	err := error(nil)
	if m.noted {
		err = take(from.Jobs())
	} else {
		m.noted = true
		err = store.InNoted(ctx, from.Jobs(), m.Deed("resumed"), take)
	}
	if err != nil {
		return err
	}
	return m.step.Take(ctx, m.to.Jobs(), there)
}

func (m *move) moveJobs(ctx context.Context, from *routing.Pool, begin func(context.Context) error) error {
	return m.step.Jobs(ctx, m.endsOf(from), begin, func(place string, n int) { m.countMoved(from, states[place], n) })
}

func (m *move) countMoved(from *routing.Pool, state string, n int) {
	m.out.Jobs[state] += n
	if !slices.Contains(m.out.From, from.Name) {
		m.out.From = append(m.out.From, from.Name)
	}
}

func (m *move) endsOf(from *routing.Pool) store.Ends {
	return store.Ends{From: from.Jobs(), To: m.to.Jobs()}
}

// openPool lets the tenant's jobs run where they have arrived.
func (m *move) openPool(ctx context.Context) error {
	row, err := store.ReadTenant(ctx, m.to.Jobs(), string(m.id))
	if err != nil {
		return err
	}
	if row.State != store.TenantArriving {
		return nil
	}
	if row.Frozen {
		m.reportStep("it lives in pool %s now, and is frozen as it was before", m.to.Name)
	} else {
		m.reportStep("letting its jobs run in pool %s", m.to.Name)
	}
	if err := m.step.Open(ctx, m.to.Jobs()); err != nil {
		return err
	}
	m.Router.Forget(m.id)
	m.Notify(ctx, m.to, m.id)
	return nil
}

// settleFinished makes sure that no finished job stands in two pools, whichever move was cut short
// between adding a batch and removing it, before any of them is moved on. A pool that does
// not answer may be the one that they came from.
func (m *move) settleFinished(ctx context.Context, left []*routing.Pool) error {
	for _, from := range left {
		if err := m.takeOver(ctx, from, store.TenantActive); err != nil {
			return err
		}
	}
	for _, in := range append(left, m.to) {
		others := map[string]store.DB{}
		for _, p := range m.Router.Pools() {
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

// collectLate brings along what came to a closed pool late: a transaction that saw it open
// may have committed a job after the others were moved, or that one of them is to be cancelled. Then come the finished jobs,
// which nobody waits for.
func (m *move) collectLate(ctx context.Context, from *routing.Pool, justClosed bool) error {
	if justClosed {
		err := m.awaitTransactions(ctx, from, "it was closed",
			fmt.Sprintf("the tenant lives in pool %s now, and a job that one of them commits stays there until this is run again", m.to.Name))
		if err != nil {
			return err
		}
	}
	if err := m.step.LateCancels(ctx, m.endsOf(from)); err != nil {
		return err
	}
	late := false
	err := m.moveJobs(ctx, from, func(ctx context.Context) error {
		if late {
			return nil
		}
		late = true
		m.reportStep("moving jobs that were committed late in pool %s", from.Name)
		row, err := store.ReadTenant(ctx, m.to.Jobs(), string(m.id))
		if err != nil {
			return err
		}
		return m.step.Arrive(ctx, m.to.Jobs(), from.Name, row.Frozen)
	})
	if err != nil {
		return err
	}
	if err := m.openPool(ctx); err != nil {
		return err
	}
	m.reportStep("moving its finished jobs from pool %s", from.Name)
	return m.step.Finished(ctx, m.endsOf(from), func(n int) { m.countMoved(from, "finished", n) })
}

// holdTenant makes sure that nothing of the tenant is written in the pool it leaves, so that its
// own data can be copied. Its transactions go on until its running jobs have ended, and
// so has every transaction that is open anyway: they stand still for the copying, not for
// the longest report in the database.
func (m *move) holdTenant(ctx context.Context, sources []*routing.Pool) (err error) {
	switch {
	case m.stays:
		return refuse("it lives there already: nothing is to be copied")
	case m.rows[m.to].State == store.TenantArriving:
		return refuse("its jobs are on their way already: run this without --hold to go on")
	}
	from := sources[0] // a tenant that lives elsewhere has one pool to leave
	m.reportStep("freezing it in pool %s", from.Name)
	defer func() {
		if err != nil {
			err = m.releaseTenant(ctx, from, m.sayInterrupted(ctx, err))
		}
	}()
	if _, err := m.begin(ctx, from); err != nil {
		return err
	}
	if err := m.awaitFlight(ctx, from, ": run this again when they have ended"); err != nil {
		return err
	}
	const again = "its data cannot be copied before they end: run this again then"
	if !m.rows[from].Held {
		if err := m.awaitTransactions(ctx, from, "its own are stopped", again); err != nil {
			return err
		}
	}
	m.reportStep("stopping its transactions in pool %s", from.Name)
	if err := m.step.Hold(ctx, from.Jobs(), true); err != nil {
		return err
	}
	// A transaction that begins from here on sees that the tenant is held. That no transaction is left
	// that began before, of any program, is what makes the copy complete.
	if err := m.awaitTransactions(ctx, from, "its own were stopped", again); err != nil {
		return err
	}
	m.out.Held = true
	return nil
}

// releaseTimeout bounds how long a command that is interrupted tries to release a tenant.
const releaseTimeout = 5 * time.Second

// releaseTenant has the tenant's jobs and transactions go on after a hold that came to
// nothing because of why, but for what an earlier command has stopped. It returns why, with
// what stays stopped.
func (m *move) releaseTenant(ctx context.Context, from *routing.Pool, why error) error {
	before := m.rows[from]
	if before.Held {
		return stillStopped("it stays held", from, why)
	}
	// The command may have been interrupted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	switch err := m.step.Hold(ctx, from.Jobs(), false); {
	case errors.Is(err, store.ErrMoverReplaced): // or the move was not begun
		return why
	case err != nil:
		return errors.Join(why, fmt.Errorf("it may stay held, and its jobs stopped, in pool %s: run this again, or with --to %[1]s to give up: %w", from.Name, err))
	case before.State == store.TenantMoving:
		return stillStopped("its jobs stay stopped", from, why)
	}
	if err := m.abandon(ctx, from); err != nil {
		return errors.Join(why, fmt.Errorf("its jobs stay stopped in pool %s: run this again, or with --to %[1]s to give up: %w", from.Name, err))
	}
	m.reportStep("its jobs and transactions go on in pool %s", from.Name)
	m.Router.Forget(m.id)
	m.Notify(ctx, from, m.id)
	return why
}

// stillStopped adds to why what an earlier command has stopped.
func stillStopped(what string, from *routing.Pool, why error) error {
	return fmt.Errorf("%w; %s in pool %s, as before: run this again, or with --to %[3]s to give up", why, what, from.Name)
}

// lookEvery is how often a move checks whether what it waits for has ended.
const lookEvery = 100 * time.Millisecond

// awaitFlight waits until none of the tenant's jobs is claimed. None can be any more. then
// is what an operator is told who has waited long enough.
func (m *move) awaitFlight(ctx context.Context, from *routing.Pool, then string) error {
	said := 0
	return m.awaitEnd(ctx, func() (string, error) {
		n, node, err := m.step.InFlight(ctx, from.Jobs())
		if err != nil || n == 0 {
			return "", err
		}
		if n != said {
			m.reportStep("waiting for %s in pool %s", plural.Count(n, "running job", "running jobs"), from.Name)
			said = n
		}
		return fmt.Sprintf("%s in pool %s, one on node %s%s", plural.Count(n, "job still runs", "jobs still run"), from.Name, node, then), nil
	})
}

// awaitEnd looks until nothing has to be waited for any more.
func (m *move) awaitEnd(ctx context.Context, look func() (why string, err error)) error {
	var deadline <-chan time.Time
	if m.options.Wait > 0 {
		deadline = time.After(m.options.Wait)
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
		case <-time.After(lookEvery):
		}
	}
}

// awaitTransactions waits until every transaction has ended that is open in a pool now;
// what has just happened there, and why that matters, are for the operator.
func (m *move) awaitTransactions(ctx context.Context, from *routing.Pool, happened, why string) error {
	before, err := store.OpenTransactions(ctx, from.Jobs())
	if err != nil {
		return err
	}
	said, renamed := false, false
	return m.awaitEnd(ctx, func() (string, error) {
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
			m.reportStep("waiting for %s that began in pool %s before %s", plural.Count(len(before), "transaction", "transactions"), from.Name, happened)
			said = true
		}
		first := store.DescribeTransaction(ctx, from.Jobs(), before[0])
		return fmt.Sprintf("%s that began in pool %s before %s %s still open (the first: %s): %s",
			plural.Count(len(before), "transaction", "transactions"), from.Name, happened, plural.Which(len(before), "is", "are"), first, why), nil
	})
}
