package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/tenurehq/tenure"
)

const (
	// examineWithin is how long each pool may take; all are asked at the same time.
	examineWithin = 2 * time.Second
	// keepExamined is for how long an examination is shown to others: it opens a connection to each pool.
	keepExamined = 10 * time.Second
)

// doctor examines the databases, once for all who ask at the same time.
type doctor struct {
	mu    sync.Mutex // held while it examines
	at    time.Time
	found tenure.Examination
}

func (d *doctor) examine(ctx context.Context, op *tenure.Operator) (tenure.Examination, time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.at) < keepExamined {
		return d.found, d.at, nil
	}
	at := time.Now()
	found, err := op.Examine(ctx, examineWithin)
	if err == nil && ctx.Err() == nil {
		d.at, d.found = at, found.Discreet()
	}
	return found.Discreet(), at, err
}

type doctorBody struct {
	tenure.Examination
	At time.Time
}

// doctorPage shows what tenure doctor prints. It speaks of servers, and so is for those who may see
// everything on them.
func (s *site) doctorPage(v *visit) (view, error) {
	if !v.unlimited() {
		return view{}, &statusError{http.StatusForbidden, "The doctor looks at all pools and tenants, and you may see only some."}
	}
	ctx, cancel := context.WithTimeout(v.Context(), 2*examineWithin) // more than a page has otherwise
	defer cancel()
	found, at, err := s.doctor.examine(ctx, v.op)
	v.sawAt(at)
	return view{Page: "doctor", Title: "Doctor", Still: true, Body: doctorBody{found, at}}, err
}
