package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A page of large payloads that took long is followed by smaller ones, down to what any one job may have, and by larger
// ones once they are read soon and are full.
func TestRoomFollowsTheTimeThatPrintingTakes(t *testing.T) {
	t.Parallel()
	p := pageReader{room: store.MaxPageBytes}
	read := func(bytes int64, took time.Duration) int64 {
		p.note(&store.Page{Jobs: []store.Waiting{{Record: job.Record{Payload: make([]byte, bytes)}}}}, took)
		return p.room
	}
	require.EqualValues(t, store.MaxPageBytes/4, read(store.MaxPageBytes, 4*pageSoon))
	require.EqualValues(t, store.MaxJobBytes, read(store.MaxPageBytes/4, 10*pageSoon))
	require.EqualValues(t, store.MaxJobBytes, read(store.MaxJobBytes, time.Second), "any job fits")
	require.EqualValues(t, store.MaxJobBytes, read(1<<10, time.Millisecond), "nothing wants more room")
	require.EqualValues(t, store.MaxJobBytes, read(1<<10, time.Second), "the database is far, or slow")
	require.EqualValues(t, 2*store.MaxJobBytes, read(store.MaxJobBytes, time.Second+pageSoon/2), "which is no reason")
	read(1<<10, time.Millisecond)
	for room := int64(store.MaxJobBytes); room < store.MaxPageBytes; {
		require.Greater(t, read(room, time.Millisecond), room)
		room = p.room
	}
	require.EqualValues(t, store.MaxPageBytes, read(store.MaxPageBytes, time.Millisecond))
}
