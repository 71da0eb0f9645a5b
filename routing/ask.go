package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/store"
)

// AskEach asks pools at the same time, each for so long at most, and joins the answers in
// the order of the pools and the errors of those that did not answer.
func AskEach[T any](ctx context.Context, pools []*Pool, atMost time.Duration, ask func(context.Context, *Pool) ([]T, error)) ([]T, error) {
	answers := make([][]T, len(pools))
	errs := make([]error, len(pools))
	var group sync.WaitGroup
	for i, p := range pools {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, atMost)
			defer cancel()
			var err error
			if answers[i], err = ask(ctx, p); err == nil {
				return
			}
			errs[i] = NameFailure(p, err)
		})
	}
	group.Wait()
	return slices.Concat(answers...), errors.Join(errs...)
}

// NameFailure says why a pool did not answer, and which it is.
func NameFailure(p *Pool, err error) error {
	if unfit := p.Unfit(); unfit != nil { // which says it all
		return unfit
	}
	return NamePool(p.Name, err)
}

// NamePool says which pool an error is about, unless it does.
func NamePool(pool string, err error) error {
	var pe *store.PoolError
	var named *NamedError
	if err == nil || errors.As(err, &pe) || errors.As(err, &named) && named.Pool == pool {
		return err
	}
	return &NamedError{pool, err}
}

// Blame names the pool in an error that says that its database is gone, or did not answer in time. If there was no
// connection, so that nothing was done, it is one of ErrPoolDown. Others come back as they are.
func (p *Pool) Blame(err error) error {
	switch {
	case errors.As(err, new(*pgconn.ConnectError)):
		return p.BlameUndone(err)
	case store.IsGone(err), errors.Is(err, context.DeadlineExceeded):
		return NamePool(p.Name, err)
	}
	return err
}

// BlameUndone is [Pool.Blame] for what has done nothing yet: if the database is gone, it can be tried again.
func (p *Pool) BlameUndone(err error) error {
	if !store.IsGone(err) {
		return err
	}
	if !OutOfService(err) {
		err = fmt.Errorf("%w: %w", ErrPoolDown, err)
	}
	return NamePool(p.Name, err)
}

// NamedError says which pool an error is about.
type NamedError struct {
	Pool string
	err  error
}

func (e *NamedError) Error() string { return "pool " + e.Pool + ": " + e.err.Error() }

// Unwrap returns what is wrong with it.
func (e *NamedError) Unwrap() error { return e.err }
