package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

const maxLosses = store.MaxLosses

// recovery has jobs wait again whose sessions have ended, and whose claims from before this
// term are over.
type recovery struct {
	place
	*work
	lock  *holding
	cfg   Config
	sweep *duty // of the rereader

	olderDuty  duty
	heartbeats heartbeats
	reaping    bool // a session with claims has not been heard of for a while
	locked     int  // jobs of ended sessions whose rows somebody had locked at the last reaping
}

// listDuties are those of recovery.
func (r *recovery) listDuties(now time.Time) []*duty {
	r.olderDuty = duty{name: "older claims", every: fixed(tendEvery), due: now.Add(tendEvery), do: r.refreshOlder}
	return []*duty{{name: "ended sessions", every: fixed(r.cfg.Session.TTL / 10), due: now.Add(burst), do: r.reapSessions}, &r.olderDuty}
}

// refreshOlder finds out which claims from before this term are over, and what else has ended of which
// nobody has told.
func (r *recovery) refreshOlder(ctx context.Context) error {
	if r.inFlight.HasOlder() {
		claims, err := store.Claims(ctx, r.pool.Jobs())
		if err != nil {
			return err
		}
		if r.inFlight.RefreshOlder(claims) {
			r.sweep.ask() // a job that was given back stands behind the cursors
		}
	}
	return r.endUntold(ctx)
}

// endUntold finds out which runs have ended that others wait for, though the claims go on that they
// are in: an end does not take the job out of its claim.
func (r *recovery) endUntold(ctx context.Context) error {
	runs := append(r.inFlight.ListUntold(r.keys.ListHolding()), r.inFlight.ListUntold(r.gates.ListCounted())...)
	if len(runs) == 0 {
		return nil
	}
	ids, turns := make([]job.ID, len(runs)), make([]int32, len(runs))
	for i, run := range runs {
		ids[i], turns[i] = run.ID, run.Turn
	}
	over, err := store.RunsOver(ctx, r.pool.Jobs(), ids, turns)
	if err != nil || len(over) == 0 {
		return err
	}
	ended := make([]schedule.Run, len(over))
	for i, at := range over {
		ended[i] = runs[at]
	}
	r.inFlight.EndUntold(ended...)
	return nil
}

// reapSessions takes jobs back from sessions that ended. A live one is declared dead only
// when the database's clock says that it expired and this node has itself seen its heartbeat
// stand still for the whole time to live: after an outage of the database every session looks
// expired, and a jump of its clock proves nothing. Neither does it prove that a session lives
// whose heartbeat has stood still for several times as long: the clock may have been set
// back.
func (r *recovery) reapSessions(ctx context.Context) error {
	r.reaping = false
	if !r.inFlight.OthersClaim(r.lock.session.ID()) {
		return nil
	}
	sessions, err := store.Sessions(ctx, r.pool.Jobs())
	if err != nil {
		return err
	}
	now := time.Now()
	defer r.heartbeats.prune(now, 4*r.cfg.Session.TTL)
	ended := 0
	for _, s := range sessions {
		if s.ID == r.lock.session.ID() {
			continue
		}
		if s.State == "live" {
			dead, err := r.declareDead(ctx, s, now)
			if err != nil {
				return err
			}
			if !dead {
				continue
			}
		}
		ended += s.Claims
	}
	if ended == 0 {
		r.locked = 0
		return nil
	}
	return r.reapClaims(ctx)
}

// declareDead declares a live session dead if it is.
func (r *recovery) declareDead(ctx context.Context, s store.Session, now time.Time) (dead bool, err error) {
	still := r.heartbeats.stillFor(s.ID, s.Beat, now, countedGap(r.cfg))
	// A successor would have to watch it from the beginning.
	r.reaping = r.reaping || s.Claims > 0 && still > 2*r.cfg.Session.HeartbeatEvery
	outlasted := still >= outlastFactor*max(r.cfg.Session.TTL, s.TTL)
	if still < r.cfg.Session.TTL || !s.Expired && !outlasted {
		return false, nil
	}
	dead, err = store.DeclareDead(ctx, r.pool.Jobs(), r.lock.Fence(), s.ID, s.Beat, outlasted)
	if err != nil || !dead {
		return false, err
	}
	delete(r.heartbeats, s.ID)
	r.log.Warn("session declared dead: its node has died, or does not reach the database; its jobs run again", zap.String("node", s.Node), zap.Stringer("session", s.ID),
		zap.Int("jobs", r.inFlight.CountOf(s.ID)), zap.Bool("held_lock", r.lock.from != "" && s.Member == r.lock.from), zap.Time("last_seen", s.LastSeen), zap.Bool("clock_set_back", !s.Expired))
	return true, nil
}

// reapClaims goes through the claims of ended sessions once. What somebody has locked is left
// for the next time.
func (r *recovery) reapClaims(ctx context.Context) error {
	var total store.Reaped
	for {
		part, err := store.ReapClaims(ctx, r.pool.Jobs(), r.lock.Fence(), maxLosses, total.Last, r.keeper.KeepsFinished())
		if errors.Is(err, store.ErrFenced) {
			return lease.ErrLockLost
		}
		if err != nil {
			return err
		}
		total.Back += part.Back
		total.Dead += part.Dead
		total.Cancelled += part.Cancelled
		total.Held += part.Held
		if part.Claims == 0 {
			break
		}
		total.Last = part.Last
	}
	if total.Held > r.locked {
		r.log.Warn("jobs of ended sessions cannot be taken back yet: somebody has locked their rows", zap.Int("jobs", total.Held))
	}
	r.locked = total.Held
	if total.Back+total.Dead+total.Cancelled == 0 {
		return store.ForgetSessions(ctx, r.pool.Jobs())
	}
	r.metrics.reaped.WithLabelValues(r.pool.Name, "back").Add(float64(total.Back))
	r.metrics.reaped.WithLabelValues(r.pool.Name, "dead").Add(float64(total.Dead))
	r.metrics.reaped.WithLabelValues(r.pool.Name, "cancelled").Add(float64(total.Cancelled))
	r.log.Info("jobs taken back from ended sessions", zap.Int("jobs", total.Back), zap.Int("dead_letters", total.Dead), zap.Int("cancelled", total.Cancelled))
	r.olderDuty.ask()
	r.sweep.ask()
	return store.ForgetSessions(ctx, r.pool.Jobs())
}

// heartbeats is what this node itself has seen of other sessions' heartbeats.
type heartbeats map[uuid.UUID]heartbeatSeen

type heartbeatSeen struct {
	beat  int64
	at    time.Time     // the last time
	still time.Duration // how long it was seen to stand still
}

// stillFor notes a heartbeat and returns how long it was seen to stand still. Of the time
// between two observations no more than most counts: while this node could not look, the
// database may have been away for everybody.
func (h heartbeats) stillFor(session uuid.UUID, beat int64, now time.Time, most time.Duration) time.Duration {
	seen, ok := h[session]
	if !ok || seen.beat != beat {
		h[session] = heartbeatSeen{beat: beat, at: now}
		return 0
	}
	seen.still += min(now.Sub(seen.at), most)
	seen.at = now
	h[session] = seen
	return seen.still
}

// prune forgets what was not seen for long.
func (h heartbeats) prune(now time.Time, after time.Duration) {
	for id, seen := range h {
		if now.Sub(seen.at) > after {
			delete(h, id)
		}
	}
}

// countedGap is how much of the time between two observations of a heartbeat counts.
func countedGap(cfg Config) time.Duration { return cfg.Session.TTL / 3 }

// outlastFactor is for how many times its time to live a heartbeat, or a lock, has to be
// seen to stand still before the database's clock does not count any more.
const outlastFactor = 3
