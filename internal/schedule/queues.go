package schedule

import "time"

// QueueConfig says how a tenant's queues share what the tenant has, and how long a job of one
// of them waits behind those of higher priority.
type QueueConfig struct {
	// Weights are the shares of queues, by name; one that is not named has 1. Of two queues of
	// a tenant that have much to do, one of weight 3 has three times as much of the workers'
	// time as one of weight 1.
	Weights map[string]int `yaml:"weights"`
	// AgeEvery is how long the jobs of one priority must have been passed over for others of
	// their queue to count as one priority higher, until some of them are claimed.
	AgeEvery time.Duration `yaml:"age_every"`
}

// weightOf is the weight of a queue, in the type of what is divided by it.
func (c *QueueConfig) weightOf(queue string) time.Duration {
	return time.Duration(max(c.Weights[queue], 1))
}
