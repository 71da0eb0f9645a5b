package main

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// histogram is how many observations were no more than each bound, in seconds, in order.
type histogram []struct {
	bound float64
	count uint64
}

// readHistogram reads one of a node's metrics.
func readHistogram(from prometheus.Gatherer, name string) (out histogram, err error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		if f.GetName() != name || len(f.GetMetric()) != 1 {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		for _, b := range h.GetBucket() {
			out = append(out, struct {
				bound float64
				count uint64
			}{b.GetUpperBound(), b.GetCumulativeCount()})
		}
		return append(out, struct {
			bound float64
			count uint64
		}{math.Inf(1), h.GetSampleCount()}), nil
	}
	return nil, fmt.Errorf("no metric %s, or more than one", name)
}

// since is h without what was observed before.
func (h histogram) since(before histogram) histogram {
	out := append(histogram{}, h...)
	for i := range before {
		out[i].count -= before[i].count
	}
	return out
}

// quantile is what a share q of the observations is no more than, in ms, as far as the
// buckets tell: within one, they are taken to be spread evenly.
func (h histogram) quantile(q float64) float64 {
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
	return math.Round(bound*1e5) / 100
}
