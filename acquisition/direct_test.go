package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A job is not claimed as it is added while others wait that are to start before it: of a tenant
// that has its share, which no lane shows then, or of which only a hint tells.
func TestDirectWaitsBehindOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(*term)
		admits bool
	}{
		"nothing waits": {func(*term) {}, true},
		"jobs of another full tenant wait": {func(tm *term) {
			tm.lanes.MarkFull(schedule.Portion{Lane: tm.lanes.See(laneOf("globex", 0))})
			tm.lanes.DropInactive()
		}, true},
		"the tenant is full": {func(tm *term) {
			tm.lanes.MarkFull(schedule.Portion{Lane: tm.lanes.See(laneOf("acme", 0))})
			tm.lanes.DropInactive()
		}, false},
		"the tenant's limit is reached": {func(tm *term) {
			tm.inFlight.Add(1, 1)
			tm.gates.Set(store.LimitState{
				Limits: []store.Limit{{LimitKey: store.LimitKey{Tenant: "acme", Scope: store.ScopeTenant}, Most: 1}},
				Flying: []store.LimitedRuns{{Tenant: "acme", IDs: []job.ID{1}, Turns: []int32{1}}},
			}, time.Now())
		}, false},
		"a lane has jobs":        {func(tm *term) { tm.lanes.See(laneOf("acme", 0)) }, false},
		"a hint waits":           {func(tm *term) { tm.inbox.addHint(Hint{Lanes: []store.Lane{laneOf("acme", 0)}}) }, false},
		"a hint without a place": {func(tm *term) { tm.inbox.addHint(Hint{}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, nil).start()
			a := b.acquirer(&fakeElector{})
			tm := tried(t.Context(), a)
			require.NotNil(t, tm)
			c.before(tm)
			home, err := tm.directs.admit(t.Context(), &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}")})
			require.NoError(t, err)
			require.Equal(t, c.admits, home != nil)
			a.keeper.Release(tm.lock.Lock)
		})
	}
}
