package promises_test

import (
	"testing"

	"github.com/tenurehq/tenure/internal/store/storetest"
)

// Managed servers hide what a server is from users, and some from everybody. What is promised
// holds there; but where the timeline cannot be read at all nobody can tell that a primary was
// replaced.
func TestOnServersThatHideWhatTheyAre(t *testing.T) {
	if testing.Short() {
		t.Skip("runs other tests again, on two more servers")
	}
	t.Parallel()
	tests := map[string]func(*testing.T){
		"P1":   TestP1ACrashLosesCommits,
		"P2":   TestP2NoGossip,
		"P5":   TestP5AttemptIsRecordedBeforeTheNextStart,
		"P3":   TestP3AStaleRunCommitsNothing,
		"move": TestMoveWhileJobsRun,
	}
	for _, server := range []storetest.Server{storetest.Restricted, storetest.Aurora} {
		t.Run(string(server), func(t *testing.T) {
			storetest.On(t, server)
			for name, test := range tests {
				t.Run(name, test)
			}
			if server == storetest.Restricted {
				t.Run("an old primary", TestP2AnOldPrimaryIsLeft)
			}
		})
	}
}
