package execution

import (
	"time"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/job"
)

// Config is the execution section of the configuration.
type Config struct {
	// Workers is how many handlers run at a time on this node, over all pools.
	Workers int `yaml:"workers"`
	// TenantShare is how much of the workers the jobs of one tenant may have, in percent. 100: all of them.
	TenantShare int `yaml:"tenant_share"`
	// Timeout bounds a run whose kind sets no timeout of its own.
	Timeout time.Duration `yaml:"timeout"`
	// Retry is the policy of kinds that set none; see job.ParsePolicy.
	Retry string `yaml:"retry"`
	// Retention is how long finished jobs can be looked at; 0 keeps none.
	Retention time.Duration `yaml:"retention"`
	// DeadRetention is how long dead letters are kept; 0 keeps them until somebody deletes them.
	DeadRetention time.Duration `yaml:"dead_retention"`
	// FinishWithin is how long handlers may go on after a stop was asked for; then they are cancelled.
	FinishWithin time.Duration `yaml:"finish_within"`
	// Paused has the node run no jobs. It can be changed without a restart.
	Paused bool `yaml:"paused"`
}

// DefaultConfig is for handlers that mostly wait for something.
func DefaultConfig() Config {
	return Config{
		Workers:      64,
		TenantShare:  75,
		Timeout:      15 * time.Minute,
		Retry:        job.DefaultPolicy().String(),
		Retention:    24 * time.Hour,
		FinishWithin: 10 * time.Second,
	}
}

// Validate returns every fault of c, joined.
func (c Config) Validate() error {
	var l fault.List
	if c.Workers < 1 || c.Workers > 10_000 {
		l.Add("execution.workers", "", "%d workers: 1 to 10000 are allowed", c.Workers)
	}
	if c.TenantShare < 1 || c.TenantShare > 100 {
		l.Add("execution.tenant_share", "", "%d percent: 1 to 100 are allowed", c.TenantShare)
	}
	if c.Timeout < time.Second {
		l.Add("execution.timeout", "", "%v: at least 1s", c.Timeout)
	}
	if _, err := job.ParsePolicy(c.Retry); err != nil {
		l.Add("execution.retry", "write a cycle such as R5/PT5M, a list such as PT1M,PT5M,PT1H, or exponential(10, 10s, 6h)",
			"is not a retry policy: 1 to %d attempts are allowed, with delays of up to %v", job.MaxMaxAttempts, job.MaxDelay)
	}
	if c.Retention < 0 || c.Retention > 366*24*time.Hour {
		l.Add("execution.retention", "", "%v: 0 (keep nothing) to 8784h are allowed", c.Retention)
	}
	if c.DeadRetention != 0 && c.DeadRetention < time.Hour {
		l.Add("execution.dead_retention", "", "%v: 1h or more, or 0 (keep them until somebody deletes them) are allowed", c.DeadRetention)
	}
	if c.FinishWithin <= 0 || c.FinishWithin > time.Hour {
		l.Add("execution.finish_within", "", "%v: more than 0 and at most 1h", c.FinishWithin)
	}
	return l.Err()
}
