// Package wait waits for a time to pass, or for something to become true.
package wait

import (
	"context"
	"errors"
	"time"
)

// Until asks again and again until the answer is yes.
func Until(ctx context.Context, patience time.Duration, otherwise string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New(otherwise+" within "+patience.String()))
	defer cancel()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		if err := For(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// For waits until so much time has passed; an error says why ctx ended before.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
