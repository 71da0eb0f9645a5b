package store

import (
	"embed"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
)

//go:embed queries/*.sql parts/*.sql
var queryFiles embed.FS

// queries maps a file's name without its ending to its text without comments,
// which would only cost bytes on the wire.
var queries = loadQueries("queries")

func loadQueries(folder string) map[string]string {
	files, err := fs.Glob(queryFiles, folder+"/*.sql")
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

// parts are what statements and functions have in common, such as a job's columns.
var parts = sync.OnceValue(func() map[string]string { return loadQueries("parts") })

var partName = regexp.MustCompile(`\{\{(\w+\.)?(\w+)( legible)?((?:\s+\| \w+ = [^|}]+)*)\}\}`)

// fill puts parts in the place of their names: {{job}} is parts/job.sql. Of a list of columns {{r.job}} has each with
// r before it, {{job legible}} those that may be damaged as they can be read, and {{job | turn = turn + 1}} that
// expression in the place of that column.
func fill(text string) string {
	return partName.ReplaceAllStringFunc(text, func(found string) string {
		m := partName.FindStringSubmatch(found)
		part, known := parts()[m[2]]
		switch {
		case !known:
			panic("store: no parts/" + m[2] + ".sql")
		case strings.Contains(part, "{{"):
			if part = fill(part); m[1]+m[3]+m[4] == "" {
				return part
			}
		}
		instead := map[string]string{}
		for _, one := range strings.Split(m[4], "| ")[1:] {
			column, expression, _ := strings.Cut(one, " = ")
			instead[column] = strings.TrimSpace(expression)
		}
		var all []string
		for _, column := range strings.Split(strings.ReplaceAll(part, "\n", " "), ", ") {
			expression := m[1] + column
			if m[3] != "" && (column == "payload" || column == "meta") {
				expression = "tenure.legible(" + expression + ")"
			}
			if other, given := instead[column]; given {
				expression = other
				delete(instead, column)
			}
			all = append(all, expression)
		}
		for column := range instead {
			panic("store: parts/" + m[2] + ".sql has no column " + column)
		}
		return strings.Join(all, ", ")
	})
}

// Statement is queries/NAME.sql as it is sent, for what plays Postgres' part in tests.
func Statement(name string) string { return query(name) }

// query returns the statement of queries/<name>.sql. A name without a file is a
// programmer's mistake and ends the process at start.
func query(name string) string {
	q, ok := queries[name]
	if !ok {
		panic("store: no queries/" + name + ".sql")
	}
	return fill(q)
}

var (
	sqlPlanFreely            = query("plan_freely")
	sqlLockTake              = query("lock_take")
	sqlLockRead              = query("lock_read")
	sqlLockRenew             = query("lock_renew")
	sqlLockOffer             = query("lock_offer")
	sqlIdleLook              = query("idle_look")
	sqlListen                = query("listen")
	sqlUnlisten              = query("unlisten")
	sqlMigrationDependents   = query("migration_dependents")
	sqlNotify                = query("notify")
	sqlNotified              = query("notified")
	sqlLockFreeze            = query("lock_freeze")
	sqlLockChanges           = query("lock_changes")
	sqlRunTimes              = query("run_times")
	sqlQueueList             = query("queue_list")
	sqlIncarnationBegin      = query("incarnation_begin")
	sqlIncarnationRead       = query("incarnation_read")
	sqlSessionKinds          = query("session_kinds")
	sqlKindQueueList         = query("kind_queue_list")
	sqlKindQueueTell         = query("kind_queue_tell")
	sqlSessionBusy           = query("session_busy")
	sqlSchedulePaused        = query("schedule_paused")
	sqlDeadCommonest         = query("dead_commonest")
	sqlSessionBusyKind       = query("session_busy_kind")
	sqlSessionBusyList       = query("session_busy_list")
	sqlSessionOpen           = query("session_open")
	sqlSessionBeat           = query("session_beat")
	sqlSessionLeave          = query("session_leave")
	sqlSessionHold           = query("session_hold")
	sqlSessionIdle           = query("session_idle")
	sqlSessionList           = query("session_list")
	sqlSessionReap           = query("session_reap")
	sqlSessionForget         = query("session_forget")
	sqlTenantWithJobs        = query("tenant_with_jobs")
	sqlSessionSeeds          = query("session_seeds")
	sqlClaimReap             = query("claim_reap")
	sqlLockPatience          = query("lock_patience")
	sqlLockPatienceEnd       = query("lock_patience_end")
	sqlCancelWaiting         = query("cancel_waiting")
	sqlFinishHeld            = query("finish_held")
	sqlFinishDamaged         = query("finish_damaged")
	sqlJobDamaged            = query("job_damaged")
	sqlResumePutOff          = query("resume_put_off")
	sqlTimerPutOff           = query("timer_put_off")
	sqlExternalPutOff        = query("external_put_off")
	sqlClaimInsert           = query("claim_insert")
	sqlClaimList             = query("claim_list")
	sqlClaimRelease          = query("claim_release")
	sqlClaimReturn           = query("claim_return")
	sqlClaimMade             = query("claim_made")
	sqlClaimSpare            = query("claim_spare")
	sqlQuarantineSpare       = query("quarantine_spare")
	sqlClaimStanding         = query("claim_standing")
	sqlClaimAccept           = query("claim_accept")
	sqlClaimWithdraw         = query("claim_withdraw")
	sqlClaimDecline          = query("claim_decline")
	sqlCancelAsked           = query("cancel_asked")
	sqlPageState             = query("page_state")
	sqlWaitingCount          = query("waiting_count")
	sqlWaitingPages          = query("waiting_pages")
	sqlPageApart             = query("page_apart")
	sqlPageRead              = query("page_read")
	sqlLaneList              = query("lane_list")
	sqlBottomNote            = query("bottom_note")
	sqlTimerFire             = query("timer_fire")
	sqlTimerShare            = query("timer_share")
	sqlTimerTenants          = query("timer_tenants")
	sqlTimerNext             = query("timer_next")
	sqlScheduleDue           = query("schedule_due")
	sqlScheduleFire          = query("schedule_fire")
	sqlScheduleLater         = query("schedule_later")
	sqlScheduleSooner        = query("schedule_sooner")
	sqlScheduleList          = query("schedule_list")
	sqlScheduleClock         = query("schedule_clock")
	sqlScheduleSet           = query("schedule_set")
	sqlSchedulePause         = query("schedule_pause")
	sqlScheduleTake          = query("schedule_take")
	sqlScheduleRun           = query("schedule_run")
	sqlScheduleDelete        = query("schedule_delete")
	sqlScheduleChange        = query("schedule_change")
	sqlScheduleStale         = query("schedule_stale")
	sqlScheduleSpread        = query("schedule_spread")
	sqlScheduleSpreadDone    = query("schedule_spread_done")
	sqlScheduleForget        = query("schedule_forget")
	sqlReassign              = query("reassign")
	sqlSeenNext              = query("seen_next")
	sqlSeenNote              = query("seen_note")
	sqlSeenTrim              = query("seen_trim")
	sqlSeenList              = query("seen_list")
	sqlScheduleOrigin        = query("schedule_origin")
	sqlFinish                = query("finish")
	sqlFinishDone            = query("finish_done")
	sqlFinishUnkept          = query("finish_done_unkept")
	sqlRerun                 = query("rerun")
	sqlUniqueFind            = query("unique_find")
	sqlEnqueue               = query("enqueue")
	sqlTenantWhy             = query("tenant_why")
	sqlQuotaCheck            = query("quota_check")
	sqlTenantQuota           = query("tenant_quota")
	sqlExternalOpen          = query("external_open")
	sqlExternalShut          = query("external_shut")
	sqlExternalChoose        = query("external_choose")
	sqlExternalAcquire       = query("external_acquire")
	sqlExternalExtend        = query("external_extend")
	sqlExternalRelease       = query("external_release")
	sqlExternalFinish        = query("external_finish")
	sqlExternalFail          = query("external_fail")
	sqlExternalSweep         = query("external_sweep")
	sqlExternalStands        = query("external_stands")
	sqlExternalFind          = query("external_find")
	sqlExternalList          = query("external_list")
	sqlExternalCancel        = query("external_cancel")
	sqlExternalSuspend       = query("external_suspend")
	sqlEnqueueBegin          = query("enqueue_begin")
	sqlEnqueueClaimed        = query("enqueue_claimed")
	sqlGrantMissing          = query("grant_missing")
	sqlGrantHolders          = query("grant_holders")
	sqlGrantRoles            = query("grant_roles")
	sqlGrantUnknown          = query("grant_unknown")
	sqlGrantLock             = query("grant_lock")
	sqlGrantNamed            = query("grant_named")
	sqlGrantName             = query("grant_name")
	sqlGrantRefused          = query("grant_refused")
	sqlFunctionMade          = query("function_made")
	sqlFunctionOverloads     = query("function_overloads")
	sqlFunctionOwner         = query("function_owner")
	sqlFunctionText          = query("function_text")
	sqlMigrationHold         = query("migration_hold")
	sqlRoleForget            = query("role_forget")
	sqlRoleLearn             = query("role_learn")
	sqlPoolIdentity          = query("pool_identity")
	sqlServerDatabase        = query("server_database")
	sqlServerIs              = query("server_is")
	sqlPoolServer            = query("pool_server")
	sqlPoolRisks             = query("pool_risks")
	sqlSharedSchemas         = query("shared_schemas")
	sqlPoolSettings          = query("pool_settings")
	sqlPoolNumber            = query("pool_number")
	sqlPoolName              = query("pool_name")
	sqlMigrationBlocker      = query("migration_blocker")
	sqlMigrationWaits        = query("migration_waits")
	sqlTableHolder           = query("table_holder")
	sqlPoolSeed              = query("pool_seed")
	sqlSchemaVersion         = query("schema_version")
	sqlRemovalLock           = query("removal_lock")
	sqlRemovalCount          = query("removal_count")
	sqlCancelJob             = query("cancel_job")
	sqlCancelList            = query("cancel_list")
	sqlCancelFind            = query("cancel_find")
	sqlCancelForget          = query("cancel_forget")
	sqlRetryJob              = query("retry_job")
	sqlDeadOld               = query("dead_old")
	sqlDeadRead              = query("dead_read")
	sqlDeadCount             = query("dead_count")
	sqlDeadRetry             = query("dead_retry")
	sqlDeadDelete            = query("dead_delete")
	sqlSuspendJobs           = query("suspend_jobs")
	sqlHurryJobs             = query("hurry_jobs")
	sqlSuspendRead           = query("suspend_read")
	sqlResumeJobs            = query("resume_jobs")
	sqlChangeJob             = query("change_job")
	sqlJobList               = query("job_list")
	sqlJobListFinished       = query("job_list_finished")
	sqlAuditAdd              = query("audit_add")
	sqlAuditList             = query("audit_list")
	sqlAuditTrim             = query("audit_trim")
	sqlJobErrors             = query("job_errors")
	sqlReportWrite           = query("report_write")
	sqlReportList            = query("report_list")
	sqlReportTrim            = query("report_trim")
	sqlIndexMissing          = query("index_missing")
	sqlTagRarest             = query("tag_rarest")
	sqlTagFind               = query("tag_find")
	sqlTagTrim               = query("tag_trim")
	sqlPeriodTrim            = query("period_trim")
	sqlMovePeriods           = query("move_periods")
	sqlMovePeriodsAdd        = query("move_periods_insert")
	sqlMovePeriodsDrop       = query("move_periods_delete")
	sqlJobCount              = query("job_count")
	sqlUnhandled             = query("waiting_unhandled")
	sqlExternalUntaken       = query("external_untaken")
	sqlWaitingOldest         = query("waiting_oldest")
	sqlRetentionDays         = query("retention_days")
	sqlRetentionToday        = query("retention_today")
	sqlRetentionSizes        = query("retention_sizes")
	sqlRetentionTrim         = query("retention_trim")
	sqlRetentionMake         = query("retention_make")
	sqlRetentionEmpty        = query("retention_empty")
	sqlRetentionDrop         = query("retention_drop")
	sqlTenantFull            = query("tenant_full")
	sqlTenantList            = query("tenant_list")
	sqlTenantRead            = query("tenant_read")
	sqlTenantSettings        = query("tenant_settings")
	sqlTenantForwards        = query("tenant_forwards")
	sqlTenantFreeze          = query("tenant_freeze")
	sqlTenantStray           = query("tenant_stray")
	sqlMoveBegin             = query("move_begin")
	sqlMoveAbandon           = query("move_abandon")
	sqlMoveInFlight          = query("move_in_flight")
	sqlMoveHold              = query("move_hold")
	sqlMoveArrive            = query("move_arrive")
	sqlMoveLimits            = query("move_limits")
	sqlMoveLimitsSet         = query("move_limits_set")
	sqlMoveClose             = query("move_close")
	sqlMoveTake              = query("move_take")
	sqlMoveOpen              = query("move_open")
	sqlMoveLanes             = query("move_lanes")
	sqlMoveReadLane          = query("move_read_lane")
	sqlMoveRead              = query("move_read")
	sqlMoveFence             = query("move_fence")
	sqlMoveInsert            = query("move_insert")
	sqlMoveCheck             = query("move_check")
	sqlMoveDelete            = query("move_delete")
	sqlMoveCancels           = query("move_cancels")
	sqlMoveCancelsInsert     = query("move_cancels_insert")
	sqlMoveSchedules         = query("move_schedules")
	sqlMoveSchedulesAdd      = query("move_schedules_insert")
	sqlMoveSchedulesDrop     = query("move_schedules_delete")
	sqlMoveErrors            = query("move_errors")
	sqlMoveErrorsInsert      = query("move_errors_insert")
	sqlMoveReports           = query("move_reports")
	sqlMoveReportsInsert     = query("move_reports_insert")
	sqlMoveFinished          = query("move_finished")
	sqlMoveFinishedInsert    = query("move_finished_insert")
	sqlMoveFinishedDelete    = query("move_finished_delete")
	sqlMoveArrived           = query("move_arrived")
	sqlMoveArrivedDelete     = query("move_arrived_delete")
	sqlMoveArrivedForget     = query("move_arrived_forget")
	sqlTransactionList       = query("transaction_list")
	sqlTransactionSession    = query("transaction_session")
	sqlTransactionUnbound    = query("transaction_unbound")
	sqlTransactionOldest     = query("transaction_oldest")
	sqlClaimLong             = query("claim_long")
	sqlPoolLoad              = query("pool_load")
	sqlServerHealth          = query("server_health")
	sqlStatisticsRole        = query("statistics_role")
	sqlSlotInactive          = query("slot_inactive")
	sqlPublicationDays       = query("publication_days")
	sqlServerLocks           = query("server_locks")
	sqlTableHealth           = query("table_health")
	sqlEnqueueMoved          = query("enqueue_moved")
	sqlLaneLeft              = query("lane_left")
	sqlLaneBehind            = query("lane_behind")
	sqlKeyHeads              = query("key_heads")
	sqlJobWhy                = query("job_why")
	sqlLimitList             = query("limit_list")
	sqlLimitFlying           = query("limit_flying")
	sqlLimitShared           = query("limit_shared")
	sqlLimitBuckets          = query("limit_buckets")
	sqlLimitSpend            = query("limit_spend")
	sqlLimitSet              = query("limit_set")
	sqlTenantWeight          = query("tenant_weight")
	sqlTenantWeights         = query("tenant_weights")
	sqlLimitCount            = query("limit_count")
	sqlTenantLimit           = query("tenant_limit")
	sqlLimitForget           = query("limit_forget")
	sqlLimitShow             = query("limit_show")
	sqlLimitWhy              = query("limit_why")
	sqlFreeze                = query("freeze")
	sqlRetryingList          = query("retrying_list")
	sqlCommonList            = query("common_list")
	sqlFrozenList            = query("frozen_list")
	sqlClaimKeys             = query("claim_keys")
	sqlClaimOver             = query("claim_over")
	sqlJobBetween            = query("job_between")
	sqlEnqueueIDs            = query("enqueue_ids")
	sqlAwaitedAdd            = query("awaited_add")
	sqlAwaitedFailed         = query("awaited_failed")
	sqlAwaitedNote           = query("awaited_note")
	sqlAwaitedTrim           = query("awaited_trim")
	sqlAwaitingDelete        = query("awaiting_delete")
	sqlAwaitingLook          = query("awaiting_look")
	sqlAwaitedSettle         = query("awaited_settle")
	sqlAwaitedLook           = query("awaited_look")
	sqlAwaitedMove           = query("awaited_move")
	sqlAwaitedInsert         = query("awaited_insert")
	sqlAwaitedDelete         = query("awaited_delete")
	sqlBatchList             = query("batch_list")
	sqlBatchLock             = query("batch_lock")
	sqlBatchOpen             = query("batch_open")
	sqlBatchCancel           = query("batch_cancel")
	sqlBatchCount            = query("batch_count")
	sqlBatchInner            = query("batch_inner")
	sqlOperationAdd          = query("operation_add")
	sqlOperationDue          = query("operation_due")
	sqlOperationTake         = query("operation_take")
	sqlOperationStep         = query("operation_step")
	sqlOperationFail         = query("operation_fail")
	sqlOperationList         = query("operation_list")
	sqlOperationCancel       = query("operation_cancel")
	sqlOperationTrim         = query("operation_trim")
	sqlOperationCancelJobs   = query("operation_cancel_jobs")
	sqlMoveCancelsLate       = query("move_cancels_late")
	sqlMoveCancelsLateInsert = query("move_cancels_late_insert")
)
