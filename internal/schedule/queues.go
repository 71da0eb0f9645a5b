package schedule

import (
	"slices"
	"time"
)

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

// queue is a tenant's lanes of one queue.
type queue struct {
	name   string
	lanes  []*Lane // highest priority first
	weight time.Duration
	turn   time.Duration // when its next turn begins, in served time
}

func (ls *Lanes) addToQueue(l *Lane) {
	l.queue.lanes = append(l.queue.lanes, l)
	slices.SortStableFunc(l.queue.lanes, func(a, b *Lane) int { return int(b.Priority) - int(a.Priority) })
}

// queueOf returns a tenant's queue of a name, which begins without lanes.
func (ls *Lanes) queueOf(t *tenantLanes, name string) *queue {
	for _, q := range t.queues {
		if q.name == name {
			return q
		}
	}
	q := &queue{name: name, weight: ls.config.weightOf(name), turn: t.clock}
	t.queues = append(t.queues, q)
	return q
}

// chooseLane chooses the active lane whose turn it is: of the queue that has had least for
// its weight, so that it keeps its turn until some of its jobs are claimed (see Charge): for what
// takes long there is room only once less of the others waits. Its
// lanes gain a priority each time that they have been passed over for as long as a step takes.
func (t *tenantLanes) chooseLane(now time.Time, step time.Duration) (next *Lane) {
	for _, q := range t.queues {
		if l := q.chooseLane(now, step); l != nil && (next == nil || q.turn < next.queue.turn) {
			next = l
		}
	}
	t.clock = next.queue.turn
	return next
}

// chooseLane chooses the queue's active lane of the highest priority, with what it has gained;
// nil: none is active.
func (q *queue) chooseLane(now time.Time, step time.Duration) (next *Lane) {
	var highest time.Duration
	for _, l := range q.lanes {
		if !l.active {
			continue
		}
		if l.passed.IsZero() {
			l.passed = now
		}
		if p := time.Duration(l.Priority)*step + now.Sub(l.passed); next == nil || p > highest {
			next, highest = l, p
		}
	}
	return next
}

// firstActive is an active lane of the tenant; nil: it has none.
func (t *tenantLanes) firstActive() *Lane {
	for _, q := range t.queues {
		if l := q.firstActive(); l != nil {
			return l
		}
	}
	return nil
}

func (q *queue) firstActive() *Lane {
	for _, l := range q.lanes {
		if l.active {
			return l
		}
	}
	return nil
}
