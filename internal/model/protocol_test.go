package model

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// more is for a longer look than a test should take:
//
//	go test ./internal/model -run TestTheProtocolHoldsAtLength -timeout 1h -more 10000000
var more = flag.Int("more", 0, "states to explore of each set of bounds that is not explored in full")

// checked runs a check and logs its figures.
func checked(t *testing.T, p *Protocol, limit int) Report {
	t.Helper()
	r := Check(p, limit)
	t.Logf("%+v, %v:\n%v", p.Bounds, p.Flaws, r)
	return r
}

// Every state within these bounds, in a few seconds.
// raced is set under the race detector, which makes exploring ten times as slow and
// finds nothing in what one goroutine does.
var raced bool

func brief() bool { return testing.Short() || raced }

func TestTheProtocolHolds(t *testing.T) {
	t.Parallel()
	for _, b := range []Bounds{
		{Nodes: 2, Jobs: 1, Lives: 2, Takes: 2},
		{Nodes: 3, Jobs: 1, Lives: 1, Takes: 2},
		{Nodes: 2, Jobs: 1, Lives: 1, Takes: 1, Failovers: 1},
		{Nodes: 2, Jobs: 2, Apart: byKey, Lives: 1, Takes: 2},
		{Nodes: 2, Jobs: 2, Apart: byKey, Late: true, Lives: 1, Takes: 2},
		{Nodes: 2, Jobs: 2, Apart: byLimit, Lives: 1, Takes: 2},
	} {
		r := checked(t, New(b, Flaws{}), 1e6)
		require.Empty(t, r.Broken)
		require.False(t, r.Partial)
	}
}

// Over a million states: some sets of bounds in full, and the histories of two jobs
// up to a length.
func TestTheProtocolHoldsAtLength(t *testing.T) {
	if brief() {
		t.Skip("explores millions of states")
	}
	states := 0
	for _, c := range []struct {
		bounds Bounds
		limit  int // 0: in full
	}{
		{Bounds{Nodes: 2, Jobs: 1, Lives: 2, Takes: 2, Lost: 1}, 0},
		{Bounds{Nodes: 2, Jobs: 1, Lives: 2, Takes: 2, Crashes: 1, Jumps: 1}, 0},
		{Bounds{Nodes: 2, Jobs: 1, Lives: 1, Takes: 2, Failovers: 1}, 5e5},
		{Bounds{Nodes: 2, Jobs: 2, Lives: 1, Takes: 2, Lost: 1, Failures: 1, Returns: 1, Cancels: 1}, 5e5},
		{Bounds{Nodes: 2, Jobs: 2, Batches: true, Lives: 1, Takes: 2, Lost: 1}, 5e5},
		{Bounds{Nodes: 2, Jobs: 2, Apart: byKey, Lives: 2, Takes: 2, Lost: 1, Crashes: 1, Failures: 1, Returns: 1, Cancels: 1}, 5e5},
		{Bounds{Nodes: 2, Jobs: 2, Apart: byLimit, Lives: 2, Takes: 2, Lost: 1, Crashes: 1, Failures: 1, Failovers: 1}, 5e5},
		{Bounds{Nodes: 3, Jobs: 2, Lives: 2, Takes: 3, Lost: 2, Crashes: 1, Jumps: 1, Failovers: 1, Cancels: 1, Failures: 1, Returns: 1}, 5e5},
	} {
		limit := max(c.limit, *more)
		if c.limit == 0 {
			limit = 1e8
		}
		r := checked(t, New(c.bounds, Flaws{}), limit)
		require.Empty(t, r.Broken)
		require.True(t, !r.Partial || c.limit > 0)
		states += r.States
	}
	require.Greater(t, states, int(1e6))
}

// variant is a protocol that is broken on purpose, and what the check says of it.
type variant struct {
	flaws        Flaws
	bounds       Bounds // of two nodes, with one job and two sessions each if they do not say otherwise
	promisesOnly bool
	breaks       string
}

func (v variant) check(t *testing.T) {
	t.Parallel()
	if v.bounds.Takes > 2 && brief() {
		t.Skip("explores millions of states")
	}
	v.bounds.Nodes = 2
	v.bounds.Jobs = max(v.bounds.Jobs, 1)
	if v.bounds.Lives == 0 {
		v.bounds.Lives = 2
	}
	p := New(v.bounds, v.flaws)
	p.PromisesOnly = v.promisesOnly
	r := checked(t, p, 3e6)
	require.Equal(t, v.breaks, r.Broken)
	require.False(t, r.Partial)
}

// Each protection that is taken away is missed: the model can fail.
func TestEveryFlawIsFound(t *testing.T) {
	t.Parallel()
	for _, v := range []variant{
		{Flaws{ClaimsIgnoreEpoch: true}, Bounds{Takes: 2, Lost: 1}, true, faults[claimOld]},
		{Flaws{ClaimsHoldNoLock: true}, Bounds{Takes: 2}, true, faults[claimOld]},
		{Flaws{ClaimsIgnoreRemovals: true}, Bounds{Takes: 1, Cancels: 1}, true, faults[startEnded]},
		{Flaws{ClaimsUnread: true}, Bounds{Takes: 2}, true, claimedTwice},
		{Flaws{RenewsExpired: true}, Bounds{Takes: 1}, false, faults[claimLapsed]},
		{Flaws{EpochsRepeat: true}, Bounds{Takes: 2, Lost: 1, Failovers: 1}, false, stuckClaim},
		{Flaws{EpochsRepeat: true}, Bounds{Takes: 2, Lost: 1, Failovers: 1}, true, claimedTwice},
		{Flaws{FinishIgnoresTurn: true}, Bounds{Takes: 2, Lost: 1}, true, faults[startEnded]},
		{Flaws{LostClaimsCommit: true}, Bounds{Takes: 2}, true, effectsAlone},
		{Flaws{BatchesCommitInPart: true}, Bounds{Jobs: 2, Batches: true, Lives: 1, Takes: 2}, true, effectsAlone},
		{Flaws{ReapKeepsTurn: true}, Bounds{Takes: 2}, true, faults[startEnded]},
		{Flaws{LossesUnrecorded: true}, Bounds{Takes: 2}, true, faults[startUnrecorded]},
		{Flaws{ReapsUnwatched: true}, Bounds{Takes: 2, Jumps: 1}, true, faults[startTwice]},
		{Flaws{DeadSessionsBeat: true}, Bounds{Takes: 2}, true, faults[startTwice]},
		{Flaws{StartsUnchecked: true}, Bounds{Takes: 2}, true, faults[startTwice]},
		{Flaws{LeftoversStay: true}, Bounds{Takes: 2, Lost: 1}, false, stuckClaim},
		{Flaws{HoldsUnread: true}, Bounds{Jobs: 2, Apart: byLimit, Lives: 1, Takes: 2}, false, claimedBeside},
		{Flaws{HoldsUnread: true}, Bounds{Jobs: 2, Apart: byLimit, Lives: 1, Takes: 2}, true, faults[startBeside]},
		{Flaws{HoldsUnread: true}, Bounds{Jobs: 2, Apart: byKey, Late: true, Lives: 1, Takes: 2}, true, faults[startBeside]},
		{Flaws{KeysInAnyOrder: true}, Bounds{Jobs: 2, Apart: byKey, Lives: 1, Takes: 1}, false, faults[claimOutOfTurn]},
	} {
		t.Run(v.flaws.String(), v.check)
	}
}

// These the product had when the model was made; docs/model.md tells their histories.
func TestWhatTheModelFound(t *testing.T) {
	t.Parallel()
	for _, v := range []variant{
		{Flaws{SweepsByMemory: true}, Bounds{Takes: 2, Lost: 1}, false, unprotectedRun},
		{Flaws{SweepsByMemory: true}, Bounds{Takes: 3, Lost: 1}, true, faults[startTwice]},
		{Flaws{FlightMixesUp: true}, Bounds{Jobs: 2, Lives: 1, Takes: 2, Failures: 1}, true, claimedTwice},
		{Flaws{JobIDsRepeat: true}, Bounds{Jobs: 2, Late: true, Lives: 1, Calm: true, Takes: 1, Failovers: 1}, true, faults[endedUnrun]},
		{Flaws{ClaimsGoByID: true}, Bounds{Jobs: 2, Lives: 1, Calm: true, Takes: 2, Failovers: 1}, false, unprotectedRun},
		{Flaws{ClaimsGoByID: true}, Bounds{Jobs: 2, Lives: 1, Calm: true, Takes: 3, Failovers: 1}, true, faults[startTwice]},
	} {
		t.Run(v.flaws.String(), v.check)
	}
}

// These protections keep a pool from changing hands for nothing. No promise hangs on
// them: the lock may be taken by anybody at any time.
func TestSafetyDoesNotHangOnThese(t *testing.T) {
	t.Parallel()
	for _, v := range []variant{
		{Flaws{RenewsExpired: true}, Bounds{Takes: 2}, true, ""},
		{Flaws{DeadSessionsTake: true}, Bounds{Takes: 2}, false, ""},
		{Flaws{TakesUnseen: true}, Bounds{Takes: 2}, false, ""},
	} {
		t.Run(v.flaws.String(), v.check)
	}
}

// What a fail-over rolls back, the promises do not cover: a claim that is gone lets
// another node start the job. Effects stay tied to the job's end even then, which is
// asserted in every check.
func TestAFailoverIsNotForgivenEverything(t *testing.T) {
	t.Parallel()
	for _, promisesOnly := range []bool{false, true} {
		p := New(Bounds{Nodes: 2, Jobs: 1, Lives: 1, Takes: 2, Failovers: 1}, Flaws{})
		p.Unforgiving, p.PromisesOnly = true, promisesOnly
		require.NotEmpty(t, checked(t, p, 3e6).Broken)
	}
}
