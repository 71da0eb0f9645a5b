package execution

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// However many kinds somebody makes up, two hundred have series of their own in each pool, and nothing is lost of the sum;
// those that are not enqueued any more are forgotten, whether or not anybody reads.
func TestEnqueuedKindsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := NewEnqueued()
		gather := func() (series map[string]float64, sum float64) {
			r := prometheus.NewPedanticRegistry()
			require.NoError(t, r.Register(e))
			families, err := r.Gather()
			require.NoError(t, err)
			series = map[string]float64{}
			for _, f := range families {
				for _, one := range f.Metric {
					series[labelsOf(one)] = one.GetCounter().GetValue()
					sum += one.GetCounter().GetValue()
				}
			}
			return series, sum
		}
		for i := range 20_000 {
			e.Add("p1", fmt.Sprint("kind-", i), 1)
		}
		e.Add("p2", "kind-0", 3)
		e.Add("p2", "none", 0)
		series, sum := gather()
		require.Equal(t, 20_003.0, sum)
		require.Len(t, series, mostEnqueuedKinds+2)
		require.Equal(t, []float64{1, 3, 20_000 - mostEnqueuedKinds}, []float64{series[" kind-0 p1"], series[" kind-0 p2"], series[" other p1"]})

		for range 20 { // nobody reads
			time.Sleep(5 * time.Minute)
			e.Add("p1", "works", 1000)
		}
		require.Less(t, len(e.kinds.byName), 2*mostEnqueuedKinds)
		series, _ = gather()
		require.NotZero(t, series[" works p1"])
		e.Forget("p1")
		series, _ = gather()
		require.Equal(t, map[string]float64{" kind-0 p2": 3}, series)
	})
}
