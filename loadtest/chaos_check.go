package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// verdict counts broken promises; see docs/guarantees.md for their numbers.
type verdict struct {
	Lost       int `json:"lost"`          // P1: enqueued, and in no table
	Unfinished int `json:"unfinished"`    // P1, P9: still waiting long after all was mended
	Stale      int `json:"stale_claims"`  // P2: two live claims on one job, or one made by a session that had ended or did not hold the lock
	Epochs     int `json:"epochs_back"`   // P2: an epoch that is not above the one before
	Doubled    int `json:"doubled"`       // P3: a job with two effects, with two ends, or with an end and no effect
	Late       int `json:"late_starts"`   // P3: started after it was finished
	Overlaps   int `json:"overlaps"`      // P4: started again while the node that ran it lived
	Hasty      int `json:"early_reaps"`   // P4: a session declared dead before its heartbeat could be seen to stand still
	Left       int `json:"claims_left"`   // P11: claims after every node had stopped
	Unclean    int `json:"unclean_stops"` // P11: nodes that did not stop with exit 0, although all was mended
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
	chaos    *chaos
	faults   []*fault
	pool     string
	breaches []breach

	acked   map[job.ID]time.Time
	events  []auditEvent
	runs    map[job.ID][]line // starts, ends and fails in one time, in order
	ends    map[job.ID][]ending
	effects map[job.ID][]ending
	stands  map[job.ID]string // where a job is that has not ended
	adrift  map[adrift]bool
	astray  map[job.ID]bool // ran on, under a claim that may be gone, when the fail-over before that time was over
}

// adrift is a turn of a job that was started before the last fail-over was over. What its
// transaction wrote may not have been seen yet, by the time it gives for its end, by
// whoever claimed the job anew; whether it ends once is judged all the same.
type adrift struct {
	id   job.ID
	turn int32
}

// ending is a row that says that a run came to its end.
type ending struct {
	at   time.Time
	turn int32
	what string
	kind string
}

// check reads everything, counts broken promises into r, and tells the story of the
// first one.
func (c *chaos) check(ctx context.Context, faults []*fault, alone bool, r *chaosResult) error {
	lines, err := readJournals(c.fleet.dir)
	if err != nil {
		return err
	}
	var pools []*checker
	for _, pool := range c.bed.pools {
		k := &checker{chaos: c, faults: faults, pool: pool, acked: c.load.acked[pool]}
		if err := k.read(ctx); err != nil {
			return fmt.Errorf("check %s: %w", pool, err)
		}
		pools = append(pools, k)
	}
	judge(pools, lines, r)
	if alone {
		complaints, err := c.readComplaints()
		if err != nil {
			return err
		}
		r.After = c.aftermaths(faults, lines, complaints)
	}
	return nil
}

// judge counts in r what is broken in the pools as they were read, and tells the story
// of what broke first.
func judge(pools []*checker, lines []line, r *chaosResult) {
	slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
	var first *breach
	var where *checker
	for _, k := range pools {
		k.judge(r)
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

// read takes in a pool's ledger, its tenants' effects and its audit.
func (k *checker) read(ctx context.Context) error {
	conn, err := k.chaos.bed.connect(ctx, k.pool)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if k.events, err = readAudit(ctx, k.pool, conn); err != nil {
		return err
	}
	k.ends, err = endings(ctx, conn, `SELECT id, finished_at, turn, outcome, kind FROM tenure.completed_job
		UNION ALL SELECT id, died_at, turn, 'dead: ' || error, kind FROM tenure.dead_letter_job`)
	if err != nil {
		return err
	}
	schemas, err := conn.Query(ctx, "SELECT schemaname FROM pg_tables WHERE tablename = 'effect'") // of moved tenants in several pools
	if err != nil {
		return err
	}
	effects, err := pgx.CollectRows(schemas, func(row pgx.CollectableRow) (sql string, err error) {
		err = row.Scan(&sql)
		return fmt.Sprintf("SELECT job_id, at, turn, member, '' FROM %s.effect", sql), err
	})
	if err != nil {
		return err
	}
	if k.effects, err = endings(ctx, conn, strings.Join(effects, " UNION ALL ")); err != nil {
		return err
	}
	standing, err := endings(ctx, conn, `SELECT id, created_at, turn, 'waiting', kind FROM tenure.job
		UNION ALL SELECT id, created_at, turn, 'a timer', kind FROM tenure.timer_job
		UNION ALL SELECT id, created_at, turn, 'suspended', kind FROM tenure.suspended_job`)
	k.stands = map[job.ID]string{}
	for id, e := range standing {
		k.stands[id] = e[0].what
	}
	return err
}

func endings(ctx context.Context, conn *pgx.Conn, sql string) (map[job.ID][]ending, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	all := map[job.ID][]ending{}
	var id job.ID
	var e ending
	_, err = pgx.ForEachRow(rows, []any{&id, &e.at, &e.turn, &e.what, &e.kind}, func() error {
		all[id] = append(all[id], e)
		return nil
	})
	return all, err
}

// poolBits is where a pool's number begins in its job ids.
const poolBits = 47

// failovers are those of this pool's server.
func (k *checker) failovers() (all []*fault) {
	for _, f := range k.faults {
		if !f.torn.IsZero() && f.Server == k.chaos.bed.serverOf(k.pool) {
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
func (k *checker) sortRuns(lines []line, s span) {
	number := slices.Index(k.chaos.bed.pools, k.pool) + 1 // as Migrate numbers them
	k.runs, k.astray = map[job.ID][]line{}, map[job.ID]bool{}
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

// judge checks every promise and counts.
func (k *checker) judge(r *chaosResult) {
	jobs := map[job.ID]bool{} // all that ever were
	for id, at := range k.acked {
		gone := len(k.ends[id]) == 0 && k.stands[id] == ""
		if gone && k.tornOff(at) {
			r.TornOff++
			continue
		}
		jobs[id] = true
		if gone {
			r.Lost += k.breach("P1", id, at, "was enqueued and is nowhere")
		}
	}
	for id, where := range k.stands {
		jobs[id] = true
		r.Unfinished += k.breach("P1", id, k.chaos.began.Add(time.Hour), "is still %s although all was mended", where)
	}
	for id, ends := range k.ends {
		jobs[id] = true
		k.judgeEnds(r, id, ends)
	}
	for id, effects := range k.effects {
		if len(effects) > 1 {
			r.Doubled += k.breach("P3", id, effects[1].at, "has %d effects", len(effects))
		}
		if len(k.ends[id]) == 0 {
			r.Doubled += k.breach("P3", id, effects[0].at, "has an effect but has not ended")
		}
	}
	k.judgeClaims(r)
	r.Enqueued += len(jobs)
}

// judgeAllRuns judges what was sorted out.
func (k *checker) judgeAllRuns(r *chaosResult) {
	for id, runs := range k.runs {
		if !k.astray[id] {
			k.judgeRuns(r, id, runs)
		}
	}
}

// judgeEnds: a job ends once, and one that writes has written by then.
func (k *checker) judgeEnds(r *chaosResult, id job.ID, ends []ending) {
	last := ends[len(ends)-1]
	if len(ends) > 1 {
		r.Doubled += k.breach("P3", id, last.at, "ended %d times", len(ends))
	}
	if strings.HasPrefix(last.what, "dead") {
		r.Dead++
		return
	}
	r.Finished++
	if last.kind == (txWork{}).Kind() && len(k.effects[id]) == 0 {
		r.Doubled += k.breach("P3", id, last.at, "finished without its effect")
	}
}

// judgeRuns: no start after the end, and none while the node of an earlier one lives.
func (k *checker) judgeRuns(r *chaosResult, id job.ID, runs []line) {
	open := map[string]line{} // started and not ended, by member and turn
	for _, l := range runs {
		key := fmt.Sprint(l.Member, l.Turn)
		if l.What != "start" {
			delete(open, key)
			continue
		}
		r.Starts++
		if ends := k.ends[id]; len(ends) > 0 && l.At.After(ends[0].at) && !k.adrift[adrift{id, ends[0].turn}] {
			r.Late += k.breach("P3", id, l.At, "started on %s %v after its end", l.Member, l.At.Sub(ends[0].at))
		}
		for _, other := range open {
			if k.lives(id, other, l.At) {
				r.Overlaps += k.breach("P4", id, l.At, "started on %s while it ran on %s, whose session stood", l.Member, other.Member)
			}
		}
		open[key] = l
	}
}

// lives tells whether the session that a run belongs to still stood at a time: its
// process had not died, and nobody had declared it dead.
func (k *checker) lives(id job.ID, run line, at time.Time) bool {
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
// claims nothing, epochs rise, and nothing is claimed in the end.
func (k *checker) judgeClaims(r *chaosResult) {
	type turn struct {
		job  job.ID
		turn int32
	}
	holder := map[turn]int64{} // the live claim on it
	claims := map[int64]auditEvent{}
	ended := map[uuid.UUID]time.Time{}
	epoch := int64(0)
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
func (k *checker) patience() time.Duration { return k.chaos.bed.cfg.Acquire.Session.TTL * 2 / 3 }

// silence is how long a session did not show that it lives although it could have: the
// times are left out in which the database was down for everybody.
func (k *checker) silence(e auditEvent) time.Duration {
	quiet := e.At.Sub(e.Seen)
	for _, f := range k.faults {
		if f.Server != k.chaos.bed.serverOf(k.pool) || f.stopped.IsZero() {
			continue
		}
		from, to := latest(f.stopped, e.Seen), e.At
		if f.ended.Before(to) {
			to = f.ended
		}
		quiet -= max(0, to.Sub(from))
	}
	return quiet
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tell prints what is known of a broken promise, in order of time.
func (k *checker) tell(b breach) {
	type entry struct {
		at   time.Time
		text string
	}
	var story []entry
	add := func(at time.Time, format string, args ...any) {
		if !at.IsZero() {
			story = append(story, entry{at, fmt.Sprintf(format, args...)})
		}
	}
	if b.job == 0 {
		add(b.at, "%s BROKEN: %s: %s", b.promise, b.pool, b.what)
	} else {
		add(b.at, "%s BROKEN: job %v of %s %s", b.promise, b.job, b.pool, b.what)
	}
	add(k.acked[b.job], "enqueued")
	of := map[int64]bool{} // claims on the job
	sessions := map[uuid.UUID]bool{}
	for _, e := range k.events {
		switch {
		case e.What == "claimed" && slices.Contains(e.Jobs, b.job):
			of[e.Claim], sessions[e.Session] = true, true
			add(e.At, "claim %d of session %v under epoch %d, turn %d, %d jobs", e.Claim, e.Session, e.Epoch, e.Turn, len(e.Jobs))
		case of[e.Claim] && e.Claim != 0:
			add(e.At, "claim %d %s", e.Claim, e.What)
		}
	}
	for _, e := range k.events {
		switch e.What {
		case "live", "dead", "left":
			if sessions[e.Session] {
				add(e.At, "session %v of %s is %s", e.Session, e.Member, e.What)
			}
		case "taken", "offered":
			add(e.At, "lock %s, %s, epoch %d", e.What, e.Member, e.Epoch)
		}
	}
	for _, l := range k.runs[b.job] {
		add(l.At, "handler on %s: %s, turn %d %s", l.Member, l.What, l.Turn, l.Why)
	}
	for _, e := range k.effects[b.job] {
		add(e.at, "effect by %s, turn %d", e.what, e.turn)
	}
	for _, e := range k.ends[b.job] {
		add(e.at, "ended: %s, turn %d", e.what, e.turn)
	}
	for _, l := range k.chaos.lives {
		add(l.born, "%s started", l.member)
		add(l.died, "%s killed", l.member)
	}
	for _, f := range k.faults {
		add(f.began, "fault: %v", f)
		add(f.ended, "mended: %v", f)
	}
	slices.SortStableFunc(story, func(a, b entry) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for _, e := range story {
		k.chaos.print(e.at, e.text)
	}
}
