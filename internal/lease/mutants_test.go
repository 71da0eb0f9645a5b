package lease

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P2", Name: "a node's wall clock says whether it is trusted",
		File: "internal/lease/trust.go", Func: "(*trust).left",
		Old:  "left := until.at.Sub(now)",
		New:  "left := until.wall.Sub(wall(now))",
		Test: "TestTrustDoesNotOutliveASuspension",
	},
	{
		Promise: "P4", Name: "a claim goes with its first job",
		File: "internal/lease/completer.go", Func: "(*completer).takeBatch",
		Old:  "if c.claims[id] == n {",
		New:  "if c.claims[id] >= n {",
		Test: "TestCompleterTakesInWhileItWrites",
	},
	{
		Promise: "P4", Name: "what runs does not hear that its session is lost",
		File: "internal/lease/leave.go", Func: "(*Keeper).loseSession",
		Old:  "s.cancel(errSessionLost)",
		New:  "",
		Test: "TestKeeperLosesTheSession",
	},
	{
		Promise: "P9", Name: "the holder does not listen",
		File: "internal/lease/heartbeat.go", Func: "(*Keeper).beat",
		Old:  "k.hearing.set(ctx, conn, listens)",
		New:  "",
		Test: "TestKeeperListens",
	},
	{
		Promise: "P10", Name: "what ends together waits for the one whose row is locked",
		File: "internal/lease/completer.go", Func: "(*completer).writeBatch",
		Old:  "if held = c.listBlocking(ctx, b, err); !held.None() {",
		New:  "if held = c.listBlocking(ctx, b, err); !held.None() && false {",
		Test: "TestCompleterWaitsForNoLockedRow",
	},
	{
		Promise: "P9", Name: "a session leaves while the lock is taken with it",
		File: "internal/lease/heartbeat.go", Func: "(*Keeper).keepAlive",
		Old:  "return idle })",
		New:  "return true })",
		Test: "TestKeeperStaysWhenWantedAgain",
	},
	{
		Promise: "P11", Name: "a session that a stop keeps from being opened is left",
		File: "internal/lease/leave.go", Func: "(*Keeper).stopKeeping",
		Old:  "k.endStray(ctx)",
		New:  "",
		Test: "TestStopEndsASessionThatWasBeingOpened",
	},
	{
		Promise: "P11", Name: "a session whose opening got no answer is left",
		File: "internal/lease/keeper.go", Func: "(*Keeper).Session",
		Old: `if err := k.leaveStray(ctx, conn); err != nil {
	return err
}`,
		New:  "",
		Test: "TestKeeperOpensAnotherSessionAfterALostAnswer",
	},
	{
		Promise: "P11", Name: "a session leaves with claims that it does not know of",
		File: "internal/store/queries/session_leave.sql",
		Old:  "AND NOT EXISTS (SELECT FROM tenure.claim WHERE session_id = $1);",
		New:  ";",
		Test: "TestKeeperLeavesNoClaimBehindInSilence",
	},
	{
		Promise: "P11", Name: "a claim whose outcomes could not be written counts as ended",
		File: "internal/lease/completer.go", Func: "(*completer).flushBatch",
		Old:  "if !written {",
		New:  "if !written && false {",
		Test: "TestCompleterGivesUpAtItsEnd",
	},
	{
		Promise: "P4", Name: "a jump of the database's clock is not noticed",
		File: "internal/lease/clock.go", Func: "(*databaseClock).noteReading",
		Old:  "case went < least-slack:",
		New:  "case went < -least-slack:",
		Test: "TestDBClock",
	},
	{
		Promise: "P10", Name: "a database that is down is tried as often as somebody wants something of it",
		File: "internal/lease/connection.go", Func: "(*connection).tryCall",
		Old:  "c.life.Err() == nil && c.pool.Breaker.WaitLeft(time.Now()) > 0",
		New:  "c == nil",
		Test: "TestADownDatabaseIsLeftAlone",
	},
	{
		Promise: "P4", Name: "a node tries a database so seldom that its session looks dead",
		File: "internal/lease/connection.go", Func: "retriesOf",
		Old:  "min(retryEvery*3/2, cfg.Lock.TTL/4, cfg.Session.TTL/6)",
		New:  "min(retryEvery*3/2, cfg.Lock.TTL/4)",
		Test: "TestReachBacksOff",
	},
	{
		Promise: "P1", Name: "claims that a fail-over brought back stay",
		File: "internal/lease/connection.go", Func: "(*connection).tryCall",
		Old: `c.conn = conn
c.fresh.Store(true)`,
		New:  "c.conn = conn",
		Test: "TestKeeperRemovesGhosts",
	},
	{
		Promise: "P9", Name: "a call's time begins before it is admitted to connect",
		File: "internal/lease/connection.go", Func: "(*connection).tryCall",
		Old:  "if keeps {",
		New:  "if c != nil {",
		Test: "TestKeeperWaitsForItsTurn",
	},
	{
		Promise: "P1", Name: "a claim that is being made is swept",
		File: "internal/lease/pending.go", Func: "(*pendingClaims).ifNone",
		Old:  "return p.none",
		New:  "return nil",
		Test: "TestSweepSparesWhatIsBeingMade",
	},
	{
		Promise: "P9", Name: "an idle node looks like one that has stopped",
		File: "internal/lease/leave.go", Func: "(*Keeper).noteIdle",
		Old:  "return store.IdleSession(ctx, conn, s.id, true) })",
		New:  "return nil })",
		Test: "TestAnIdleNodeIsToldFromOneThatHasStopped",
	},
	{
		Promise: "P10", Name: "a locked claim holds up all ends",
		File: "internal/lease/locked.go", Func: "(*lockedOutcomes).divide",
		Old:  "claim := held.Claims[e.Claim.ID] && (e.How == Unstarted || !stays[e.Claim.ID])",
		New:  "claim := false",
		Test: "TestALockedJobEndsWhenItIsFree",
	},
	{
		Promise: "P11", Name: "an end waits for what its run has said",
		File: "internal/lease/completer.go", Func: "(*completer).writeBatch",
		Old:  "c.writeLastReports(ctx, b); !held.None()",
		New:  "c.writeLastReports(ctx, b); !reported",
		Test: "TestEndsDoNotWaitForLockedReports",
	},
	{
		Promise: "P10", Name: "ends wait for whatever their runs have logged",
		File: "internal/lease/reports.go", Func: "(*completer).writeLastReports",
		Old:  "bytes+r.Size() > reportBudget",
		New:  "bytes < 0",
		Test: "TestEndsDoNotWaitForMuchThatWasSaid",
	},
}
