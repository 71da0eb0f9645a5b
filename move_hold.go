package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// hold makes sure that nothing of the tenant is written in the pool it leaves, so that its
// own data can be copied. Its transactions go on until its running jobs have ended, and
// so has every transaction that is open anyway: they stand still for the copying, not for
// the longest report in the database.
func (m *move) hold(ctx context.Context, sources []*routing.Pool) error {
	switch {
	case m.stays:
		return &inputError{errors.New("it lives there already: nothing is to be copied")}
	case m.rows[m.to].State == store.TenantArriving:
		return &inputError{errors.New("its jobs are on their way already: run this without --hold to go on")}
	}
	from := sources[0] // a tenant that lives elsewhere has one pool to leave
	m.say("freezing it in pool %s", from.Name)
	if _, err := m.step.Begin(ctx, from.Jobs(), m.to.Name); err != nil {
		return err
	}
	if err := m.awaitFlight(ctx, from); err != nil {
		return err
	}
	if !m.rows[from].Held {
		err := m.awaitTransactions(ctx, from, "its own are stopped",
			fmt.Sprintf("its data cannot be copied before they end: run this again to go on, or with --to %s to give up",
				from.Name))
		if err != nil {
			return err
		}
	}
	m.say("stopping its transactions in pool %s", from.Name)
	if err := m.step.Hold(ctx, from.Jobs(), true); err != nil {
		return err
	}
	// Whoever begins from here on sees that the tenant is held. That no transaction is left
	// that began before, of whichever program, is what makes the copy complete.
	err := m.awaitTransactions(ctx, from, "its own were stopped",
		fmt.Sprintf("its data cannot be copied before they end: run this again, or with --to %s to give up", from.Name))
	if err != nil {
		return errors.Join(err, m.release(ctx, from))
	}
	m.out.Held = true
	return nil
}

// releaseTimeout bounds how long a command that is interrupted tries to release a tenant.
const releaseTimeout = 5 * time.Second

// release has the tenant's transactions go on after a hold that came to nothing, unless
// an earlier command held it.
func (m *move) release(ctx context.Context, from *routing.Pool) error {
	if m.rows[from].Held {
		return nil
	}
	// The command may have been interrupted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := m.step.Hold(ctx, from.Jobs(), false); err != nil {
		return fmt.Errorf("it stays held in pool %s: run this again: %w", from.Name, err)
	}
	m.say("its transactions go on in pool %s", from.Name)
	return nil
}
