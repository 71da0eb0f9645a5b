package main

const (
	queries = "internal/store/queries/"
	root    = "."
	ledger  = "./internal/store"
)

var mutants = []mutant{
	{"P2", "a claim does not check the epoch", queries + "claim_insert.sql",
		"holder = $1 AND epoch = $2 AND removals", "holder = $1 AND $2::bigint > 0 AND removals", root, "TestP2OneClaimPerJob"},
	{"P2", "a claim does not lock the lock's row", queries + "claim_insert.sql",
		"\n      FOR KEY SHARE) AS fence", ") AS fence", root, "TestP2OneClaimPerJob"},
	{"P2", "a claim does not heed removals", queries + "claim_insert.sql",
		"AND removals = $3", "AND $3::bigint >= 0", ledger, "TestCancel"},
	{"P2", "an expired lock can be renewed", queries + "lock_renew.sql",
		" AND expires_at > clock_timestamp()\nRETURNING", "\nRETURNING", ledger, "TestAnExpiredLockIsTakenAnew"},
	{"P3", "finishing in a transaction does not check the turn", queries + "finish_in_tx.sql",
		"WHERE id = $1 AND turn = $2", "WHERE id = $1 AND $2::integer >= 0", root, "TestP3AStaleRunCommitsNothing"},
	{"P3", "finishing no row in a transaction is no error", queries + "finish_in_tx.sql",
		"tenure.require_claim(count(*))", "count(*)", root, "TestP3AStaleRunCommitsNothing"},
	{"P3", "finishing does not check the turn", queries + "finish_done.sql",
		"AND turn = $2", "AND $2::integer >= 0", ledger, "TestReapRaisesTurnsAndBuriesKillers"},
	{"P4", "a session is dead when the database's clock says so", "acquisition/chores.go",
		"if t.watch.still(s, now) < t.cfg.Session.TTL || !s.Expired {", "if t.watch.still(s, now) < 0 || !s.Expired {", root, "TestP4LongJobIsNotStartedTwice"},
	{"P5", "a loss is not recorded", queries + "claim_reap.sql",
		"losses = j.losses + run.loss", "losses = j.losses + 0 * run.loss", ledger, "TestReapRaisesTurnsAndBuriesKillers"},
	{"P5", "a failed run is not charged", queries + "finish_later.sql",
		"attempt + charged::int", "attempt + 0 * charged::int", root, "TestFailuresAreRetriedThenDead"},
	{"P9", "only the elected node takes an expired lock", "acquisition/acquirer.go",
		"return max(quiet+delay-time.Since(a.standing.since), 0)", "return max(quiet-time.Since(a.standing.since), 0) + delay", root, "TestP9NoRankZero"},
	{"P9", "an offer to a dead node reserves the lock for ever", "acquisition/acquirer.go",
		"l.Next == me || l.Remaining == 0)", "l.Next == me)", root, "TestP9OfferedToAGhost"},
	{"P1", "cursors are not rewound", "acquisition/chores.go",
		"t.lanes.rewind(t.horizon.observe(s))", "t.horizon.observe(s)", root, "TestCursorLateCommit"},
	{"P1", "cursors rewind to what just became final", "acquisition/horizon.go",
		"	return h.floor\n", "	return h.rising\n", root, "TestCursorLateCommit"},
	{"P5", "a job may lose its node for ever", "acquisition/term.go",
		"maxLosses      = 3 ", "maxLosses      = 300 ", root, "TestP5AKillerIsBuried"},
	{"P11", "a stop does not wait for the last outcomes", "acquisition/keeper.go",
		"case <-s.completer.whenIdle():\n		case <-patience.C:\n			err =", "default:\n			err =", root, "TestP11ExitZeroLeavesNothingClaimed"},
}
