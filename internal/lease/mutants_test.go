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
		File: "internal/lease/completer.go", Func: "(*completer).flushBatch",
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
		File: "internal/lease/heartbeat.go", Func: "(*Keeper).renewLock",
		Old:  "k.setListening(ctx, conn, true)",
		New:  "",
		Test: "TestKeeperListens",
	},
	{
		Promise: "P9", Name: "who holds no lock goes on listening",
		File: "internal/lease/heartbeat.go", Func: "(*Keeper).sendHeartbeat",
		Old:  "k.setListening(ctx, conn, false)",
		New:  "",
		Test: "TestKeeperListens",
	},
	{
		Promise: "P10", Name: "what ends together waits for the one whose row is locked",
		File: "internal/lease/completer.go", Func: "(*completer).writeBatch",
		Old:  "if held = c.listBlocking(ctx, runs, slices.Concat(over, returnClaims), err); !held.None() {",
		New:  "if held = c.listBlocking(ctx, runs, slices.Concat(over, returnClaims), err); !held.None() && false {",
		Test: "TestCompleterWaitsForNoLockedRow",
	},
	{
		Promise: "P1", Name: "the end of a job whose row is locked is forgotten",
		File: "internal/lease/locked.go", Func: "(*lockedOutcomes).takeOut",
		Old:  "s.outcomes = append(s.outcomes, e)",
		New:  "_ = e",
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
		Old:  "!c.state.isStopping() && c.pool.Breaker.WaitLeft(time.Now()) > 0",
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
		Promise: "P9", Name: "a stop ends the session that it cut short before Postgres has opened it",
		File: "internal/lease/keeper.go", Func: "(*Keeper).leaveStray",
		Old: `err := store.OpenSession(ctx, conn, *k.stray, k.cfg.Session.TTL)
if err == nil {
	_, err =`,
		New: `var err error
if err == nil {
	_, err =`,
		Test: "TestStopEndsASessionThatWasBeingOpened",
	},
	{
		Promise: "P1", Name: "a claim that is being made is swept",
		File: "internal/lease/pending.go", Func: "(*pendingClaims).ifNone",
		Old:  "return p.none",
		New:  "return nil",
		Test: "TestSweepSparesWhatIsBeingMade",
	},
	{
		Promise: "P9", Name: "anyone who keeps a session stands behind those who only look",
		File: "routing/conns.go", Func: "(*Pool).AwaitDial",
		Old:  "l = p.server.keeping",
		New:  "l = p.server.looking",
		Test: "TestKeeperWaitsForItsTurn",
	},
	{
		Promise: "P9", Name: "an idle node looks like one that has stopped",
		File: "internal/lease/leave.go", Func: "(*Keeper).noteIdle",
		Old:  "return store.IdleSession(ctx, conn, s.id, true) })",
		New:  "return nil })",
		Test: "TestAnIdleNodeIsToldFromOneThatHasStopped",
	},
	{
		Promise: "P9", Name: "a node that stops looks like one that is idle",
		File: "internal/lease/keepers.go", Func: "(*Keepers).Stop",
		Old:  "s.tellPresence(ctx, false)",
		New:  "s.tellPresence(ctx, true)",
		Test: "TestAnIdleNodeIsToldFromOneThatHasStopped",
	},
	{
		Promise: "P9", Name: "a lock that was just taken is not lost with its session",
		File: "internal/lease/leave.go", Func: "(*Keeper).loseSession",
		Old: `h.lost(ErrLockLost)
	}
	if !s.lost`,
		New: `}
	if !s.lost`,
		Test: "TestKeeperLosesWhatWasJustTaken",
	},
	{
		Promise: "P2", Name: "a machine that was suspended believes its clock",
		File: "internal/lease/trust.go", Func: "(*trust).left",
		Old:  "left -= asleep(true) - until.asleep",
		New:  "left -= 0",
		Test: "TestTrustDoesNotOutliveASuspension",
	},
	{
		Promise: "P9", Name: "a lock's connection that falls silent is waited for as long as one that is made",
		File: "internal/lease/connection.go", Func: "(*connection).boundCall",
		Old:  "d = askTimeout",
		New:  "_ = askTimeout",
		Test: "TestKeeperNoticesASilentConnection",
	},
	{
		Promise: "P9", Name: "a lock is tried to be renewed long after it is not trusted any more",
		File: "internal/lease/connection.go", Func: "(*connection).boundCall",
		Old:  "d = min(d, max(left+marginOf(c.cfg.Lock.TTL)/2, CallTimeout/8))",
		New:  "_ = left",
		Test: "TestKeeperIsUnableOnceItsTrustIsOver",
	},
	{
		Promise: "P9", Name: "anyone who could not renew in time does not say that it is unable",
		File: "internal/lease/connection.go", Func: "(*connection).noteOutcome",
		Old:  "c.pool.Breaker.MarkDown()",
		New:  "",
		Test: "TestKeeperIsUnableOnceItsTrustIsOver",
	},
	{
		Promise: "P9", Name: "a connection that a look found to be no good is used for the next renewal only when that is due",
		File: "internal/lease/heartbeat.go", Func: "(*Keeper).renewLock",
		Old:  "if k.pool.Breaker.IsFailing() {",
		New:  "if false {",
		Test: "TestKeeperRenewsSoonAfterALookFailed",
	},
	{
		Promise: "P9", Name: "a call on a silent lock's connection waits for its cancellation",
		File: "routing/conns.go", Func: "(*Pool).lockConfig",
		Old: `tuneForLock(c)
return c`,
		New: `tuneForLock(c)
c.BuildContextWatcherHandler = p.jobsConfig().ConnConfig.BuildContextWatcherHandler
return c`,
		Test: "TestKeeperNoticesASilentConnection",
	},
	{
		Promise: "P10", Name: "a locked claim holds up all ends",
		File: "internal/lease/locked.go", Func: "(*lockedOutcomes).takeOut",
		Old:  "claim := held.Claims[e.Claim.ID] && (e.How == Unstarted || !stays[e.Claim.ID])",
		New:  "claim := false",
		Test: "TestALockedJobEndsWhenItIsFree",
	},
	{
		Promise: "P11", Name: "an end waits for what its run has said",
		File: "internal/lease/completer.go", Func: "(*completer).writeBatch",
		Old:  "batch, runs, slices.Concat(over, returnClaims)); !held.None()",
		New:  "batch, runs, slices.Concat(over, returnClaims)); !reported",
		Test: "TestEndsDoNotWaitForLockedReports",
	},
	{
		Promise: "P10", Name: "ends wait for whatever their runs have logged",
		File: "internal/lease/reports.go", Func: "(*completer).writeLastReports",
		Old:  "bytes+r.Size() > reportBudget",
		New:  "bytes < 0",
		Test: "TestEndsDoNotWaitForMuchThatWasSaid",
	},
	{
		Promise: "P10", Name: "ends wait for whatever running jobs say",
		File: "internal/lease/reports.go", Func: "(*completer).flushReports",
		Old:  "bytes < reportBudget && ",
		New:  "bytes >= 0 && ",
		Test: "TestMuchThatRunsSayIsWrittenInParts",
	},
	{
		Promise: "reports", Name: "what waits with ends fills the memory",
		File: "internal/lease/reports.go", Func: "(*completer).keepReport",
		Old:  "c.kept+e.said > keepMost",
		New:  "c.kept < 0",
		Test: "TestWhatWaitsWithEndsIsBounded",
	},
	{
		Promise: "P10", Name: "reports wait for one whose job is locked",
		File: "internal/lease/reports.go", Func: "(*completer).flushReports",
		Old:  "return held.Jobs[r.Record.ID] })",
		New:  "return false })",
		Test: "TestReportsOfLockedJobsWait",
	},
	{
		Promise: "reports", Name: "a run's report is written whenever another one begins to report",
		File: "internal/lease/reports.go", Func: "(*completer).addReport",
		Old:  "if !c.reportsTimed {",
		New:  "if len(c.reporting) == 0 {",
		Test: "TestReportsAreWrittenTogetherAndSeldom",
	},
}
