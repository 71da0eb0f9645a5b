package acquisition

import (
	"maps"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/job"
)

// Config is the acquire section of the configuration.
type Config struct {
	// Batch is the most jobs one claim takes.
	Batch int `yaml:"batch"`
	// IdleWait is how often an idle pool is looked at when no hint arrives.
	IdleWait time.Duration `yaml:"idle_wait"`
	// Lock times the acquire lock.
	Lock LockConfig `yaml:"lock"`
	// Session times the proof of life that protects claimed jobs.
	Session SessionConfig `yaml:"session"`
	// Queues says how the queues of a tenant share. It may change while a node runs.
	Queues QueueConfig `yaml:"queues"`
}

// LockConfig times the acquire lock of a pool.
type LockConfig = lease.LockConfig

// SessionConfig times a node's session in a pool.
type SessionConfig = lease.SessionConfig

// QueueConfig says how the queues of a tenant share.
type QueueConfig = schedule.QueueConfig

// maxWeight bounds the weight of a queue: a queue of weight 1 beside it has a thousandth.
const maxWeight = 1000

// DefaultConfig has the lock of a crashed holder taken some 4 s after the crash if gossip tells of
// it, and otherwise after some 8 s, when the lock has expired; while the holder dozed, it is twice
// as long. The jobs that a crashed node ran start again within 20 s. A job of one priority less
// starts within ten seconds, however many of the higher one there are; that costs those one claim
// in ten seconds.
func DefaultConfig() Config {
	return Config{
		Batch:    2000,
		IdleWait: 2 * time.Second,
		Lock:     LockConfig{TTL: 8 * time.Second, RenewEvery: 2 * time.Second},
		Session:  SessionConfig{TTL: 15 * time.Second, HeartbeatEvery: 3 * time.Second},
		Queues:   QueueConfig{Weights: map[string]int{}, AgeEvery: 10 * time.Second},
	}
}

// nameForm is said of a name that is not like one.
const nameForm = "is not a name: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit"

// Validate returns every fault of c, joined.
func (c Config) Validate() error {
	var l fault.List
	if c.Batch < 1 || c.Batch > 10_000 {
		l.Add("acquire.batch", "", "%d jobs: 1 to 10000 are allowed", c.Batch)
	}
	inRange := func(path string, d time.Duration) bool {
		if d < 50*time.Millisecond || d > time.Hour {
			l.Add(path, "", "%v: 50ms to 1h are allowed", d)
			return false
		}
		return true
	}
	inRange("acquire.idle_wait", c.IdleWait)
	lockTTL := inRange("acquire.lock.ttl", c.Lock.TTL)
	renew := inRange("acquire.lock.renew_every", c.Lock.RenewEvery)
	sessionTTL := inRange("acquire.session.ttl", c.Session.TTL)
	heartbeat := inRange("acquire.session.heartbeat_every", c.Session.HeartbeatEvery)
	inRange("acquire.queues.age_every", c.Queues.AgeEvery)
	for _, queue := range slices.Sorted(maps.Keys(c.Queues.Weights)) {
		if job.ValidateKind("queue", queue) != nil {
			l.Add("acquire.queues.weights."+queue, "", nameForm)
		}
		if w := c.Queues.Weights[queue]; w < 1 || w > maxWeight {
			l.Add("acquire.queues.weights."+queue, "a queue that is not named has 1", "a weight of %d: 1 to %d are allowed", w, maxWeight)
		}
	}

	// Compared only where both are in range: a fault that follows from another one confuses.
	if lockTTL && renew && c.Lock.RenewEvery*2 >= c.Lock.TTL {
		l.Add("acquire.lock.renew_every", "a quarter of the TTL is usual", "%v leaves no second try within acquire.lock.ttl %v", c.Lock.RenewEvery, c.Lock.TTL)
	}
	if sessionTTL && heartbeat && c.Session.HeartbeatEvery*3 > c.Session.TTL {
		l.Add("acquire.session.heartbeat_every", "a fifth of the TTL is usual", "%v allows fewer than three heartbeats within acquire.session.ttl %v", c.Session.HeartbeatEvery, c.Session.TTL)
	}
	if sessionTTL && lockTTL && c.Session.TTL < c.Lock.TTL {
		l.Add("acquire.session.ttl", "make it the longer one", "%v is shorter than acquire.lock.ttl %v: jobs would be taken from a node that still acquires", c.Session.TTL, c.Lock.TTL)
	}
	return l.Err()
}

// Lease is the part of c that is about keeping locks and sessions.
func (c Config) Lease() lease.Config { return lease.Config{Lock: c.Lock, Session: c.Session} }
