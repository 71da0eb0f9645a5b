package lease

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g pendingClaims
		looked := 0
		look := func() { looked++ }
		require.NoError(t, g.whenNone(t.Context(), look), "nobody is inside")
		first, second := g.beginClaim(), g.beginClaim()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errClaimPending)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, g.whenNone(ctx, look), errClaimPending)
		require.Equal(t, time.Minute, time.Since(began))

		came := make(chan error)
		go func() { came <- g.whenNone(t.Context(), look) }()
		first()
		synctest.Wait()
		require.Equal(t, 1, looked, "one is still inside")
		second()
		require.NoError(t, <-came)
		require.Equal(t, 2, looked)
	})
}

// Anyone who looks sees what everybody did who was inside before, whole.
func TestGateRaced(t *testing.T) {
	t.Parallel()
	var g pendingClaims
	begun, ended := 0, 0
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 1000 {
				leave := g.beginClaim()
				mu.Lock()
				begun++
				mu.Unlock()
				mu.Lock()
				ended++
				mu.Unlock()
				leave()
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	group.Go(func() {
		for ctx.Err() == nil {
			_ = g.whenNone(ctx, func() { // an error is the end of ctx
				if begun != ended {
					t.Errorf("%d of %d are whole", ended, begun)
				}
				if ended == 4000 {
					stop()
				}
			})
		}
	})
	group.Wait()
}
