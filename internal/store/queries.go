package store

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// queries maps a file's name without its ending to its text without comments,
// which would only cost bytes on the wire.
var queries = loadQueries()

func loadQueries() map[string]string {
	files, err := fs.Glob(queryFiles, "queries/*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	out := make(map[string]string, len(files))
	for _, f := range files {
		text, err := queryFiles.ReadFile(f)
		if err != nil {
			panic(err) // embedded
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "--") {
				lines = append(lines, line)
			}
		}
		name := strings.TrimSuffix(path.Base(f), ".sql")
		out[name] = strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "")), ";")
	}
	return out
}

// query returns the statement of queries/<name>.sql. A name without a file is a
// programmer's mistake and ends the process at start.
func query(name string) string {
	q, ok := queries[name]
	if !ok {
		panic("store: no queries/" + name + ".sql")
	}
	return q
}

var (
	sqlLockTake           = query("lock_take")
	sqlLockRead           = query("lock_read")
	sqlLockRenew          = query("lock_renew")
	sqlLockOffer          = query("lock_offer")
	sqlIdleLook           = query("idle_look")
	sqlLockFreeze         = query("lock_freeze")
	sqlIncarnationBegin   = query("incarnation_begin")
	sqlIncarnationRead    = query("incarnation_read")
	sqlSessionOpen        = query("session_open")
	sqlSessionBeat        = query("session_beat")
	sqlSessionLeave       = query("session_leave")
	sqlSessionHold        = query("session_hold")
	sqlSessionIdle        = query("session_idle")
	sqlSessionList        = query("session_list")
	sqlSessionReap        = query("session_reap")
	sqlSessionForget      = query("session_forget")
	sqlTenantWithJobs     = query("tenant_with_jobs")
	sqlSessionSeeds       = query("session_seeds")
	sqlClaimReap          = query("claim_reap")
	sqlLockPatience       = query("lock_patience")
	sqlLockPatienceEnd    = query("lock_patience_end")
	sqlCancelWaiting      = query("cancel_waiting")
	sqlFinishUnwanted     = query("finish_unwanted")
	sqlFinishHeld         = query("finish_held")
	sqlClaimInsert        = query("claim_insert")
	sqlClaimList          = query("claim_list")
	sqlClaimRelease       = query("claim_release")
	sqlClaimReturn        = query("claim_return")
	sqlClaimMade          = query("claim_made")
	sqlClaimSpare         = query("claim_spare")
	sqlClaimStanding      = query("claim_standing")
	sqlClaimGive          = query("claim_give")
	sqlClaimAccept        = query("claim_accept")
	sqlClaimWithdraw      = query("claim_withdraw")
	sqlClaimDecline       = query("claim_decline")
	sqlPageState          = query("page_state")
	sqlPageRead           = query("page_read")
	sqlLaneList           = query("lane_list")
	sqlTimerFire          = query("timer_fire")
	sqlTimerNext          = query("timer_next")
	sqlFinishDone         = query("finish_done")
	sqlFinishUnkept       = query("finish_done_unkept")
	sqlFinishInTx         = query("finish_in_tx")
	sqlFinishLater        = query("finish_later")
	sqlFinishDead         = query("finish_dead")
	sqlFinishCancel       = query("finish_cancelled")
	sqlFinishReturned     = query("finish_returned")
	sqlUniqueFree         = query("unique_free")
	sqlEnqueue            = query("enqueue")
	sqlEnqueueBegin       = query("enqueue_begin")
	sqlGrantMissing       = query("grant_missing")
	sqlGrantHolders       = query("grant_holders")
	sqlGrantRoles         = query("grant_roles")
	sqlGrantUnknown       = query("grant_unknown")
	sqlGrantLock          = query("grant_lock")
	sqlRoleLearn          = query("role_learn")
	sqlPoolIdentity       = query("pool_identity")
	sqlServerDatabase     = query("server_database")
	sqlServerIs           = query("server_is")
	sqlPoolServer         = query("pool_server")
	sqlPoolRisks          = query("pool_risks")
	sqlPoolSettings       = query("pool_settings")
	sqlPoolNumber         = query("pool_number")
	sqlPoolName           = query("pool_name")
	sqlMigrationBlocker   = query("migration_blocker")
	sqlPoolSeed           = query("pool_seed")
	sqlSchemaVersion      = query("schema_version")
	sqlRemovalLock        = query("removal_lock")
	sqlRemovalCount       = query("removal_count")
	sqlCancelJob          = query("cancel_job")
	sqlCancelList         = query("cancel_list")
	sqlCancelForget       = query("cancel_forget")
	sqlRetryJob           = query("retry_job")
	sqlJobList            = query("job_list")
	sqlJobErrors          = query("job_errors")
	sqlJobCount           = query("job_count")
	sqlUnhandled          = query("waiting_unhandled")
	sqlRetentionDays      = query("retention_days")
	sqlRetentionToday     = query("retention_today")
	sqlRetentionTrim      = query("retention_trim")
	sqlRetentionMake      = query("retention_make")
	sqlRetentionDrop      = query("retention_drop")
	sqlTenantList         = query("tenant_list")
	sqlTenantLimits       = query("tenant_limits")
	sqlTenantRead         = query("tenant_read")
	sqlTenantForwards     = query("tenant_forwards")
	sqlTenantFreeze       = query("tenant_freeze")
	sqlTenantStray        = query("tenant_stray")
	sqlMoveBegin          = query("move_begin")
	sqlMoveAbandon        = query("move_abandon")
	sqlMoveInFlight       = query("move_in_flight")
	sqlMoveHold           = query("move_hold")
	sqlMoveArrive         = query("move_arrive")
	sqlMoveClose          = query("move_close")
	sqlMoveTake           = query("move_take")
	sqlMoveOpen           = query("move_open")
	sqlMoveLanes          = query("move_lanes")
	sqlMoveReadLane       = query("move_read_lane")
	sqlMoveRead           = query("move_read")
	sqlMoveFence          = query("move_fence")
	sqlMoveInsert         = query("move_insert")
	sqlMoveCheck          = query("move_check")
	sqlMoveDelete         = query("move_delete")
	sqlMoveCancels        = query("move_cancels")
	sqlMoveCancelsInsert  = query("move_cancels_insert")
	sqlMoveErrors         = query("move_errors")
	sqlMoveErrorsInsert   = query("move_errors_insert")
	sqlMoveFinished       = query("move_finished")
	sqlMoveFinishedInsert = query("move_finished_insert")
	sqlMoveFinishedDelete = query("move_finished_delete")
	sqlMoveArrived        = query("move_arrived")
	sqlMoveArrivedDelete  = query("move_arrived_delete")
	sqlMoveArrivedForget  = query("move_arrived_forget")
	sqlTransactionList    = query("transaction_list")
	sqlTransactionSession = query("transaction_session")
	sqlTransactionOldest  = query("transaction_oldest")
	sqlEnqueueMoved       = query("enqueue_moved")
	sqlLaneLeft           = query("lane_left")
	sqlLaneBehind         = query("lane_behind")
	sqlJobBetween         = query("job_between")
)
