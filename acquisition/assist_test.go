package acquisition

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
)

// Whatever comes in meanwhile, claims that could not be accepted are asked for again
// after a while, as the database may be in need, and not at once.
func TestAFailureToHelpIsNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	var asked atomic.Int64
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "coalesce(started_at, clock_timestamp())") {
			asked.Add(1)
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	a.assistant.acceptInvitation("b-1", func() {
		go func() {
			defer close(done)
			a.assistant.run(ctx)
		}()
	})
	a.assistant.events.noteAssigned()
	b.until(func() bool { return asked.Load() > 0 })
	for began := time.Now(); time.Since(began) < 2*rankDelay; {
		a.assistant.acceptInvitation("b-1", func() {})
		a.assistant.events.noteAssigned()
		pause := time.NewTimer(time.Millisecond)
		<-pause.C
	}
	require.LessOrEqual(t, asked.Load(), int64(3))
	b.proxy.SetRule(nil)
	cancel()
	<-done
}
