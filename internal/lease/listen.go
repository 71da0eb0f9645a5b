package lease

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// hearing hears notifications on a keeper's connection, and tells what of them concerns others. It is
// used by who has the connection.
type hearing struct {
	events Events
	kept   *kept // decides how long a call may take
	log    *zap.Logger

	deafLogged time.Time
	conn       *pgx.Conn
	asked      bool // to listen
	listens    bool
	missed     bool // since it listened last, as there was too much to hear

	jobs   []job.ID  // somebody says that they were enqueued
	look   bool      // somebody says something else
	looked time.Time // when they were looked up last
	second time.Time // when the second began
	count  int       // in which so many notifications were heard
}

const (
	// lookUpEvery is how often jobs are looked up: those of the time between together.
	lookUpEvery = 2 * time.Millisecond
	// mostLookedUp bounds how many jobs are looked up at a time.
	mostLookedUp = 1000
	// mostHeard bounds the notifications that are heard in a second. Everybody who can connect may send them, and a
	// renewal's answer waits behind them. Ten thousand cost a twentieth of a processor.
	mostHeard = 10_000
	// deafLogEvery is how often the log says that there were more.
	deafLogEvery = 10 * time.Minute
	// timerLook is how soon the timers are looked at when nobody says which one was set.
	timerLook = 50 * time.Millisecond
)

// note takes in a notification; false: there are too many.
func (h *hearing) note(payload string, now time.Time) bool {
	if now.Sub(h.second) >= time.Second {
		h.second, h.count = now, 0
	}
	h.count++
	if id, err := strconv.ParseInt(payload, 10, 64); err == nil && id > 0 {
		h.jobs = append(h.jobs, job.ID(id))
	} else {
		h.look = true
	}
	return h.count <= mostHeard
}

// hasNews tells whether something has to be looked up.
func (h *hearing) hasNews() bool { return h.look || len(h.jobs) > 0 }

// hear hears notifications until ctx ends, or somebody wants something else; false: the connection
// does not listen, or not any more.
func (h *hearing) hear(ctx context.Context, conn *pgx.Conn, wanted func() bool) bool {
	if conn == nil || h.conn != conn || !h.listens || conn.IsClosed() {
		return false
	}
	for !wanted() {
		if h.hasNews() && (len(h.jobs) >= mostLookedUp || time.Since(h.looked) >= lookUpEvery) {
			h.lookUp(ctx)
		}
		wait, done := ctx, context.CancelFunc(func() {})
		if h.hasNews() {
			wait, done = context.WithDeadline(ctx, h.looked.Add(lookUpEvery))
		}
		n, err := conn.WaitForNotification(wait)
		done()
		switch {
		case err == nil && !h.note(n.Payload, time.Now()):
			h.stop(ctx)
			return false
		case err != nil && (ctx.Err() != nil || wait.Err() == nil):
			return !conn.IsClosed() // if it is, the next call finds out
		}
	}
	return true
}

// lookUp tells where the jobs wait that somebody says were enqueued. What is told of no job, as by a program
// of another version, is taken to say that there is work somewhere.
func (h *hearing) lookUp(ctx context.Context) {
	jobs, look := h.jobs[:min(len(h.jobs), mostLookedUp)], h.look
	h.jobs, h.look, h.looked = h.jobs[len(jobs):], false, time.Now()
	if len(jobs) > 0 {
		// Who wants the connection interrupts a wait, and not this, which would cost the connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.kept.boundCall(true))
		defer cancel()
		lanes, dueIn, err := store.Notified(ctx, h.conn, jobs)
		if len(lanes) > 0 {
			h.events.WorkSeen(lanes, 0)
		}
		if dueIn > 0 {
			h.events.WorkSeen(nil, dueIn)
		}
		look = look || err != nil
	}
	if look {
		h.events.WorkSeen(nil, 0)
		h.events.WorkSeen(nil, timerLook)
	}
}

// stop stops listening until the next renewal, as there is more to hear than helps anybody: until then, and
// then, the holder looks by itself.
func (h *hearing) stop(ctx context.Context) {
	level := zapcore.DebugLevel
	if time.Since(h.deafLogged) >= deafLogEvery {
		level, h.deafLogged = zapcore.WarnLevel, time.Now()
	}
	h.log.Log(level, "notifications of enqueued jobs come too fast, and are not heard until the next renewal: jobs that SQL enqueues may start seconds later; look for who executes NOTIFY tenure_enqueued, or enqueue many jobs in a transaction",
		zap.Int("most_per_second", mostHeard))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.kept.boundCall(true)) // as in lookUp
	defer cancel()
	err := store.Listen(ctx, h.conn, false)
	cancel()
	for err == nil { // what was sent before
		_, err = h.conn.WaitForNotification(ctx)
	}
	h.reset(h.conn)
	h.missed = true
	h.events.WorkSeen(nil, 0)
}

// reset forgets what was heard, on whatever connection.
func (h *hearing) reset(conn *pgx.Conn) {
	*h = hearing{events: h.events, kept: h.kept, log: h.log, deafLogged: h.deafLogged, conn: conn}
}

// set makes the server send notifications on the connection, or stop that.
func (h *hearing) set(ctx context.Context, conn *pgx.Conn, on bool) {
	if h.conn != conn {
		h.reset(conn)
	}
	if h.asked == on {
		return
	}
	err := store.Listen(ctx, conn, on)
	h.asked, h.listens = on, on && err == nil // not to be tried, and logged, with every renewal
	if err != nil {
		h.log.Warn("what is enqueued by SQL alone may start seconds later: its notifications cannot be heard", zap.Error(err))
	}
	if on && h.missed {
		h.missed = false
		h.events.WorkSeen(nil, 0)
		h.events.WorkSeen(nil, timerLook)
	}
}
