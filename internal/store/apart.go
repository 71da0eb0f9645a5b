package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Bounds on printing payloads. Those of a page take milliseconds, unless one of them unfolds
// to many times of what it is stored as.
const (
	printPatience = time.Second       // with a statement that prints several of them
	apartPatience = 5 * time.Second   // with the jobs of claims, each looked at before it is printed
	pagePatience  = printPatience / 4 // likewise with those of a page, which all tenants wait for; one more may be begun
	apartBytes    = 64 << 10          // stored, of the jobs that are looked at in one statement
)

// readPrinted reads what has to be printed: all at once or, when that fails or takes too
// long because something in it prints as too much or cannot be read, apart.
func readPrinted[T any](ctx context.Context, atOnce, apart func(context.Context) (T, error)) (T, error) {
	soon, cancel := context.WithTimeout(ctx, printPatience)
	defer cancel()
	out, err := atOnce(soon)
	if err == nil || ctx.Err() != nil || soon.Err() == nil && !hasCode(err, codeTooMuch) && !IsUnreadable(err) {
		return out, err
	}
	out, later := apart(ctx)
	if later != nil {
		return out, errors.Join(later, err)
	}
	return out, nil
}

// readApart reads a page whose payloads are printed apart, each lane's in their order, the smallest first. What
// there is no time for is left.
func readApart(ctx context.Context, db DB, p *PageRequest, kinds Kinds, foreign bool) (Page, error) {
	page, err := readPage(ctx, db, p, kinds, foreign, 0)
	if err != nil {
		return Page{}, err
	}
	jobs := map[job.ID]*Waiting{}
	order := orderApart(page.Jobs)
	for _, w := range order {
		jobs[w.Record.ID] = w
	}
	until := time.Now().Add(pagePatience)
	err = printApart(ctx, db, order, cmp.Or(p.Room, MaxPageBytes), until, func(p printed) {
		w := jobs[p.id]
		w.Damage, w.TooLarge, w.Left = p.damage, p.bytes > MaxJobBytes, p.isLeft()
		w.Bytes, w.Record.Payload, w.Record.Meta = p.bytes, p.payload, p.meta
	})
	if err != nil {
		return Page{}, err
	}
	left := map[int]bool{}
	for i := range page.Jobs {
		w := &page.Jobs[i]
		if left[w.Lane] = left[w.Lane] || w.Left; left[w.Lane] {
			w.Left, w.Record.Payload, w.Record.Meta = true, nil, nil
		}
	}
	page.Slow = !p.Apart || time.Now().After(until)
	return page, nil
}

// orderApart is the order in which the jobs of a page are printed that are left, all that are not too large or foreign.
// Printing one before those that stand before it in its lane would be of no use.
func orderApart(jobs []Waiting) (order []*Waiting) {
	largest := map[*Waiting]int64{} // of what stands before it, and it
	lane, most := -1, int64(0)
	for i := range jobs {
		w := &jobs[i]
		if !w.Left {
			continue
		}
		if w.Lane != lane {
			lane, most = w.Lane, 0
		}
		most = max(most, w.Bytes)
		largest[w] = most
		order = append(order, w)
	}
	slices.SortStableFunc(order, func(a, b *Waiting) int { return cmp.Compare(largest[a], largest[b]) })
	return order
}

// printed is what came of printing a job.
type printed struct {
	id            job.ID
	bytes         int64
	payload, meta []byte
	damage        string // why it cannot be read
}

// isLeft tells whether there was no room for it.
func (p *printed) isLeft() bool { return p.payload == nil && p.bytes <= MaxJobBytes && p.damage == "" }

// printApart prints jobs in this order, as far as room bytes and the time go; the first at
// any rate, and more and more at a time. Bytes of a job is what is stored of it. Those that are gone do not come. Jobs among which is one that
// cannot be read are halved until it is found.
func printApart(ctx context.Context, db DB, jobs []*Waiting, room int64, until time.Time, see func(printed)) error {
	all := len(jobs)
	for most, together := apartBytes, 1; len(jobs) > 0 && room > 0; {
		n, stored := 1, jobs[0].Bytes
		for n < min(len(jobs), together) && stored+jobs[n].Bytes <= int64(most) {
			stored += jobs[n].Bytes
			n++
		}
		used, err := printTogether(ctx, db, jobs[:n], room, see)
		switch {
		case err == nil:
			jobs, room, together = jobs[n:], room-used, 2*n
		case ctx.Err() != nil:
			return err
		case n == 1 && strings.HasPrefix(stateOf(err), classTooMuch): // nested too deeply to be measured
			see(printed{id: jobs[0].Record.ID, bytes: MaxJobBytes + 1})
			jobs = jobs[1:]
		case n == 1 && IsUnreadable(err):
			see(printed{id: jobs[0].Record.ID, damage: err.Error()})
			jobs, together = jobs[1:], 2
		case n == 1:
			return err
		case IsUnreadable(err):
			together = n / 2
		default: // one by one
			most = 0
		}
		if len(jobs) < all && time.Now().After(until) {
			return nil
		}
	}
	return nil
}

// printTogether prints jobs in one statement. If they are several it must not take long.
func printTogether(ctx context.Context, db DB, jobs []*Waiting, room int64, see func(printed)) (used int64, err error) {
	ids := make([]int64, len(jobs))
	for i, w := range jobs {
		ids[i] = int64(w.Record.ID)
	}
	if len(jobs) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, printPatience)
		defer cancel()
	}
	rows, _ := db.Query(ctx, sqlPageApart, ids, MaxJobBytes, room) // its error is the rows', too
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p printed, err error) {
		return p, row.Scan(&p.id, &p.bytes, &p.payload, &p.meta)
	})
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		see(p)
		if p.payload != nil || p.isLeft() {
			used += p.bytes
		}
	}
	return used, nil
}

// acceptApart takes claims over whose payloads are printed apart.
func acceptApart(ctx context.Context, db DB, session uuid.UUID, known []int64) ([]Accepted, error) {
	accepted, err := acceptClaims(ctx, db, session, known, 0)
	if err != nil {
		return nil, err
	}
	type place struct{ claim, job int }
	left := map[job.ID]place{}
	var order []*Waiting
	for i := range accepted {
		c := &accepted[i]
		c.Damaged = make([]bool, len(c.Jobs))
		for k, r := range c.Jobs {
			left[r.ID] = place{i, k}
			order = append(order, &Waiting{Record: r, Bytes: apartBytes / 64}) // it is not known
		}
	}
	until := time.Now().Add(apartPatience)
	err = printApart(ctx, db, order, math.MaxInt64, until, func(p printed) {
		c, k := &accepted[left[p.id].claim], left[p.id].job
		c.Jobs[k].Payload, c.Jobs[k].Meta, c.Damaged[k] = p.payload, p.meta, p.damage != ""
		delete(left, p.id)
	})
	if err == nil && len(left) > 0 && time.Now().After(until) { // they are asked for again
		err = fmt.Errorf("the payloads of %d jobs have not been printed within %v", len(left), apartPatience)
	}
	return accepted, err
}
