package dashboard

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// roleOfJobs may do something to jobs and schedules.
const roleOfJobs = access.Operate

// said is what a page says of the action that led to it. Only these words: what an address brings
// along could have been written by anyone.
var said = map[string]string{
	"begun":       "It has begun, and goes on in the background.",
	"all":         "It is done, but for jobs that were running or that somebody else has locked.",
	"cancelled":   "It is cancelled. What runs ends within some seconds.",
	"frozen":      "It is frozen: no job of it is started.",
	"partly":      "It has begun, but not in pools that did not answer: below is where it has. Do it again once they answer.",
	"paused":      "It is paused.",
	"resumed":     "It is resumed.",
	"rescheduled": "It is due at another time.",
	"retried":     "It runs again as soon as its turn comes.",
	"rerun":       "This job is what the finished one was, and waits for its turn.",
	"run":         "It runs before all others of its tenant and queue.",
	"suspended":   "It is suspended until somebody resumes it.",
	"thawed":      "It is thawed: its jobs are started.",
	"cancelling":  "Its run is being cancelled.",
}

// said is what the page says of the action that led to it; "": nothing.
func (v *visit) said() string {
	what := v.URL.Query().Get("said")
	done, err := strconv.Atoi(v.URL.Query().Get("done"))
	of, err2 := strconv.Atoi(v.URL.Query().Get("of"))
	if what == "chosen" && err == nil && err2 == nil {
		return fmt.Sprintf("It is done to %d of the %d that were chosen.", done, of)
	}
	return said[what]
}

var errNotAllowed = &statusError{http.StatusForbidden, "You may not do this: ask whoever gave you access for a role that may."}

func tenantID(name string) tenancy.ID { return tenancy.ID(name) }

// changeJob does to a job what the last part of the path says.
func changeJob(v *visit) (string, error) {
	id, err := job.ParseID(v.PathValue("id"))
	if err != nil {
		return "", notFound("job")
	}
	if _, _, err := findJob(v, id); err != nil {
		return "", err
	}
	done := ""
	switch v.PathValue("action") {
	case "cancel":
		var running bool
		if running, err = v.op.Jobs().Cancel(v.ctx, id); running {
			done = "cancelling"
		} else {
			done = "cancelled"
		}
	case "retry":
		done, err = "retried", v.op.Jobs().Retry(v.ctx, id)
	case "rerun":
		id, err = v.op.Jobs().Rerun(v.ctx, id)
		done = "rerun"
	case "run":
		done, err = "run", v.op.Jobs().Run(v.ctx, id)
	case "suspend":
		done, err = "suspended", v.op.Jobs().Suspend(v.ctx, id, time.Time{})
	case "resume":
		done, err = "resumed", v.op.Jobs().Resume(v.ctx, id)
	case "reschedule":
		done, err = "rescheduled", reschedule(v, id)
	default:
		return "", notFound("action")
	}
	return "/jobs/" + id.String() + "?said=" + done, err
}

// reschedule has a job wait for as long as the form says.
func reschedule(v *visit, id job.ID) error {
	in, err := job.ParseDuration(v.FormValue("in"))
	if err != nil {
		return &statusError{http.StatusBadRequest, err.Error() + "."}
	}
	due := time.Now().Add(in)
	return v.op.Jobs().Change(v.ctx, id, operate.JobChange{DueAt: &due})
}

// changeSchedule pauses, resumes or runs a schedule. One for every tenant is everyone's.
func changeSchedule(v *visit) (string, error) {
	tenant, name := tenantID(v.FormValue("tenant")), v.FormValue("name")
	if tenant == "" {
		tenant = operate.EveryTenant
	}
	if tenant == operate.EveryTenant && !v.unlimited() {
		return "", notFound("schedule")
	}
	if err := checkHome(v, tenant); err != nil {
		return "", err
	}
	schedules := v.op.Schedules()
	switch v.PathValue("action") {
	case "pause":
		return "/schedules?said=paused", schedules.Pause(v.ctx, tenant, name)
	case "resume":
		return "/schedules?said=resumed", schedules.Resume(v.ctx, tenant, name)
	case "run":
		id, err := schedules.Run(v.ctx, tenant, name)
		return "/jobs/" + id.String(), err
	default:
		return "", notFound("action")
	}
}

// checkHome refuses tenants that the visitor may not see, by themselves or because of their pool.
func checkHome(v *visit, id tenancy.ID) error {
	switch {
	case !v.grant.SeesTenant(id):
		return notFound("tenant")
	case len(v.grant.Pools) == 0:
		return nil
	}
	pool, err := v.op.Tenants().Home(v.ctx, id)
	if err != nil || !v.grant.SeesPool(pool) {
		return notFound("tenant")
	}
	return nil
}

// changePool freezes or thaws a pool. All of its tenants feel it, so that who may see only some of
// them may not.
func changePool(v *visit) (string, error) {
	pool := v.FormValue("pool")
	if len(v.grant.Tenants) > 0 || pool == "" || len(v.pools(pool)) == 0 {
		return "", notFound("pool")
	}
	switch v.PathValue("action") {
	case "freeze":
		return "/pools?said=frozen", v.op.Pools().Freeze(v.ctx, pool)
	case "thaw":
		return "/pools?said=thawed", v.op.Pools().Thaw(v.ctx, pool)
	default:
		return "", notFound("action")
	}
}

// changeQueue freezes a queue, or thaws one or a kind, in all pools.
func changeQueue(v *visit) (string, error) {
	if !v.unlimited() {
		return "", notFound("queue")
	}
	queue, kind := v.FormValue("queue"), v.FormValue("kind")
	switch action := v.PathValue("action"); {
	case action == "freeze":
		return "/queues?said=frozen", v.op.Queues().Freeze(v.ctx, queue)
	case action == "thaw" && kind != "":
		return "/queues?said=thawed", v.op.Kinds().Thaw(v.ctx, kind)
	case action == "thaw":
		return "/queues?said=thawed", v.op.Queues().Thaw(v.ctx, queue)
	default:
		return "", notFound("action")
	}
}

func changeTenant(v *visit) (string, error) {
	id := tenantID(v.FormValue("id"))
	if err := checkTenant(v, id); err != nil {
		return "", err
	}
	if err := checkHome(v, id); err != nil {
		return "", err
	}
	switch v.PathValue("action") {
	case "freeze":
		return link("", "/tenant", "id", id, "said", "frozen"), v.op.Tenants().Freeze(v.ctx, id)
	case "thaw":
		return link("", "/tenant", "id", id, "said", "thawed"), v.op.Tenants().Thaw(v.ctx, id)
	default:
		return "", notFound("action")
	}
}
