package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlope(t *testing.T) {
	t.Parallel()
	require.Zero(t, slope(nil, nil))
	require.Zero(t, slope([]float64{1}, []float64{5}))
	require.InDelta(t, 0, slope([]float64{0, 1, 2}, []float64{7, 7, 7}), 1e-9)
	require.InDelta(t, -3, slope([]float64{0, 1, 2}, []float64{7, 4, 1}), 1e-9)
	require.InDelta(t, 2, slope([]float64{0, 1, 2, 3}, []float64{1, 2.5, 5.5, 7}), 0.2)

	var s soakSeries
	for i, n := range []float64{10, 12, 11} {
		s.add(float64(i), n)
	}
	require.Equal(t, []float64{10, 12, 0.5}, []float64{s.Least, s.Most, s.PerHour})
}
