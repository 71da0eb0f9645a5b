package promises_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP9ACancelThatHangs: anyone who cancels a job freezes in the middle of it, with the
// lock's row locked. The pool is acquired from again before long.
func TestP9ACancelThatHangs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	n := b.start(b.named("a"), b.registry(nil))
	n.holds("p1")
	cfg, proxy := b.behind(b.named("operator"), "p1")
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) }()
	e, err := client.Enqueue(tenancy.For(t.Context(), "t1"), plain{1}, tenure.In(time.Hour))
	require.NoError(t, err)
	hangs, frozen := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(frozen) })
	defer goOn()
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "INSERT INTO tenure.cancel_request") {
			close(hangs)
			<-frozen
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	cancelled := make(chan error, 1)
	go func() {
		_, err := client.Operator().Jobs().Cancel(context.WithoutCancel(t.Context()), e.ID)
		cancelled <- err
	}()
	<-hangs
	defer b.feed(context.WithoutCancel(t.Context()), "p1")()
	began := time.Now()
	require.Eventually(t, func() bool {
		return b.count("p1", "SELECT count(*) FROM tenure.completed_job") > 0
	}, b.acquireBound(), 10*time.Millisecond)
	t.Logf("acquired from again after %v", time.Since(began).Round(time.Millisecond))
	goOn()
	require.Error(t, <-cancelled)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.timer_job"), "nothing was cancelled")
}
