package report

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestHistogramQuantile(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{0.01, 0.02, 0.04}})
	reg.MustRegister(h)
	for range 100 {
		h.Observe(time.Second.Seconds())
	}
	before, err := ReadHistogram(reg, "h")
	require.NoError(t, err)
	require.EqualValues(t, 40, before.Quantile(0.5), "no less than the last bound")
	for range 90 {
		h.Observe(0.001)
	}
	for range 10 {
		h.Observe(0.015)
	}
	all, err := ReadHistogram(reg, "h")
	require.NoError(t, err)
	now := all.Since(before)
	require.EqualValues(t, 5, now.Quantile(0.45))
	require.EqualValues(t, 10, now.Quantile(0.9))
	require.EqualValues(t, 19, now.Quantile(0.99))
	require.EqualValues(t, 20, now.Quantile(1))
	_, err = ReadHistogram(reg, "other")
	require.ErrorContains(t, err, "no metric other")
}
