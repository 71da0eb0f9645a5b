package acquisition

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// node is what the acquirers of all pools of this process share.
type node struct {
	cfg             Config
	settings        settings
	router          *routing.Router
	workers         *execution.Workers
	elector         Elector
	give            func(context.Context, *store.NewJob) (store.Given, error) // what its kind gives to a schedule's job
	metrics         *metrics
	balance         balance // of its locks
	quarantineLimit schedule.QuarantineLimit
	allotments      allotments                   // of its free slots, to other holders
	strangers       sync.Map                     // that this node has told of, by member
	seenAt          atomic.Pointer[routing.Pool] // where it has a session for no lock, as nothing else shows it
}

// settings may be replaced while the node runs. What they point to is never changed.
type settings struct {
	kinds     atomic.Pointer[store.Kinds]               // this node has handlers for
	queues    atomic.Pointer[QueueConfig]               // how queues share
	schedules atomic.Pointer[map[string]ScheduleConfig] // that the configuration makes
	limits    atomic.Pointer[map[string][]store.Limit]  // pools' shares of those of the whole cluster
}

// setKinds has this node claim jobs of these kinds.
func (s *settings) setKinds(names []string) {
	k := store.KindsOf(names)
	s.kinds.Store(&k)
}

// handles tells whether this node has a handler for a kind.
func (s *settings) handles(kind string) bool { return s.kinds.Load().Has(kind) }

// Held is a lock as this node last saw it.
type Held struct {
	Pool    string
	Holding bool   // by this node
	Holder  string // member; "" unknown or nobody
	Epoch   int64
}
