package main

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
	before, err := readHistogram(reg, "h")
	require.NoError(t, err)
	require.EqualValues(t, 40, before.quantile(0.5), "no less than the last bound")
	for range 90 {
		h.Observe(0.001)
	}
	for range 10 {
		h.Observe(0.015)
	}
	all, err := readHistogram(reg, "h")
	require.NoError(t, err)
	now := all.since(before)
	require.EqualValues(t, 5, now.quantile(0.45))
	require.EqualValues(t, 10, now.quantile(0.9))
	require.EqualValues(t, 19, now.quantile(0.99))
	require.EqualValues(t, 20, now.quantile(1))
	_, err = readHistogram(reg, "other")
	require.ErrorContains(t, err, "no metric other")
}
