package lease

import "time"

// Config times locks and sessions. Who makes it validates it.
type Config struct {
	Lock    LockConfig
	Session SessionConfig
}

// LockConfig times the acquire lock of a pool.
type LockConfig struct {
	// TTL is how long a lock outlives its last renewal.
	TTL time.Duration `yaml:"ttl"`
	// RenewEvery is how often a holder renews.
	RenewEvery time.Duration `yaml:"renew_every"`
}

// Living is how a lock is renewed that lives for ttl: as many times in its life as one that
// lives for c.TTL. So its row tells everybody how often to expect a renewal, whether its
// holder dozes or is configured otherwise.
func (c LockConfig) Living(ttl time.Duration) LockConfig {
	return LockConfig{TTL: ttl, RenewEvery: time.Duration(float64(c.RenewEvery) * float64(ttl) / float64(c.TTL))}
}

// SessionConfig times a node's session in a pool.
type SessionConfig struct {
	// TTL is how long a session outlives its last heartbeat; then its jobs go to others.
	TTL time.Duration `yaml:"ttl"`
	// HeartbeatEvery is how often a node with claims says that it lives.
	HeartbeatEvery time.Duration `yaml:"heartbeat_every"`
}

// DozeFactor is by how much a lock lives longer, and so is renewed more slowly, while its holder
// dozes.
const DozeFactor = 2

// CallTimeout bounds a call on the lock's connection that is opened for it.
const CallTimeout = 4 * time.Second

// briefly is how long something is waited for that is about to happen: that a claim is known
// which is being made, or that the take follows which a connection is needed for again.
const briefly = retryEvery / 5

// retryEvery is how often to try again what does not get better soon.
const retryEvery = time.Second
