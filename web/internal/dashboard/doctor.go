package dashboard

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
)

const (
	// examineWithin is how long each pool may take; all are asked at the same time. A busy machine takes
	// more than a second, and nothing is wrong with it.
	examineWithin = 5 * time.Second
	// keepExamined is for how long an examination is shown to others: it opens a connection to each pool.
	keepExamined = 10 * time.Second
)

// doctor examines the databases, once for all who ask at the same time.
type doctor struct {
	mu   sync.Mutex          // held while it examines
	last map[string]examined // by the pools, in order; "": all
}

type examined struct {
	at    time.Time
	found operate.Examination
}

// examine looks at some pools; none: at all.
func (d *doctor) examine(ctx context.Context, op *operate.Operator, pools []string) (operate.Examination, time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := strings.Join(slices.Sorted(slices.Values(pools)), "\n")
	if last := d.last[key]; time.Since(last.at) < keepExamined {
		return last.found, last.at, nil
	}
	at := time.Now()
	found, err := op.Examine(ctx, examineWithin, pools...)
	found = found.Discreet()
	if err == nil && ctx.Err() == nil {
		if d.last == nil {
			d.last = map[string]examined{}
		}
		d.last[key] = examined{at, found} // there are no more of them than grants
	}
	return found, at, err
}

type doctorBody struct {
	operate.Examination
	At time.Time
}

// doctorPage shows what tenure doctor prints. It speaks of servers, and so is for admins, as in the API.
func (s *site) doctorPage(v *visit) (view, error) {
	if !v.grant.May(access.Admin) {
		return view{}, errNotAllowed
	}
	if err := v.ofAll(); err != nil {
		return view{}, err
	}
	ctx, cancel := context.WithTimeout(v.Context(), 2*examineWithin) // more than a page has otherwise
	defer cancel()
	found, at, err := s.doctor.examine(ctx, v.op, v.grant.Pools)
	v.sawAt(at)
	return view{Page: "doctor", Title: "Doctor", Still: true, Body: doctorBody{found, at}}, err
}
