package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// verdict counts broken promises; see docs/guarantees.md for their numbers.
type verdict struct {
	Lost       int `json:"lost"`                  // P1: enqueued, and in no table
	Unfinished int `json:"unfinished"`            // P1, P9: still waiting long after all was mended
	Stale      int `json:"stale_claims"`          // P2: two live claims on one job, or one made by a session that had ended or did not hold the lock
	Epochs     int `json:"epochs_back"`           // P2: an epoch that is not above the one before
	Doubled    int `json:"doubled"`               // P3: a job with two effects, with two ends, or with an end and no effect
	Late       int `json:"late_starts"`           // P3: started after it was finished
	Overlaps   int `json:"overlaps"`              // P4: started again while the node that ran it lived
	Beside     int `json:"starts_beside_a_key"`   // P7: claimed while another job with the exclusive key was in flight
	Overtaken  int `json:"starts_out_of_turn"`    // P7: claimed while one with the key waited that was enqueued before, or was tried before
	Exceeded   int `json:"starts_beyond_a_limit"` // P8: claims by which more was in flight than a limit of a tenant's own says
	Hurried    int `json:"starts_beyond_a_rate"`  // P8: claims of one exclusive key, more in some time than its rate gives
	Hasty      int `json:"early_reaps"`           // P4: a session declared dead before its heartbeat could be seen to stand still
	Left       int `json:"claims_left"`           // P11: claims after every node had stopped
	Unclean    int `json:"unclean_stops"`         // P11: nodes that did not stop with exit 0, although all was mended
}

func (v verdict) broken() bool { return v != verdict{} }

// A job that was enqueued or finished in a fail-over's last seconds on the old primary
// is not promised anything: see docs/guarantees.md. It is counted apart, and what
// handlers wrote down in those seconds is left out of the judgement: the ids of what was
// lost are given to others. The times between fail-overs are judged one by one.

// breach is one broken promise.
type breach struct {
	promise string
	pool    string
	job     job.ID // 0: of no job
	at      time.Time
	what    string
}

// checker goes through what was written down, pool by pool.
type checker struct {
	Record
	chaos    *Cluster
	faults   []*Fault
	breaches []breach

	acked  map[job.ID]time.Time
	asked  map[job.ID]time.Time     // when the calls began that enqueued them
	runs   map[job.ID][]report.Line // starts, ends and fails in one time, in order
	adrift map[adrift]bool
	astray map[job.ID]bool // ran on, under a claim that may be gone, when the fail-over before that time was over
}

// adrift is a turn of a job that was started before the last fail-over was over. What its
// transaction wrote may not have been seen yet, by the time it gives for its end, by
// the node that claimed the job again; whether it ends once is judged all the same.
type adrift struct {
	id   job.ID
	turn int32
}

// check reads everything, counts broken promises into r, and tells the story of the
// first one.
func check(ctx context.Context, c *Cluster, faults []*Fault, alone bool, r *Result) error {
	lines, err := report.ReadJournals(c.Fleet.Dir)
	if err != nil {
		return err
	}
	var pools []*checker
	for _, pool := range c.Bed.Pools {
		here, err := readRecord(ctx, c.Bed, pool)
		if err != nil {
			return err
		}
		pools = append(pools, &checker{Record: here, chaos: c, faults: faults, acked: c.Load.Acked[pool], asked: c.Load.Asked})
	}
	judge(pools, lines, r)
	if alone {
		complaints, err := readComplaints(c.Fleet)
		if err != nil {
			return err
		}
		r.After = aftermaths(c, faults, lines, complaints)
	}
	return nil
}

// judge counts in r what is broken in the pools as they were read, and tells the story
// of what broke first.
func judge(pools []*checker, lines []report.Line, r *Result) {
	slices.SortStableFunc(lines, func(a, b report.Line) int { return a.At.Compare(b.At) })
	var first *breach
	var where *checker
	for _, k := range pools {
		k.judgeLedger(r)
		for _, s := range k.calm() {
			k.sortRuns(lines, s)
			k.judgeAllRuns(r)
		}
		for i := range k.breaches {
			if b := &k.breaches[i]; first == nil || b.at.Before(first.at) {
				first, where = b, k
			}
		}
	}
	if first != nil {
		where.tell(*first)
	}
}

// poolBits is where a pool's number begins in its job ids.
const poolBits = 47

// failovers are those of this pool's server.
func (k *checker) failovers() (all []*Fault) {
	for _, f := range k.faults {
		if !f.torn.IsZero() && f.Server == k.chaos.Bed.ServerOf(k.pool) {
			all = append(all, f)
		}
	}
	return all
}

// tornOff tells whether what was acknowledged at a time may be gone with an old primary.
func (k *checker) tornOff(at time.Time) bool {
	const slack = 100 * time.Millisecond // of answers under way
	for _, f := range k.failovers() {
		if at.After(f.torn.Add(-slack)) && at.Before(f.ended.Add(slack)) {
			return true
		}
	}
	return false
}

// span is a time; after zero there is no end to it.
type span struct{ from, to time.Time }

// calm lists the times in which nothing was torn off.
func (k *checker) calm() (all []span) {
	const slack = 100 * time.Millisecond // of answers under way
	var from time.Time
	for _, f := range k.failovers() {
		all = append(all, span{from, f.torn.Add(-slack)})
		from = f.ended.Add(500 * time.Millisecond)
	}
	return append(all, span{from: from})
}

// sortRuns keeps the lines of this pool's jobs in a time.
func (k *checker) sortRuns(lines []report.Line, s span) {
	number := slices.Index(k.chaos.Bed.Pools, k.pool) + 1 // as Migrate numbers them
	k.runs, k.astray = map[job.ID][]report.Line{}, map[job.ID]bool{}
	k.adrift = map[adrift]bool{}
	open := map[string]bool{} // started and not ended at that time, by member, job and turn
	for _, l := range lines {
		key := fmt.Sprint(l.Member, l.Job, l.Turn)
		switch {
		case int(l.Job>>poolBits) != number:
		case !s.to.IsZero() && l.At.After(s.to):
		case l.At.After(s.from):
			k.runs[l.Job] = append(k.runs[l.Job], l)
			k.astray[l.Job] = k.astray[l.Job] || open[key]
		default:
			open[key] = l.What == "start"
			k.adrift[adrift{l.Job, l.Turn}] = true
		}
	}
}

func (k *checker) breach(promise string, id job.ID, at time.Time, what string, args ...any) int {
	k.breaches = append(k.breaches, breach{promise, k.pool, id, at, fmt.Sprintf(what, args...)})
	return 1
}

// JudgeMoved counts what is broken where tenants were moved: their jobs may have ended in any
// pool, so all pools are judged as one.
func (c *Cluster) JudgeMoved(ctx context.Context) (r Result, err error) {
	k := &checker{chaos: c, acked: map[job.ID]time.Time{}}
	k.pool, k.Ends, k.Effects, k.Stands = "all pools", map[job.ID][]Ending{}, map[job.ID][]Ending{}, map[job.ID]string{}
	for _, pool := range c.Bed.Pools {
		here, err := readRecord(ctx, c.Bed, pool)
		if err != nil {
			return r, err
		}
		maps.Copy(k.acked, c.Load.Acked[pool])
		for id, e := range here.Ends {
			k.Ends[id] = append(k.Ends[id], e...)
		}
		for id, e := range here.Effects {
			k.Effects[id] = append(k.Effects[id], e...)
		}
		for id, where := range here.Stands {
			k.Stands[id] = where + " in " + pool
		}
	}
	lines, err := report.ReadJournals(c.Fleet.Dir)
	if err != nil {
		return r, err
	}
	k.judgeJobs(&r)
	r.Enqueued = len(k.acked)
	for _, l := range lines {
		if l.What == "start" {
			r.Starts++
			k.judgeStart(&r, l)
		}
	}
	for _, b := range k.breaches {
		c.Say("job %v %s: enqueued %v, ends %v, effects %v, stands %v", b.job, b.what, k.acked[b.job], k.Ends[b.job], k.Effects[b.job], k.Stands[b.job])
	}
	for id, e := range k.Ends {
		if e[0].isDead() {
			c.Say("job %v is a dead letter: %s", id, e[0].What)
		}
	}
	return r, nil
}

// judgeLedger checks every promise and counts.
func (k *checker) judgeLedger(r *Result) {
	k.judgeJobs(r)
	k.judgeClaims(r)
}

// judgeJobs: every job stands or has ended, once.
func (k *checker) judgeJobs(r *Result) {
	jobs := map[job.ID]bool{} // all that ever were
	for id, at := range k.acked {
		gone := len(k.Ends[id]) == 0 && k.Stands[id] == ""
		if gone && k.tornOff(at) {
			r.TornOff++
			continue
		}
		jobs[id] = true
		if gone {
			r.Lost += k.breach("P1", id, at, "was enqueued and is nowhere")
		}
	}
	for id, where := range k.Stands {
		jobs[id] = true
		r.Unfinished += k.breach("P1", id, k.chaos.began.Add(time.Hour), "is still %s although all was mended", where)
	}
	for id, ends := range k.Ends {
		jobs[id] = true
		k.judgeEnds(r, id, ends)
	}
	for id, effects := range k.Effects {
		if len(effects) > 1 {
			r.Doubled += k.breach("P3", id, effects[1].At, "has %d effects", len(effects))
		}
		if len(k.Ends[id]) == 0 {
			r.Doubled += k.breach("P3", id, effects[0].At, "has an effect but has not ended")
		}
	}
	r.Enqueued += len(jobs)
}

// judgeAllRuns judges what was sorted out.
func (k *checker) judgeAllRuns(r *Result) {
	for id, runs := range k.runs {
		if !k.astray[id] {
			k.judgeRuns(r, id, runs)
		}
	}
}

// judgeEnds: a job ends once, and one that writes has written by then.
func (k *checker) judgeEnds(r *Result, id job.ID, ends []Ending) {
	last := ends[len(ends)-1]
	if len(ends) > 1 {
		r.Doubled += k.breach("P3", id, last.At, "ended %d times", len(ends))
	}
	if last.isDead() {
		r.Dead++
		return
	}
	r.Finished++
	if last.Kind == (fleet.TxWork{}).Kind() && len(k.Effects[id]) == 0 {
		r.Doubled += k.breach("P3", id, last.At, "finished without its effect")
	}
}

// judgeRuns: no start after the end, and none while the node of an earlier one lives.
func (k *checker) judgeRuns(r *Result, id job.ID, runs []report.Line) {
	open := map[string]report.Line{} // started and not ended, by member and turn
	for _, l := range runs {
		key := fmt.Sprint(l.Member, l.Turn)
		if l.What != "start" {
			delete(open, key)
			continue
		}
		r.Starts++
		k.judgeStart(r, l)
		for _, other := range open {
			if k.lives(id, other, l.At) {
				r.Overlaps += k.breach("P4", id, l.At, "started on %s while it ran on %s, whose session stood", l.Member, other.Member)
			}
		}
		open[key] = l
	}
}

// judgeStart: no start after the end.
func (k *checker) judgeStart(r *Result, l report.Line) {
	if ends := k.Ends[l.Job]; len(ends) > 0 && l.At.After(ends[0].At) && !k.adrift[adrift{l.Job, ends[0].turn}] {
		r.Late += k.breach("P3", l.Job, l.At, "started on %s %v after its end", l.Member, l.At.Sub(ends[0].At))
	}
}

// lives tells whether the session that a run belongs to still stood at a time: its
// process had not died, and nobody had declared it dead.
func (k *checker) lives(id job.ID, run report.Line, at time.Time) bool {
	for _, l := range k.chaos.lives {
		if l.member == run.Member && !l.died.IsZero() && l.died.Before(at) {
			return false
		}
	}
	var session uuid.UUID
	for _, e := range k.events {
		if e.What == "claimed" && e.Turn == run.Turn && slices.Contains(e.Jobs, id) && e.At.Before(run.At) {
			session = e.Session
		}
	}
	for _, e := range k.events {
		if e.Session == session && (e.What == "dead" || e.What == "left") && e.At.Before(at) {
			return false
		}
	}
	return true
}

// judgeClaims: a job in one turn is in one claim at a time, a session that has ended
// claims nothing, no exclusive key is passed over and no limit exceeded, epochs rise, and nothing is claimed
// in the end.
func (k *checker) judgeClaims(r *Result) {
	type turn struct {
		job  job.ID
		turn int32
	}
	holder := map[turn]int64{} // the live claim on it
	claims := map[int64]report.AuditEvent{}
	ended := map[uuid.UUID]time.Time{}
	epoch := int64(0)
	full := map[string]time.Time{} // when the bucket of a key's rate is full again
	for _, e := range k.events {
		switch e.What {
		case "claimed":
			if at, over := ended[e.Session]; over && e.At.After(at) {
				r.Stale += k.breach("P2", first(e.Jobs), e.At, "was claimed by session %v, which had ended", e.Session)
			}
			if !e.Given && e.Session != e.Holder {
				r.Stale += k.breach("P2", first(e.Jobs), e.At, "was claimed by session %v, while %v held the lock", e.Session, e.Holder)
			}
			for _, id := range e.Jobs {
				if other, held := holder[turn{id, e.Turn}]; held {
					r.Stale += k.breach("P2", id, e.At, "was claimed by claim %d while claim %d stood", e.Claim, other)
				}
				holder[turn{id, e.Turn}] = e.Claim
			}
			claims[e.Claim] = e
		case "excess":
			r.Exceeded += k.breach("P8", first(e.Jobs), e.At, "was claimed beyond a limit, %s in flight", e.Member)
		case "beside":
			r.Beside += k.breach("P7", e.Jobs[0], e.At, "was claimed beside job %v of its %s", e.Jobs[1], e.Member)
		case "overtaken": // of calls that overlapped either may come first, and nobody knows when one that failed came
			if done, known := k.acked[e.Jobs[1]]; known && done.Before(k.asked[e.Jobs[0]]) {
				r.Overtaken += k.breach("P7", e.Jobs[0], e.At, "was claimed before it was its turn: job %v of its %s was before it", e.Jobs[1], e.Member)
			}
		case "keyed":
			const slack = 20 * time.Millisecond // of clocks
			if full[e.Member].Before(e.At) {
				full[e.Member] = e.At
			}
			full[e.Member] = full[e.Member].Add(time.Second / keyRate)
			if full[e.Member].Sub(e.At) > keyBurst*time.Second/keyRate+slack {
				r.Hurried += k.breach("P8", first(e.Jobs), e.At, "was claimed beyond the rate of its %s", e.Member)
			}
		case "shrunk", "released":
			was := claims[e.Claim]
			for _, id := range was.Jobs {
				if !slices.Contains(e.Jobs, id) && holder[turn{id, e.Turn}] == e.Claim {
					delete(holder, turn{id, e.Turn})
				}
			}
			was.Jobs = e.Jobs
			claims[e.Claim] = was
			if e.What == "released" {
				delete(claims, e.Claim)
			}
		case "dead", "left":
			ended[e.Session] = e.At
			if quiet := k.silence(e); e.What == "dead" && quiet < k.patience() {
				r.Hasty += k.breach("P4", 0, e.At, "session %v of %s was declared dead after only %v without a heartbeat", e.Session, e.Member, quiet)
			}
		case "taken":
			if e.Epoch <= epoch {
				r.Epochs += k.breach("P2", 0, e.At, "the lock was taken with epoch %d after %d", e.Epoch, epoch)
			}
			epoch = e.Epoch
		}
	}
	for _, claim := range claims {
		r.Left += k.breach("P11", first(claim.Jobs), claim.At, "is in claim %d although every node has stopped", claim.Claim)
	}
}

// first is one job of a claim; 0: it lists none.
func first(ids []job.ID) job.ID {
	if len(ids) == 0 {
		return 0
	}
	return ids[0]
}

// patience is the least time that a heartbeat must have been missing. Of an outage
// that only the reaper had, a third of a session's time to live may count.
func (k *checker) patience() time.Duration { return k.chaos.Bed.Config.Acquire.Session.TTL * 2 / 3 }

// silence is how long a session did not show that it lives although it could have: the
// times are left out in which the database was down for everybody.
func (k *checker) silence(e report.AuditEvent) time.Duration {
	quiet := e.At.Sub(e.Seen)
	for _, f := range k.faults {
		if f.Server != k.chaos.Bed.ServerOf(k.pool) || f.stopped.IsZero() {
			continue
		}
		from := slices.MaxFunc([]time.Time{f.stopped, e.Seen}, time.Time.Compare)
		to := slices.MinFunc([]time.Time{f.ended, e.At}, time.Time.Compare)
		quiet -= max(0, to.Sub(from))
	}
	return quiet
}
