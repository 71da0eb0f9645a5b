package external

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Workers acquires jobs and ends them. Each job is locked by one worker until a time. When that has passed the job can
// be acquired again, at once, and what the first worker says of it then comes too late: ErrLockLost. A process has one,
// which remembers whose turn it is: see tenure.Client.ExternalWorkers. Safe for concurrent use.
type Workers struct {
	proc *process.Process

	mu    sync.Mutex
	first int                   // counts acquires, guarded by mu: which pool is asked first
	after map[[2]string]string  // by pool and topic, guarded by mu: the tenant that was looked at last
	late  map[*routing.Pool]int // guarded by mu: acquires that a pool has not answered in time
	turns map[string]*turn      // guarded by mu: of those that wait, by what they wait for
}

// New is for package tenure: others take what tenure.Client.ExternalWorkers returns.
func New(p *process.Process) *Workers {
	return &Workers{proc: p, after: map[[2]string]string{}, late: map[*routing.Pool]int{}, turns: map[string]*turn{}}
}

// Bounds of what external workers ask for.
const (
	MaxJobs         = 1000           // that are acquired at a time
	MaxLock         = 24 * time.Hour // from now on
	MinLock         = 100 * time.Millisecond
	MaxWait         = 5 * time.Minute
	maxAcquireBytes = 16 << 20 // of the payloads of what is acquired in a pool
	maxWorkerName   = 128
	maxErrorText    = 16 << 10
)

// AcquireRequest asks for jobs of a topic.
type AcquireRequest struct {
	Topic   string        // the kind of the jobs
	Worker  string        // who locks them: at most 128 bytes
	Max     int           // 1 to MaxJobs
	LockFor time.Duration // MinLock to MaxLock, by the database's clock
	Wait    time.Duration // for the first job, if there is none now; to MaxWait
	Tenants []tenancy.ID  // whose jobs; empty: all
}

func (r *AcquireRequest) check() error {
	err := job.ValidateKind("topic", r.Topic)
	switch {
	case err != nil:
	case r.Max < 1 || r.Max > MaxJobs:
		err = fmt.Errorf("max %d: 1 to %d are allowed", r.Max, MaxJobs)
	case r.Wait < 0 || r.Wait > MaxWait:
		err = fmt.Errorf("wait %v: 0 to %v are allowed", r.Wait, MaxWait)
	default:
		err = cmp.Or(checkWorker(r.Worker), checkLockFor(r.LockFor))
	}
	for _, t := range r.Tenants {
		err = cmp.Or(err, t.Validate())
	}
	if err != nil {
		return &job.InputError{Err: fmt.Errorf("acquire jobs: %w", err)}
	}
	return nil
}

func checkWorker(name string) error {
	if name == "" || len(name) > maxWorkerName {
		return fmt.Errorf("worker %q: a name of 1 to %d bytes is needed", name, maxWorkerName)
	}
	return job.ValidateText("worker", name)
}

func checkLockFor(d time.Duration) error {
	if d < MinLock || d > MaxLock {
		return fmt.Errorf("lock for %v: %v to %v are allowed", d, MinLock, MaxLock)
	}
	return nil
}

// Lock is by what a worker proves that a job is its own. It can be stored, and passed on.
type Lock struct {
	Job    job.ID `json:"job,string"`
	Turn   int32  `json:"turn"` // of the job; another worker gets another one
	Worker string `json:"worker"`
}

func (l Lock) lock() store.ExternalLock { return store.ExternalLock(l) }

// Job is a job that a worker has locked.
type Job struct {
	Lock
	Until         time.Time // when the lock expires, by the database's clock
	Pool          string
	Tenant        tenancy.ID
	Topic         string
	Queue         string
	Priority      int
	Attempt       int // this one, from 1
	MaxAttempts   int // its own, or those of execution.retry
	Losses        int // workers that have let its lock expire
	CreatedAt     time.Time
	UniqueKey     string
	CorrelationID string
	Payload       json.RawMessage
	Meta          json.RawMessage
}
