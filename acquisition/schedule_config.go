package acquisition

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/internal/recurrence"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// ScheduleConfig is one schedule of the schedules section, which names it.
type ScheduleConfig struct {
	// EveryTenant has every tenant have it, also those that are added later; else Tenants do.
	EveryTenant bool         `yaml:"every_tenant"`
	Tenants     []tenancy.ID `yaml:"tenants"`
	Kind        string       `yaml:"kind"`
	// Args are the arguments of each job, as JSON. Default: {}.
	Args string `yaml:"args"`
	// Queue the jobs are put on. Default: the kind's own, where the node that adds them has its handler, else default.
	Queue string `yaml:"queue"`
	// Priority of the jobs.
	Priority int `yaml:"priority"`
	// MaxAttempts bounds how often a job is tried. 0: as its kind says.
	MaxAttempts int `yaml:"max_attempts"`
	// External has workers outside the cluster run the jobs.
	External bool `yaml:"external"`
	// Rule says when it is due: cron, an interval or an ISO 8601 repeat.
	Rule string `yaml:"rule"`
	// TimeZone has the clocks that count. Default: UTC.
	TimeZone string `yaml:"time_zone"`
	// End is the last time at which it can be due, in RFC 3339's form. Default: none.
	End string `yaml:"end"`
	// Missed says what becomes of missed runs: skip, one or all. Default: one.
	Missed string `yaml:"missed"`
	// Wait has a run wait for the job of the one before to end.
	Wait bool `yaml:"wait"`
	// Jitter is over how long the runs of EveryTenant are spread.
	Jitter time.Duration `yaml:"jitter"`
}

// MaxJitter bounds how much later than its rule says a schedule can be due.
const MaxJitter = 24 * time.Hour

// ValidateSchedules returns every fault of the schedules section, joined.
func ValidateSchedules(all map[string]ScheduleConfig) error {
	var l fault.List
	for _, name := range slices.Sorted(maps.Keys(all)) {
		all[name].validate(&l, name)
	}
	return l.Err()
}

func (c ScheduleConfig) validate(l *fault.List, name string) {
	path := "schedules." + name
	refuse := func(key string, err error, what string) {
		if err != nil {
			l.Add(path+key, "", "%s", what)
		}
	}
	refuse("", job.ValidateKind("name", name), nameForm)
	refuse(".kind", job.ValidateKind("kind", c.Kind), nameForm)
	refuse(".queue", job.ValidateKind("queue", cmp.Or(c.Queue, job.DefaultQueue)), nameForm)
	refuse(".args", job.CheckPayload([]byte(cmp.Or(c.Args, "{}"))),
		fmt.Sprintf("is not JSON that a job may have: at most %d KiB are allowed, and no half of a character nor the character U+0000 in a string", job.MaxPayload>>10))
	if c.EveryTenant == (len(c.Tenants) > 0) {
		l.Add(path, "write every_tenant: true, or tenants: [acme]", "does not say which tenants have it, or says so twice")
	}
	for i, id := range c.Tenants {
		refuse(".tenants["+strconv.Itoa(i)+"]", id.Validate(),
			fmt.Sprintf("is not a tenant's id: 1 to %d bytes of printable characters are allowed, without white space at either end", tenancy.MaxIDLength))
	}
	if c.Priority < -1000 || c.Priority > 1000 {
		l.Add(path+".priority", "", "%d: -1000 to 1000 are allowed", c.Priority)
	}
	if c.MaxAttempts < 0 || c.MaxAttempts > job.MaxMaxAttempts {
		l.Add(path+".max_attempts", "", "%d: 1 to %d are allowed, and 0 for as its kind says", c.MaxAttempts, job.MaxMaxAttempts)
	}
	if c.Jitter < 0 || c.Jitter > MaxJitter || c.Jitter > 0 && !c.EveryTenant {
		l.Add(path+".jitter", "", "%v: 0 to %v are allowed, and only with every_tenant", c.Jitter, MaxJitter)
	}
	if c.Missed != "" {
		l.OneOf(path+".missed", c.Missed, "skip", "one", "all")
	}
	if _, err := time.Parse(time.RFC3339, c.End); c.End != "" && err != nil {
		l.Add(path+".end", "write one such as 2027-01-31T09:00:00Z", "is not a time")
		return
	}
	row := c.row(name)
	var bad *recurrence.Error
	if _, err := row.Rule(); errors.As(err, &bad) {
		l.Add(path+"."+bad.Field, bad.Fix, "%s", bad.What)
	}
}

// row is what the ledger has of it, but for its tenant and for what only a database's clock can
// tell.
func (c ScheduleConfig) row(name string) store.Schedule {
	s := store.Schedule{Name: name, Origin: store.ScheduleConfig, Kind: c.Kind, KindsQueue: c.Queue == "", Queue: cmp.Or(c.Queue, job.DefaultQueue), Payload: []byte(cmp.Or(c.Args, "{}")),
		Priority: int16(c.Priority), MaxAttempts: c.MaxAttempts, External: c.External,
		Times: store.Times{Spec: c.Rule, Zone: c.TimeZone, Missed: cmp.Or(c.Missed, "one"), Waits: c.Wait, Jitter: c.Jitter.Truncate(time.Millisecond)}}
	if end, err := time.Parse(time.RFC3339, c.End); err == nil {
		s.End = &end
	}
	return s
}
