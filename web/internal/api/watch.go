package api

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

const (
	// look is how often it is looked whether something has changed that somebody waits for.
	look = time.Second
	// streamFor is after how long a stream ends. The client comes back by itself.
	streamFor = 10 * time.Minute
	// writeWithin is how long a client may take to read an event.
	writeWithin = 10 * time.Second
	// quietFor is after how long without an event a comment shows that a stream lives.
	quietFor = 15 * time.Second
	// maxWaiting is how many requests wait at a time, and maxWaitingOf how many of one caller.
	maxWaiting, maxWaitingOf = 256, 32
	// maxAcquiring and maxAcquiringOf are the same of acquires, as a token may be of many workers. Each may be of a topic
	// of its own, and then looks for jobs twice a second.
	maxAcquiring, maxAcquiringOf = 2048, 256
)

// waiting counts the requests that are kept open.
type waiting struct {
	most, mostOf int // in all, and of one caller

	mu   sync.Mutex
	all  int            // guarded by mu
	each map[string]int // guarded by mu; by the name of the grant
}

// begin counts one in; leave must be called when it is over. The context ends once the node is about to stop, or its
// sender may do something else.
func (w *waiting) begin(ctx context.Context) (_ context.Context, leave func(), _ error) {
	name := access.From(ctx).Who()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= w.most || w.each[name] >= w.mostOf {
		err := huma.Error429TooManyRequests(fmt.Sprintf("%d requests of %q wait already, of %d that may, and %d in all, of %d: end some, or come back later",
			w.each[name], name, w.mostOf, w.all, w.most))
		return nil, nil, huma.ErrorWithHeaders(err, http.Header{"Retry-After": {"10"}})
	}
	if w.each == nil {
		w.each = map[string]int{}
	}
	w.all++
	w.each[name]++
	ctx, stop := admin.UntilStop(ctx)
	ctx, end := access.WhileGranted(ctx)
	return ctx, func() {
		end()
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all--
		if w.each[name]--; w.each[name] == 0 {
			delete(w.each, name)
		}
	}, nil
}

// versionOf tells what is from what was.
func versionOf(what any) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(what) // of our own types, into a hash
	return strconv.FormatUint(h.Sum64(), 36)
}

// readDetail reads a job again, where it was.
func (s *server) readDetail(ctx context.Context, last *JobDetail) (JobDetail, error) {
	id, err := job.ParseID(last.ID)
	if err != nil {
		return JobDetail{}, err
	}
	of, cancel := s.look(ctx)
	defer cancel()
	j, failed, err := s.operator.Jobs().GetIn(of, last.Pool, id)
	if err != nil || !sees(ctx, tenancy.ID(j.Tenant), j.Pool) { // its tenant may have been moved, or another one been given it
		j, failed, err = s.findJob(ctx, id)
	}
	if err != nil {
		return JobDetail{}, err
	}
	return s.newJobDetail(ctx, &j, failed), nil
}

// waitForJob waits until something of a job has changed, or the time is over.
func (s *server) waitForJob(ctx context.Context, last *JobDetail, most time.Duration) (JobDetail, error) {
	return await(ctx, s, *last, most, func(ctx context.Context) (JobDetail, error) { return s.readDetail(ctx, last) },
		func(d JobDetail) string { return d.Version })
}

// await reads something until its version is another one, or the time is over, and returns what it is then.
func await[T any](ctx context.Context, s *server, last T, most time.Duration, read func(context.Context) (T, error), version func(T) string) (T, error) {
	ctx, leave, err := s.waiting.begin(ctx)
	if err != nil {
		return last, err
	}
	defer leave()
	over := time.NewTimer(most)
	defer over.Stop()
	every := time.NewTicker(look)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-over.C:
			return last, nil
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
		now, err := read(ctx)
		if ctx.Err() != nil {
			return last, context.Cause(ctx)
		}
		if err != nil || version(now) != version(last) {
			return now, err
		}
	}
}

// event is one of a stream.
type event struct {
	name, version string
	data          any
	last          bool // nothing comes behind it
}

// stream sends what next returns whenever its version is another one.
func (s *server) stream(ctx context.Context, known string, first event, next func(context.Context) (event, error)) (*huma.StreamResponse, error) {
	if first.last && known == first.version { // it tells a browser not to come back
		return &huma.StreamResponse{Body: func(hc huma.Context) { hc.SetStatus(http.StatusNoContent) }}, nil
	}
	ctx, leave, err := s.waiting.begin(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer leave()
		_, w := humago.Unwrap(hc)
		out := &eventWriter{w: w, control: http.NewResponseController(w)}
		_ = out.control.SetReadDeadline(time.Time{}) // the server's is for the request; a writer without one has none
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // a proxy is to pass events on at once
		ctx, cancel := context.WithTimeout(ctx, streamFor)
		defer cancel()
		out.follow(ctx, known, first, next)
	}}, nil
}

// eventWriter writes events to a client.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	spoken  time.Time
}

// follow writes until the last event, the end of ctx, or the first failure: the client comes back then.
func (e *eventWriter) follow(ctx context.Context, known string, now event, next func(context.Context) (event, error)) {
	every := time.NewTicker(look)
	defer every.Stop()
	if e.write("retry: 2000\n\n") != nil {
		return
	}
	for {
		var err error
		switch {
		case now.version != known:
			known = now.version
			var data []byte
			if data, err = json.Marshal(now.data); err == nil {
				err = e.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", now.version, now.name, data))
			}
		case time.Since(e.spoken) >= quietFor:
			err = e.write(": quiet\n\n")
		}
		if err != nil || now.last {
			return
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if now, err = next(ctx); err != nil || ctx.Err() != nil { // it may have been read for others, too
			return
		}
	}
}

func (e *eventWriter) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(writeWithin)) // a writer that has none needs none
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	e.spoken = time.Now()
	return e.control.Flush()
}

type jobEventsIn struct {
	JobIn
	Known string `header:"Last-Event-ID" doc:"a version that is known already"`
}

// streamJob sends a job whenever something of it has changed, until it has ended.
func streamJob(ctx context.Context, s *server, in *jobEventsIn) (*huma.StreamResponse, error) {
	j, failed, err := s.findJob(ctx, job.ID(in.ID))
	if err != nil {
		return nil, err
	}
	detail := s.newJobDetail(ctx, &j, failed)
	made := func() event { return event{"job", detail.Version, detail, detail.hasEnded()} }
	return s.stream(ctx, in.Known, made(), func(ctx context.Context) (event, error) {
		detail, err = s.readDetail(ctx, &detail)
		return made(), err
	})
}

type lockEventsIn struct {
	Known string `header:"Last-Event-ID" doc:"a version that is known already"`
}

// streamLocks sends the cluster map whenever it has changed.
func streamLocks(ctx context.Context, s *server, in *lockEventsIn) (*huma.StreamResponse, error) {
	first, err := s.readLocks(ctx)
	if err != nil {
		return nil, err
	}
	made := func(l locksOut) event { return event{"locks", l.Version, l, false} }
	return s.stream(ctx, in.Known, made(first), func(ctx context.Context) (event, error) {
		l, err := s.readLocks(ctx)
		return made(l), err
	})
}

type lockOut struct {
	Pool             string     `json:"pool"`
	Answers          bool       `json:"answers"`
	Node             string     `json:"node,omitempty" doc:"that holds it"`
	Holder           string     `json:"holder,omitempty" doc:"the start of that node"`
	ReservedFor      string     `json:"reserved_for,omitempty" doc:"who is to have it when it is released"`
	Elected          string     `json:"elected,omitempty" doc:"the node that is to hold it, as this one sees the cluster"`
	Epoch            int64      `json:"epoch"`
	Since            *time.Time `json:"since,omitempty"`
	RemainingSeconds float64    `json:"remaining_seconds"`
	Frozen           bool       `json:"frozen"`
	Timeline         int32      `json:"timeline,omitempty" doc:"raised by each promotion of the pool's server; none: it cannot be read"`
	TimelineRefused  string     `json:"timeline_refused,omitempty" doc:"why not: nobody here notices a primary that was replaced, and its storage has to refuse that one's writes"`
}

type locksOut struct {
	Items   []lockOut `json:"items" nullable:"false"`
	Version string    `json:"version" doc:"another one whenever something but the remaining time has changed"`
}

type locksIn struct {
	Known string `query:"known" doc:"the version that is known already: it is waited for another one"`
	Wait  int    `query:"wait" minimum:"0" maximum:"20" doc:"so many seconds at most"`
}

func listLocks(ctx context.Context, s *server, in *locksIn) (*object[locksOut], error) {
	now, err := s.readLocks(ctx)
	if err == nil && in.Wait > 0 && in.Known == now.Version {
		now, err = await(ctx, s, now, time.Duration(in.Wait)*time.Second, s.readLocks, func(l locksOut) string { return l.Version })
	}
	return &object[locksOut]{now}, err
}

// lockReader keeps the locks for all who look, so that many ask the pools no oftener than one does.
type lockReader struct {
	mu   sync.Mutex
	at   time.Time
	last []lockOut
}

// readLocks are the locks that the grant reaches; as all that is of many tenants, it is for grants that
// are not bound to some.
func (s *server) readLocks(ctx context.Context) (out locksOut, _ error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return out, hidden
	}
	out.Items = []lockOut{}
	still := []lockOut{}
	for _, l := range s.lastLocks(ctx) {
		if g.SeesPool(l.Pool) {
			out.Items = append(out.Items, l)
			l.RemainingSeconds = 0
			still = append(still, l)
		}
	}
	out.Version = versionOf(still)
	return out, nil
}

func (s *server) lastLocks(ctx context.Context) []lockOut {
	r := &s.locks
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < look/2 {
		return r.last
	}
	ctx, cancel := s.look(context.WithoutCancel(ctx)) // the next one has it, too
	defer cancel()
	nodes := map[string]string{}
	sessions, _ := s.operator.Pools().Sessions(ctx) // of a pool that does not answer the lock is unknown, too
	for _, n := range sessions {
		nodes[n.ID.String()] = n.Node
	}
	r.last = nil
	for _, l := range s.operator.Pools().Locks(ctx) {
		o := lockOut{l.Pool, l.Err == nil, "", l.Holder, l.Next, s.operator.Pools().Elected(l.Pool), l.Epoch, nil, l.Remaining.Seconds(), l.Frozen, l.Timeline, l.TimelineRefused}
		s.note(l.Err)
		if l.Holder != "" {
			o.Node, o.Since = nodes[l.Session.String()], timeOrNone(l.TakenAt)
		}
		r.last = append(r.last, o)
	}
	slices.SortFunc(r.last, func(a, b lockOut) int { return strings.Compare(a.Pool, b.Pool) })
	r.at = time.Now()
	return r.last
}
