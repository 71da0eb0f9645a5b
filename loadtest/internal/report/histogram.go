package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// histogram is how many observations were no more than each bound, in seconds, in order.
type histogram []bucket

type bucket struct {
	bound float64
	count uint64
}

// ReadHistogram reads one of a node's metrics, of all pools together.
func ReadHistogram(from prometheus.Gatherer, name string) (out histogram, err error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for n, m := range f.GetMetric() {
			h := m.GetHistogram()
			if n == 0 {
				out = make(histogram, len(h.GetBucket())+1)
			}
			for i, b := range h.GetBucket() {
				out[i].bound = b.GetUpperBound()
				out[i].count += b.GetCumulativeCount()
			}
			all := &out[len(out)-1]
			all.bound = math.Inf(1)
			all.count += h.GetSampleCount()
		}
		return out, nil
	}
	return nil, fmt.Errorf("no metric %s", name)
}

// Since is h without what was observed before.
func (h histogram) Since(before histogram) histogram {
	out := slices.Clone(h)
	for i := range before {
		out[i].count -= before[i].count
	}
	return out
}

// Count is how many observations there were.
func (h histogram) Count() uint64 { return h[len(h)-1].count }

// Quantile is what a share q of the observations is no more than, in ms, as far as the
// buckets tell: within one, they are taken to be spread evenly.
func (h histogram) Quantile(q float64) float64 {
	rank := q * float64(h[len(h)-1].count)
	var below, bound float64
	for _, b := range h {
		count := float64(b.count)
		if count >= rank && count > below {
			if math.IsInf(b.bound, 1) {
				break // it is at least the last bound
			}
			bound += (b.bound - bound) * (rank - below) / (count - below)
			break
		}
		below, bound = count, b.bound
	}
	return Round(1000*bound, 2)
}
