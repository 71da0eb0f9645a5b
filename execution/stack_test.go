package execution

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// waitsForever is a handler with a name that is found in its stack.
func waitsForever(goOn chan struct{}, running chan job.ID) job.HandlerFunc {
	return func(_ context.Context, r *job.Record) error {
		begun := make(chan struct{})
		go func() { helpsForever(begun, goOn) }()
		<-begun
		running <- r.ID
		<-goOn
		return nil
	}
}

func helpsForever(begun, goOn chan struct{}) {
	close(begun)
	<-goOn
}

// Of a job that runs one sees where its handler is, and what it has begun, also when another handler on
// the same worker went before it, and of no other.
func TestStackOfARunningJob(t *testing.T) {
	t.Parallel()
	goOn, running := make(chan struct{}), make(chan job.ID, 1)
	b := newBundle(t, func(c *Config) { c.Workers = 1 }, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "waits", Handle: waitsForever(goOn, running)})
	}).start()
	b.submit("noop", 1)
	before := b.owner.next(t).claim.Record.ID
	b.submit("waits", 1)
	id := <-running
	stack, found := b.workers.Stack(id)
	require.True(t, found)
	require.Contains(t, stack, "waitsForever")
	require.Contains(t, stack, "helpsForever")
	require.NotContains(t, stack, "tRunner")
	for _, other := range []job.ID{before, id + 1} {
		_, found = b.workers.Stack(other)
		require.False(t, found)
	}
	close(goOn)
	b.owner.next(t)
	_, found = b.workers.Stack(id)
	require.False(t, found)
	b.stop()
}
