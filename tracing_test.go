package tenure

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// Where nothing is traced a call that enqueues allocates nothing for it.
func TestTracesThatAreOffCostNothing(t *testing.T) {
	p, ctx, failed := &Client{tracer: nodeSettings{}.tracer()}, t.Context(), errors.New("no")
	jobs := make([]store.NewJob, 3)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, span := p.beginEnqueue(ctx, "kind")
		span.one(&jobs[0], "main", 7)
		span.manyOf(nil)
		span.end(failed)
	}))
}
