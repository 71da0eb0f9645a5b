package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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
	if err == nil || errors.As(err, &pe) {
		return err
	}
	return fmt.Errorf("pool %s: %w", pool, err)
}
