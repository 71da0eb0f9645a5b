package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/fault"
)

func TestFault_Error(t *testing.T) {
	t.Parallel()
	require.EqualError(t, &fault.Fault{Path: "cluster.bind", What: "is empty", Fix: "name an address"}, "cluster.bind: is empty; name an address")
	require.EqualError(t, &fault.Fault{Path: "cluster.bind", What: "is empty"}, "cluster.bind: is empty")
	require.EqualError(t, &fault.Fault{What: "disk full"}, "disk full", "where All found no path, none is pretended")
	require.EqualError(t, &fault.Fault{What: "disk full", Fix: "make room"}, "disk full; make room")
}

func TestList(t *testing.T) {
	t.Parallel()
	var l fault.List
	require.NoError(t, l.Err())
	require.Nil(t, fault.All(l.Err()))

	l.Add("b", "mend it", "%d of %q", 2, "x")
	l.Add("a", "", "plain")
	l.Add("a", "100 % sure", "twice at one path")
	require.EqualError(t, l.Err(), "b: 2 of \"x\"; mend it\na: plain\na: twice at one path; 100 % sure")
	require.Equal(t, []*fault.Fault{
		{Path: "b", What: `2 of "x"`, Fix: "mend it"},
		{Path: "a", What: "plain"},
		{Path: "a", What: "twice at one path", Fix: "100 % sure"},
	}, fault.All(l.Err()), "in the order of adding")
}

func TestAll(t *testing.T) {
	t.Parallel()
	a, b, c := &fault.Fault{Path: "a", What: "1"}, &fault.Fault{Path: "b", What: "2"}, &fault.Fault{Path: "c", What: "3"}
	other := errors.New("disk full")
	for name, tc := range map[string]struct {
		err  error
		want []*fault.Fault
	}{
		"nothing":                {nil, nil},
		"a fault":                {a, []*fault.Fault{a}},
		"another error":          {other, []*fault.Fault{{What: "disk full"}}},
		"a join of nothing":      {errors.Join(nil, nil), nil},
		"joined":                 {errors.Join(b, nil, a), []*fault.Fault{b, a}},
		"nested, depth first":    {errors.Join(errors.Join(a, errors.Join(b)), errors.Join(other), c), []*fault.Fault{a, b, {What: "disk full"}, c}},
		"the same twice":         {errors.Join(a, a), []*fault.Fault{a, a}},
		"wrapped keeps its text": {fmt.Errorf("read node.yaml: %w", a), []*fault.Fault{{What: "read node.yaml: a: 1"}}},
		"wrapped join":           {fmt.Errorf("read: %w", errors.Join(a, b)), []*fault.Fault{{What: "read: a: 1\nb: 2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, fault.All(tc.err))
		})
	}
}

// However faults are joined, all of them come back, in the order in which a
// reader of the error meets them.
func TestAll_losesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := 0
		var grow func(depth int) error
		grow = func(depth int) error {
			if depth == 0 || rapid.Bool().Draw(rt, "leaf") {
				n++
				if rapid.Bool().Draw(rt, "fault") {
					return &fault.Fault{Path: fmt.Sprint("p", n), What: "x"}
				}
				return fmt.Errorf("p%d: x", n)
			}
			var errs []error
			for range rapid.IntRange(0, 4).Draw(rt, "children") {
				errs = append(errs, grow(depth-1))
			}
			return errors.Join(errs...)
		}
		err := errors.Join(grow(4), grow(4))
		var texts []string
		for _, f := range fault.All(err) {
			texts = append(texts, f.Error())
		}
		require.Len(rt, texts, n)
		if err != nil {
			require.Equal(rt, err.Error(), strings.Join(texts, "\n"))
		}
	})
}
