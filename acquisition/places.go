package acquisition

import (
	"time"

	"github.com/tenurehq/tenure/execution"
)

// holdPlaces is how long places with the workers are kept while jobs for them are read
// and claimed. A database that hangs must not keep them from the other pools.
const holdPlaces = 100 * time.Millisecond

// places are some with the workers for jobs that are not claimed yet.
type places struct {
	workers *execution.Workers
	n       int
	late    *time.Timer // has given them back
}

func hold(w *execution.Workers, n int) *places {
	return &places{w, n, time.AfterFunc(holdPlaces, func() { w.Release(n) })}
}

// use keeps some of them for claims that stand now, and gives the others back. If all
// were given back before, the claims come on top of what has them now.
func (p *places) use(n int) {
	if p.late.Stop() {
		p.workers.Release(p.n - n)
	} else {
		p.workers.Admit(n)
	}
}
