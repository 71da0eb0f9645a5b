package acquisition

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// mostAhead bounds how many pages are read ahead, one after the other, before the term does
// anything else: with more of them the ends of jobs, which make room, wait.
const mostAhead = 1

// reading is a page that is being read, with the slots for its jobs.
type reading struct {
	began    time.Time
	portions []schedule.Portion
	before   []int64 // cursors
	slots    int
	reserved *reservedSlots

	done chan struct{} // closed once the rest is known
	took time.Duration
	page store.Page
	err  error
}

// pageSoon is how long a page may take: all tenants wait for it.
const pageSoon = 20 * time.Millisecond

// pageReader reads pages, and learns how to have their payloads printed by how long that took lately. A tenant may have
// nothing but large ones, of which a full page takes a tenth of a second.
type pageReader struct {
	place
	peers *peers

	room      int64         // bytes of a page
	without   time.Duration // what a page took that had next to nothing to be printed: the way to the database and back
	slowUntil time.Time     // one by one until then
}

// note learns from a page.
func (p *pageReader) note(page *store.Page, took time.Duration) {
	if page.Slow {
		p.slowUntil = time.Now().Add(sweepEvery / 4)
	}
	bytes := int64(0)
	for i := range page.Jobs {
		bytes += int64(len(page.Jobs[i].Record.Payload) + len(page.Jobs[i].Record.Meta))
	}
	if bytes < 64<<10 {
		p.without = took
	}
	switch took -= p.without; {
	case took > pageSoon:
		p.room = max(store.MaxJobBytes, min(p.room, int64(float64(bytes)*float64(pageSoon)/float64(took))))
	case bytes > p.room/2: // it was put to use
		p.room = min(store.MaxPageBytes, 2*p.room)
	}
}

// begin reads jobs beside the term's goroutine, those of the kinds that somebody runs with their payload;
// nil: there is nothing to be read.
func (p *pageReader) begin(ctx context.Context, portions []schedule.Portion, slots int, reserved *reservedSlots) *reading {
	if len(portions) == 0 {
		reserved.release()
		return nil
	}
	r := &reading{began: time.Now(), portions: portions, before: make([]int64, len(portions)), slots: slots, reserved: reserved, done: make(chan struct{})}
	req := store.PageRequest{Apart: r.began.Before(p.slowUntil), Room: p.room}
	for i, one := range portions {
		r.before[i] = one.Lane.Cursor()
		switch {
		case one.Head != nil:
			req.AddHead(one.Lane.Lane, one.Head.Position)
		case one.Lane.Kind != "":
			req.AddKind(one.Lane.Lane, one.Lane.Kind, one.Lane.Cursor(), one.Lane.UpTo(), one.Lane.CountToRead(one.Places))
		default:
			req.Add(one.Lane.Lane, one.Lane.Cursor(), one.Lane.CountToRead(one.Places))
		}
	}
	kinds, foreign := p.peers.runnable, p.peers.haveOthers()
	go func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		r.page, r.err = store.ReadPage(ctx, p.pool.Jobs(), &req, kinds, foreign)
		r.took = time.Since(r.began)
	}()
	return r
}

// drop forgets what is being read. The cursors are still where they were.
func (r *reading) drop() {
	<-r.done
	r.reserved.release()
}
