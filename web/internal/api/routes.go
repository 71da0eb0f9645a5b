package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
)

// route is one operation, and the role that it needs.
type route struct {
	method, path, id string
	role             access.Role
	summary          string
	mount            func(*server, huma.API, huma.Operation)
}

const (
	get   = http.MethodGet
	post  = http.MethodPost
	put   = http.MethodPut
	patch = http.MethodPatch
	del   = http.MethodDelete
)

// routes are all that there are.
var routes = []route{
	{get, "/tenants", "list-tenants", access.Read, "List tenants", bind(listTenants)},
	{get, "/busy-tenants", "list-busy-tenants", access.Read, "List the tenants whose jobs wait, those with the most first", bind(listBusyTenants)},
	{get, "/tenants/{tenant}", "get-tenant", access.Read, "Show a tenant's weight and bounds", bind(getTenant)},
	{get, "/tenants/{tenant}/why", "explain-tenant", access.Read, "Say why a tenant's work waits", bind(explainTenant)},
	{post, "/tenants/{tenant}/freeze", "freeze-tenant", access.Admin, "Start no jobs of a tenant", onTenant(freezeTenant)},
	{post, "/tenants/{tenant}/thaw", "thaw-tenant", access.Admin, "Start a tenant's jobs again", onTenant(thawTenant)},
	{put, "/tenants/{tenant}/limits", "limit-tenant", access.Admin, "Bound how many jobs of a tenant run and wait", bind(limitTenant)},
	{put, "/tenants/{tenant}/weight", "weigh-tenant", access.Admin, "Set a tenant's share of the workers", bind(weighTenant)},
	{post, "/tenants/{tenant}/reassign", "reassign-jobs", access.Admin, "Give the jobs of a tenant that no routing rule knows to another one", bind(reassignJobs)},
	{post, "/tenants/{tenant}/move", "move-tenant", access.Admin, "Move a tenant's jobs to another pool, or go on with it", bind(moveTenant)},
	{get, "/queues", "list-queues", access.Read, "List the queues by pool: what waits there, and whether they are frozen", bind(listQueues)},
	{post, "/queues/{queue}/freeze", "freeze-queue", access.Admin, "Start no jobs of a queue, of all tenants in all pools", onQueue((*operate.Queues).Freeze)},
	{post, "/queues/{queue}/thaw", "thaw-queue", access.Admin, "Start the jobs of a queue again", onQueue((*operate.Queues).Thaw)},
	{get, "/kinds/frozen", "list-frozen-kinds", access.Read, "List the frozen kinds by pool, and since when", bind(listFrozenKinds)},
	{post, "/kinds/{kind}/freeze", "freeze-kind", access.Admin, "Start no jobs of a kind, of all tenants in all pools", onKind((*operate.Kinds).Freeze)},
	{post, "/kinds/{kind}/thaw", "thaw-kind", access.Admin, "Start the jobs of a kind again", onKind((*operate.Kinds).Thaw)},
	{get, "/doctor", "examine", access.Admin, "Look for what is wrong with pools and nodes", bind(examine)},
	{get, "/pools", "list-pools", access.Read, "List pools and what they have to do", bind(listPools)},
	{post, "/pools/{pool}/freeze", "freeze-pool", access.Admin, "Claim no jobs in a pool", onPool(freezePool)},
	{post, "/pools/{pool}/thaw", "thaw-pool", access.Admin, "Claim jobs in a pool again", onPool(thawPool)},
	{get, "/pools/{pool}/claims", "list-claims", access.Read, "List the nodes' sessions that have jobs in hand in a pool", bind(listClaims)},
	{get, "/locks", "list-locks", access.Read, "List the pools' acquire locks, or wait until they have changed", bind(listLocks)},
	{get, "/locks/changes", "list-lock-changes", access.Read, "List how the locks have changed hands, newest first", bind(listLockChanges)},
	{get, "/locks/events", "watch-locks", access.Read, "Follow the acquire locks, as a stream of events", bindStream[locksOut]("locks", streamLocks)},
	{get, "/nodes", "list-nodes", access.Read, "List the nodes' sessions in the pools", bind(listNodes)},
	{get, "/jobs", "list-jobs", access.Read, "List jobs, newest first", bind(listJobs)},
	{post, "/jobs", "enqueue-job", access.Operate, "Enqueue a job", bind(enqueue)},
	{post, "/jobs/many", "enqueue-many", access.Operate, "Enqueue jobs of any tenants", bind(enqueueMany)},
	{post, "/jobs/suspend", "suspend-jobs", access.Operate, "Put aside all jobs that are chosen", bind(suspendMany)},
	{post, "/jobs/cancel", "cancel-jobs", access.Operate, "Have all unfinished jobs that are chosen cancelled in the background", bind(cancelMany)},
	{post, "/jobs/retry", "retry-jobs", access.Operate, "Make all retrying or scheduled jobs that are chosen run now", bind(retryMany)},
	{post, "/jobs/resume", "resume-jobs", access.Operate, "Put back all suspended jobs that are chosen", bind(resumeMany)},
	{get, "/jobs/{id}", "get-job", access.Read, "Show a job, or wait until it has changed", bind(getJob)},
	{patch, "/jobs/{id}", "change-job", access.Operate, "Change the priority, time, attempts or timeout of a job that does not run", bind(changeJob)},
	{get, "/jobs/{id}/events", "watch-job", access.Read, "Follow a job to its end, as a stream of events", bindStream[JobDetail]("job", streamJob)},
	{get, "/jobs/{id}/why", "explain-job", access.Read, "Say why a job does not run", bind(explainJob)},
	{post, "/jobs/{id}/cancel", "cancel-job", access.Operate, "Cancel an unfinished job", bind(cancelJob)},
	{post, "/jobs/{id}/retry", "retry-job", access.Operate, "Retry a dead job, or one that waits for its time", bind(retryJob)},
	{post, "/jobs/{id}/rerun", "rerun-job", access.Operate, "Add a job that is what a finished one was", bind(rerunJob)},
	{post, "/jobs/{id}/suspend", "suspend-job", access.Operate, "Put a job aside", bind(suspendJob)},
	{post, "/jobs/{id}/resume", "resume-job", access.Operate, "Put a suspended job back", onJob(resumeJob)},
	{post, "/jobs/{id}/run", "run-job", access.Operate, "Run a job before all others", onJob(runJob)},
	{get, "/dead-letters/groups", "list-dead-groups", access.Read, "Group dead letters by what they died of", bind(listDeadGroups)},
	{post, "/dead-letters/retry", "retry-dead", access.Operate, "Have all dead letters that are chosen retried, in the background or now", changeDead((*operate.DeadLetters).RetryInBackground, (*operate.DeadLetters).Retry)},
	{post, "/dead-letters/delete", "delete-dead", access.Operate, "Have all dead letters that are chosen deleted, in the background or now", changeDead((*operate.DeadLetters).DeleteInBackground, (*operate.DeadLetters).Delete)},
	{del, "/dead-letters/{id}", "delete-dead-letter", access.Operate, "Delete a dead letter", bind(deleteDead)},
	{get, "/operations", "list-operations", access.Read, "List what is done in the background", bind(listOperations)},
	{get, "/operations/{id}", "get-operation", access.Read, "Show how far an operation is in each pool", bind(getOperation)},
	{post, "/operations/{id}/cancel", "cancel-operation", access.Operate, "End an operation; what it has done stays so", bind(cancelOperation)},
	{get, "/schedules", "list-schedules", access.Read, "List schedules", bind(listSchedules)},
	{get, "/schedules/{name}", "get-schedule-of-all", access.Read, "Show a schedule for every tenant", bind(getScheduleOfAll)},
	{put, "/schedules/{name}", "set-schedule-of-all", access.Operate, "Add or change a schedule for every tenant", bind(setScheduleOfAll)},
	{del, "/schedules/{name}", "delete-schedule-of-all", access.Operate, "Delete a schedule for every tenant", onScheduleOfAll((*operate.Schedules).Delete)},
	{post, "/schedules/{name}/pause", "pause-schedule-of-all", access.Operate, "Pause a schedule for all tenants", onScheduleOfAll((*operate.Schedules).Pause)},
	{post, "/schedules/{name}/resume", "resume-schedule-of-all", access.Operate, "Resume a schedule for all tenants", onScheduleOfAll((*operate.Schedules).Resume)},
	{get, "/tenants/{tenant}/schedules/{name}", "get-schedule", access.Read, "Show a tenant's schedule", bind(getSchedule)},
	{put, "/tenants/{tenant}/schedules/{name}", "set-schedule", access.Operate, "Add or change a tenant's schedule", bind(setSchedule)},
	{del, "/tenants/{tenant}/schedules/{name}", "delete-schedule", access.Operate, "Delete a tenant's schedule", onSchedule((*operate.Schedules).Delete)},
	{post, "/tenants/{tenant}/schedules/{name}/pause", "pause-schedule", access.Operate, "Pause a tenant's schedule", onSchedule((*operate.Schedules).Pause)},
	{post, "/tenants/{tenant}/schedules/{name}/resume", "resume-schedule", access.Operate, "Resume a tenant's schedule", onSchedule((*operate.Schedules).Resume)},
	{post, "/tenants/{tenant}/schedules/{name}/run", "run-schedule", access.Operate, "Add the job of a tenant's schedule now", bind(runSchedule)},
	{get, "/batches", "list-batches", access.Read, "List batches, newest first, with how their jobs have ended", bind(listBatches)},
	{post, "/batches", "enqueue-batch", access.Operate, "Enqueue jobs, and one that starts when all of them have ended", bind(enqueueBatch)},
	{get, "/batches/{id}", "get-batch", access.Read, "Show how far a batch is", bind(getBatch)},
	{post, "/batches/{id}/cancel", "cancel-batch", access.Operate, "Cancel a batch, with its jobs that have not ended", bind(cancelBatch)},
	{get, "/limits", "list-limits", access.Read, "List limits on how many jobs run at a time, and how often", bind(listLimits)},
	{put, "/limits", "set-limit", access.Admin, "Set a limit in the place of the one there was", bind(setLimit)},
	{del, "/limits", "delete-limit", access.Admin, "Lift a limit", bind(deleteLimit)},
	{get, "/audit", "list-audit", access.Read, "List what operators have done, the last of it first", bind(listAudit)},
	{post, "/external/acquire", "acquire-external", access.Operate, "Lock jobs for a worker outside the cluster", bind(acquire)},
	{post, "/external/complete", "complete-external", access.Operate, "End a locked job that is done", bind(complete)},
	{post, "/external/complete-many", "complete-many-external", access.Operate, "End all locked jobs that are done", bind(completeMany)},
	{post, "/external/fail", "fail-external", access.Operate, "Say that a worker failed with a locked job", bind(fail)},
	{post, "/external/error", "raise-external", access.Operate, "End a locked job with an error of the business", bind(raise)},
	{post, "/external/extend", "extend-external", access.Operate, "Keep a lock for longer", bind(extend)},
	{post, "/external/release", "release-external", access.Operate, "Give a locked job back", bind(release)},
}
