package lease

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is for what takes milliseconds on an idle machine.
const patience = 30 * time.Second

// counted is what a counter or a gauge stands at.
func counted(t *testing.T, c prometheus.Collector) (sum float64) {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

const fewConns = 7 // three of them for handlers

// ended waits until ctx is done and returns its cause.
func ended(t *testing.T, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		require.FailNow(t, "the context does not end")
		return nil
	}
}

// within waits for what a goroutine returns.
func within[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		require.FailNow(t, "it does not return")
	}
	return v
}

const (
	lockConns = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure lock'"
	renewals  = "SELECT renew_seq FROM tenure.acquire_lock"
)

func lockOnly(app string) bool { return app == "tenure lock" }

// cutLock breaks every statement on the lock's connection.
func cutLock(e faultproxy.Event) faultproxy.Verdict {
	if lockOnly(e.App) {
		return faultproxy.CutBefore
	}
	return faultproxy.Pass
}

func claimOf(claim int64, id job.ID) *execution.ClaimedJob {
	return &execution.ClaimedJob{ID: claim, Record: job.Record{ID: id, Turn: int32(id) % 3}}
}
