package acquisition

import (
	"time"

	"github.com/tenurehq/tenure/internal/fault"
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
}

// LockConfig times the acquire lock of a pool.
type LockConfig struct {
	// TTL is how long a lock outlives its last renewal.
	TTL time.Duration `yaml:"ttl"`
	// RenewEvery is how often a holder renews.
	RenewEvery time.Duration `yaml:"renew_every"`
}

// SessionConfig times a node's session in a pool.
type SessionConfig struct {
	// TTL is how long a session outlives its last heartbeat; then its jobs are given to others.
	TTL time.Duration `yaml:"ttl"`
	// HeartbeatEvery is how often a node with claims says that it lives.
	HeartbeatEvery time.Duration `yaml:"heartbeat_every"`
}

// DefaultConfig takes over from a crashed holder within 8 s and from a crashed
// worker within 20 s.
func DefaultConfig() Config {
	return Config{
		Batch:    2000,
		IdleWait: 2 * time.Second,
		Lock:     LockConfig{TTL: 8 * time.Second, RenewEvery: 2 * time.Second},
		Session:  SessionConfig{TTL: 15 * time.Second, HeartbeatEvery: 3 * time.Second},
	}
}

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
