package acquisition

import (
	"errors"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// damagedJobs are those of a pool that cannot be read.
type damagedJobs struct {
	place

	said map[job.ID]bool // to be set aside
}

func newDamagedJobs(p place) *damagedJobs {
	p.metrics.damaged.WithLabelValues(p.pool.Name) // from nought on, so that the first one is an increase
	return &damagedJobs{place: p, said: map[job.ID]bool{}}
}

// setAside says, once in a term, that a job is left where it stands because it cannot be read. It
// is tried again when it is found again.
func (d *damagedJobs) setAside(id job.ID, tenant, damage string) {
	if d.said[id] {
		return
	}
	d.said[id] = true
	d.metrics.damaged.WithLabelValues(d.pool.Name).Inc()
	d.log.Error("a job cannot be read and is set aside until it can be, others go on: mend the database, whose storage may be failing, or end the job with `tenure jobs cancel`",
		zap.Stringer("job", id), zap.String("tenant", tenant), zap.String("error", damage))
}

// setAsideAll is setAside for the jobs that err says were put off because they cannot be read; false: it
// says no such thing.
func (d *damagedJobs) setAsideAll(err error) bool {
	var damaged *store.DamagedError
	if !errors.As(err, &damaged) {
		return false
	}
	for _, j := range damaged.Jobs {
		d.setAside(j.ID, j.Tenant, j.Damage)
	}
	return true
}
