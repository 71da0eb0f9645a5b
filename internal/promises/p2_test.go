package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// auditSQL records what was committed, by triggers. The order that counts is that
// of the commits, which the server keeps (track_commit_timestamp). It is provable
// wherever one transaction had to wait for another's end, because the time is taken
// after a transaction's last statement and before it lets go of its locks: a take
// and a claim both lock the lock's row until they end, so that one of them has its
// time before the other has its lock. The same holds for a claim and anyone who takes
// waiting jobs away. All else happens after a client heard of a commit, and so later.
//
// The claim's transaction is made to last a little, because that is the time in
// which a take that does not wait for it would overtake it.
const auditSQL = `
CREATE SCHEMA audit;
CREATE TABLE audit.event (
    serial bigint GENERATED ALWAYS AS IDENTITY,
    xid xid NOT NULL DEFAULT pg_current_xact_id()::xid,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    what text NOT NULL,       -- take, claim, unclaim, end
    session uuid, epoch bigint, claim bigint, turn int, jobs bigint[]);
CREATE FUNCTION audit.lock() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit.event (what, session, epoch) VALUES ('take', NEW.holder, NEW.epoch);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON tenure.acquire_lock FOR EACH ROW
    WHEN (OLD.epoch IS DISTINCT FROM NEW.epoch) EXECUTE FUNCTION audit.lock();
CREATE FUNCTION audit.claim() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO audit.event (what, session, epoch, claim, turn, jobs)
        VALUES ('claim', NEW.session_id, current_setting('audit.epoch')::bigint, NEW.id, NEW.turn, NEW.job_ids);
        PERFORM pg_sleep(random() * 0.004);
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO audit.event (what, claim, turn, jobs)
        SELECT 'unclaim', OLD.id, OLD.turn, array_agg(id) FROM unnest(OLD.job_ids) AS id WHERE id <> ALL (NEW.job_ids)
        HAVING count(*) > 0;
    ELSE
        INSERT INTO audit.event (what, claim, turn, jobs) VALUES ('unclaim', OLD.id, OLD.turn, OLD.job_ids);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON tenure.claim FOR EACH ROW EXECUTE FUNCTION audit.claim();
CREATE FUNCTION audit.job() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit.event (what, turn, jobs) VALUES ('end', OLD.turn, ARRAY[OLD.id]);
    RETURN NULL;
END $$;
CREATE TRIGGER gone AFTER DELETE ON tenure.job FOR EACH ROW EXECUTE FUNCTION audit.job();
CREATE TRIGGER turned AFTER UPDATE ON tenure.job FOR EACH ROW WHEN (OLD.turn <> NEW.turn) EXECUTE FUNCTION audit.job();
`

// The checks. Each finds what must not be.
var auditChecks = map[string]string{
	"an epoch that is not higher than one before": `
		SELECT count(*) FROM (SELECT epoch, lag(epoch) OVER (ORDER BY pg_xact_commit_timestamp(xid)) AS before
		                      FROM audit.event WHERE what = 'take') t WHERE epoch <= before`,
	"a claim of an epoch after a later one was taken": `
		SELECT count(*) FROM audit.event c JOIN audit.event t ON t.what = 'take' AND t.epoch > c.epoch
		WHERE c.what = 'claim' AND (pg_xact_commit_timestamp(t.xid) < pg_xact_commit_timestamp(c.xid) OR t.serial < c.serial)`,
	"a claim by a session that did not take its epoch": `
		SELECT count(*) FROM audit.event c WHERE c.what = 'claim'
		AND NOT EXISTS (SELECT FROM audit.event t WHERE t.what = 'take' AND t.epoch = c.epoch AND t.session = c.session)`,
	"a job's turn in two live claims": `
		WITH claimed AS (
		    SELECT j.id, c.turn, c.claim, pg_xact_commit_timestamp(c.xid) AS at FROM audit.event c, unnest(c.jobs) AS j (id) WHERE c.what = 'claim'),
		freed AS (
		    SELECT j.id, u.claim, min(pg_xact_commit_timestamp(u.xid)) AS at FROM audit.event u, unnest(u.jobs) AS j (id)
		    WHERE u.what = 'unclaim' GROUP BY j.id, u.claim)
		SELECT count(*) FROM claimed a JOIN claimed b ON a.id = b.id AND a.turn = b.turn AND a.claim < b.claim
		LEFT JOIN freed f ON f.id = a.id AND f.claim = a.claim
		WHERE f.at IS NULL OR f.at >= b.at`,
	"a claim on a job whose turn had ended": `
		WITH claimed AS (
		    SELECT j.id, c.turn, pg_xact_commit_timestamp(c.xid) AS at FROM audit.event c, unnest(c.jobs) AS j (id) WHERE c.what = 'claim')
		SELECT count(*) FROM claimed c JOIN audit.event e ON e.what = 'end' AND e.jobs[1] = c.id AND e.turn = c.turn
		WHERE pg_xact_commit_timestamp(e.xid) <= c.at`,
	"a job's turn that ended twice": `
		SELECT count(*) FROM (SELECT FROM audit.event WHERE what = 'end' GROUP BY jobs[1], turn HAVING count(*) > 1) t`,
}

// TestP2OneClaimPerJob races everything that claims, takes, ends and removes on one
// pool and checks the promise on what was committed.
func TestP2OneClaimPerJob(t *testing.T) {
	t.Parallel()
	lasts := time.Duration(sized(10, 3)) * time.Second
	server := pgtest.Server(t, devpg.Options{Settings: map[string]string{"track_commit_timestamp": "on"}})
	b := newTestbedOn(t, server, 1, 0)
	b.exec("p1", auditSQL)
	cfg, err := pgxpool.ParseConfig(b.cfg.Pools["p1"].DSN)
	require.NoError(t, err)
	cfg.MaxConns = 40
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer db.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	race := &race{t: t, db: db, done: map[string]*atomic.Int64{}}
	for _, what := range []string{"takes", "robberies", "claims", "fenced", "removed", "finished", "in tx", "lost", "returned", "cancelled", "reaped", "swept", "timers"} {
		race.done[what] = &atomic.Int64{}
	}
	var group sync.WaitGroup
	// Two acquirers share each session: one of them is the other's earlier term, whose
	// claims are late.
	for i := range 5 {
		s := &racingSession{race: race, member: fmt.Sprintf("m%d", i)}
		s.open(ctx)
		group.Go(func() { s.beat(ctx) })
		for range 2 {
			group.Go(func() { s.acquire(ctx) })
		}
	}
	group.Go(func() { race.enqueue(ctx) })
	for range 2 {
		group.Go(func() { race.cancel(ctx) })
	}
	timer(t, lasts)
	for ctx.Err() == nil && race.unseen() { // a slow machine needs longer for what is rare
		timer(t, 100*time.Millisecond)
	}
	cancel()
	group.Wait()
	race.runs.Wait()

	for what, n := range race.done {
		t.Logf("%s: %d", what, n.Load())
		require.NotZero(t, n.Load(), "nothing was proved about %s", what)
	}
	b.exec("p1", "CREATE INDEX ON audit.event (what, (jobs[1]), turn); CREATE INDEX ON audit.event (what, epoch); ANALYZE audit.event")
	for what, sql := range auditChecks {
		require.Zero(t, b.count("p1", sql), what)
	}
}

// unseen tells whether something has not happened yet.
func (r *race) unseen() bool {
	for _, n := range r.done {
		if n.Load() == 0 {
			return true
		}
	}
	return false
}

// race is the state that the racers of TestP2OneClaimPerJob share.
type race struct {
	t    *testing.T
	db   *pgxpool.Pool
	done map[string]*atomic.Int64
	runs sync.WaitGroup
}

// failed tells whether err is one that a race does not explain.
func (r *race) failed(ctx context.Context, err error) bool {
	var pg *pgconn.PgError
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case errors.As(err, &pg) && pg.Code == "40P01", errors.Is(err, store.ErrLocked): // everybody answers both by trying again
		return true
	}
	r.t.Errorf("%v", err)
	return true
}

var raceKinds = store.KindsOf([]string{"k"})

func (r *race) enqueue(ctx context.Context) {
	for ctx.Err() == nil {
		jobs := make([]store.NewJob, 20)
		for i := range jobs {
			jobs[i] = store.NewJob{Tenant: fmt.Sprintf("t%d", i%3), Queue: "default", Kind: "k", Payload: []byte("{}")}
			if i%5 == 0 {
				jobs[i].DueIn = time.Duration(rand.IntN(50)+1) * time.Millisecond
			}
		}
		err := pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			return store.EnqueueMany(ctx, tx, 1, jobs)
		})
		r.failed(ctx, err)
		pause(ctx, 20*time.Millisecond)
	}
}

// cancel cancels jobs that wait, and so races with the claims on them.
func (r *race) cancel(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		var id int64
		err := r.db.QueryRow(ctx, "SELECT id FROM tenure.job ORDER BY random() LIMIT 1").Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		} else if err == nil {
			var running bool
			running, err = store.Cancel(ctx, r.db, job.ID(id), false)
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			} else if err == nil && !running {
				r.done["cancelled"].Add(1)
			}
		}
		r.failed(ctx, err)
		pause(ctx, time.Millisecond*time.Duration(rand.IntN(30))+5*time.Since(began)) // on a slow machine claims are slow, too
	}
}

// racingSession is one process' session; its methods do what package acquisition
// does, in a greater hurry.
type racingSession struct {
	race   *race
	member string

	mu    sync.Mutex
	id    uuid.UUID      // guarded by mu
	known map[int64]bool // guarded by mu; claims whose INSERT was answered, or is on its way
	doing int            // guarded by mu; INSERTs on their way
}

const (
	raceLockTTL    = 300 * time.Millisecond
	raceSessionTTL = 400 * time.Millisecond
)

func (s *racingSession) open(ctx context.Context) {
	id := uuid.New()
	err := store.OpenSession(ctx, s.race.db, store.Session{ID: id, Node: s.member, Member: s.member, Kinds: []string{"k"}}, raceSessionTTL)
	if s.race.failed(ctx, err) {
		return
	}
	s.mu.Lock()
	s.id, s.known = id, map[int64]bool{}
	s.mu.Unlock()
}

func (s *racingSession) session() uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// beat says that the session lives, and now and then forgets to for too long.
func (s *racingSession) beat(ctx context.Context) {
	for ctx.Err() == nil {
		wait := raceSessionTTL / 5
		if rand.IntN(10) == 0 {
			wait = 3 * raceSessionTTL
		}
		pause(ctx, wait)
		switch _, err := store.BeatSession(ctx, s.race.db, s.session(), raceSessionTTL); {
		case errors.Is(err, store.ErrSessionLost):
			s.open(ctx)
		default:
			s.race.failed(ctx, err)
		}
	}
}

// acquire takes the lock, by robbery if need be, and claims for a while.
func (s *racingSession) acquire(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		l, err := store.ReadLock(ctx, s.race.db)
		if s.race.failed(ctx, err) || err != nil {
			continue
		}
		if l.Holder != "" && l.Remaining > 0 && rand.IntN(8) > 0 { // mostly, a holder is left alone for a while
			pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond+10*time.Since(began)) // longer where everything takes longer
			continue
		}
		c := store.Claimant{Session: s.session(), Member: s.member, SeenSeq: l.RenewSeq, HolderGone: rand.IntN(2) == 0}
		mine, took, err := store.TakeLock(ctx, s.race.db, c, raceLockTTL)
		if s.race.failed(ctx, err) || err != nil {
			continue
		}
		if !mine {
			pause(ctx, time.Duration(rand.IntN(30))*time.Millisecond)
			continue
		}
		s.race.done["takes"].Add(1)
		if l.Holder != "" && l.Session != c.Session {
			s.race.done["robberies"].Add(1)
		}
		s.term(ctx, store.Fence{Session: c.Session, Epoch: took.Epoch, Incarnation: took.Incarnation})
	}
}

// errAnswerLost stands for a claim that was committed without its claimant knowing.
var errAnswerLost = errors.New("the answer was lost")

// flown is a claimed turn of a job.
type flown struct {
	id   job.ID
	turn int32
}

// term claims until the lock is lost or somebody else should have it.
func (s *racingSession) term(ctx context.Context, f store.Fence) {
	r := s.race
	flight, err := s.load(ctx, f)
	if err != nil {
		return
	}
	conn, err := r.db.Acquire(ctx)
	if r.failed(ctx, err) || err != nil {
		return
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET audit.epoch = '%d'", f.Epoch)); r.failed(ctx, err) || err != nil {
		return
	}
	var mu sync.Mutex
	ended := map[flown]bool{} // guarded by mu; to be taken out of flight
	for range 20 + rand.IntN(60) {
		mu.Lock()
		for e := range ended {
			delete(flight, e)
		}
		clear(ended)
		mu.Unlock()
		switch rand.IntN(12) {
		case 0:
			_, err := store.RenewLock(ctx, r.db, f, raceLockTTL, raceSessionTTL)
			if err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrSessionLost) {
				r.failed(ctx, err)
			}
			// The answer makes no difference: the fence alone is what is tested.
		case 1:
			s.reap(ctx, f)
			continue
		case 2:
			if _, err := store.FireTimers(ctx, r.db, f, 50); !r.failed(ctx, err) {
				r.done["timers"].Add(1)
			}
		}
		lanes, err := store.Lanes(ctx, conn, 100)
		if r.failed(ctx, err) || err != nil {
			return
		}
		if len(lanes) == 0 {
			pause(ctx, time.Millisecond)
			continue
		}
		var req store.PageRequest
		for _, l := range lanes {
			req.Add(l, 0, 200)
		}
		page, err := store.ReadPage(ctx, conn, &req, raceKinds, false)
		if r.failed(ctx, err) || err != nil {
			return
		}
		var records []job.Record
		var ids []int64
		var turns []int32
		for _, w := range page.Jobs {
			if !flight[flown{w.Record.ID, w.Record.Turn}] && len(ids) < 8 {
				records, ids, turns = append(records, w.Record), append(ids, int64(w.Record.ID)), append(turns, w.Record.Turn)
			}
		}
		if len(ids) == 0 {
			pause(ctx, time.Millisecond)
			continue
		}
		pause(ctx, time.Duration(rand.IntN(2000))*time.Microsecond) // the time in which others may get in between
		claims, err := s.claim(ctx, conn, f, page.Removals, ids, turns)
		switch {
		case errors.Is(err, store.ErrFenced):
			if l, err := store.ReadLock(ctx, conn); err == nil && l.Session == f.Session && l.Epoch == f.Epoch && l.Remaining > 0 {
				r.done["removed"].Add(1)
				continue
			}
			r.done["fenced"].Add(1)
			return
		case errors.Is(err, errAnswerLost):
			return
		case err != nil:
			r.failed(ctx, err)
			return
		}
		r.done["claims"].Add(1)
		for _, rec := range records {
			flight[flown{rec.ID, rec.Turn}] = true
		}
		r.runs.Go(func() {
			lasts := time.Duration(rand.IntN(30)) * time.Millisecond
			late := rand.IntN(10) == 0
			if late {
				lasts = 3 * raceSessionTTL
			}
			pause(ctx, lasts)
			over := s.run(f.Session, claims, records, late)
			mu.Lock()
			for _, e := range over {
				ended[e] = true
			}
			mu.Unlock()
		})
	}
	if rand.IntN(2) == 0 {
		r.failed(ctx, store.OfferLock(ctx, r.db, f, "", 0))
	}
}

// load learns what is in flight, and removes claims nobody knows of.
func (s *racingSession) load(ctx context.Context, f store.Fence) (map[flown]bool, error) {
	made, err := store.ClaimsMade(ctx, s.race.db, f.Session)
	if s.race.failed(ctx, err) || err != nil {
		return nil, err
	}
	s.mu.Lock()
	unknown := slices.DeleteFunc(made, func(id int64) bool { return s.known[id] })
	alone := s.doing == 0 && s.id == f.Session
	s.mu.Unlock()
	if alone && len(unknown) > 0 { // else the other acquirer of this session may get an answer any moment
		if err := store.ReleaseClaims(ctx, s.race.db, f.Session, unknown); s.race.failed(ctx, err) || err != nil {
			return nil, err
		}
		s.race.done["swept"].Add(int64(len(unknown)))
	}
	claims, err := store.Claims(ctx, s.race.db)
	if s.race.failed(ctx, err) || err != nil {
		return nil, err
	}
	flight := map[flown]bool{}
	for _, c := range claims {
		for _, id := range c.Jobs {
			flight[flown{id, c.Turn}] = true
		}
	}
	return flight, nil
}

// claim inserts a claim. Now and then the answer gets lost, so to speak.
func (s *racingSession) claim(ctx context.Context, conn *pgxpool.Conn, f store.Fence, removals int64, ids []int64, turns []int32) (map[int32]int64, error) {
	s.mu.Lock()
	s.doing++
	s.mu.Unlock()
	r := store.NewClaimRequest(removals, len(ids))
	for i, id := range ids {
		r.Add(job.ID(id), turns[i])
	}
	made, err := store.InsertClaims(context.WithoutCancel(ctx), conn, f, r)
	claimed := map[int32]int64{}
	for _, c := range made {
		claimed[c.Turn] = c.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing--
	if err != nil || s.id != f.Session {
		return claimed, err
	}
	if rand.IntN(20) == 0 {
		return nil, errAnswerLost
	}
	for _, id := range claimed {
		s.known[id] = true
	}
	return claimed, nil
}

// run brings claimed jobs to an end and returns what is not in flight any more. Those that
// took long enough for their session to be forgotten end in transactions of their own more
// often, because only these hear that their claim was lost.
func (s *racingSession) run(session uuid.UUID, claims map[int32]int64, records []job.Record, late bool) (over []flown) {
	r, ctx := s.race, context.Background()
	var finished []store.Finished
	var returnClaims, returnJobs []int64
	for i := range records {
		rec := &records[i]
		over = append(over, flown{rec.ID, rec.Turn})
		outcome := job.Outcome{State: job.Done}
		how := rand.IntN(8)
		if late && rand.IntN(2) == 0 {
			how = 3
		}
		switch how {
		case 0:
			outcome = job.Outcome{State: job.Retrying, Delay: time.Millisecond, Err: job.ErrTimeout}
		case 1:
			outcome = job.Outcome{State: job.Returned}
		case 2:
			returnClaims, returnJobs = append(returnClaims, claims[rec.Turn]), append(returnJobs, int64(rec.ID))
			r.done["returned"].Add(1)
			continue
		case 3:
			err := pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, store.FinishInTx(store.EndInTx{Turn: rec.Turn, IDs: []job.ID{rec.ID}, Keep: false, Node: "a"}))
				return store.TranslateFinish(err)
			})
			switch {
			case err == nil:
				r.done["in tx"].Add(1)
			case errors.Is(err, job.ErrClaimLost):
				r.done["lost"].Add(1)
			default:
				r.failed(ctx, err)
			}
			continue
		}
		finished = append(finished, store.Finished{Record: rec, Outcome: outcome})
		r.done["finished"].Add(1)
	}
	var ids []int64
	for _, id := range claims {
		ids = append(ids, id)
	}
	for tries := 0; ; tries++ {
		var err error
		if len(returnJobs) > 0 {
			err = store.ReturnUnstarted(ctx, r.db, session, returnClaims, returnJobs)
		}
		if err == nil {
			_, err = store.Finish(ctx, r.db, store.Runner{Session: session, Node: s.member}, false, finished, ids)
		}
		if err == nil || tries == 10 {
			r.failed(ctx, err)
			break
		}
	}
	s.mu.Lock()
	if s.id == session {
		for _, id := range ids {
			delete(s.known, id)
		}
	}
	s.mu.Unlock()
	return over
}

// reap takes back what sessions left that are expired. It does not observe them
// first, as package acquisition does: anyone who lives on must be fenced off anyway.
func (s *racingSession) reap(ctx context.Context, f store.Fence) {
	r := s.race
	sessions, err := store.Sessions(ctx, r.db)
	if r.failed(ctx, err) || err != nil {
		return
	}
	for _, other := range sessions {
		if other.State == "live" && other.Expired && other.ID != f.Session {
			_, err := store.DeclareDead(ctx, r.db, f, other.ID, other.Beat, false)
			r.failed(ctx, err)
		}
	}
	reaped, err := store.ReapClaims(ctx, r.db, f, 3, 0, true)
	if err != nil && !errors.Is(err, store.ErrFenced) {
		r.failed(ctx, err)
	}
	r.done["reaped"].Add(int64(reaped.Claims))
}

// TestP2NoGossip: two nodes that do not know of one another, and whose connections
// for the lock come and go, never run a job at the same time, nor one after the other.
func TestP2NoGossip(t *testing.T) {
	t.Parallel()
	const lasts = 6 * time.Second // or until the lock has changed hands
	b := newTestbed(t, 1, 3)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = 800*time.Millisecond, 150*time.Millisecond
	runs := newRuns()
	var proxies []*faultproxy.Proxy
	for _, name := range []string{"a", "b"} {
		cfg, proxy := b.behind(b.named(name), "p1")
		cfg.Execution.Workers = 16
		r := job.NewRegistry()
		job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
			defer runs.start(j.ID)()
			pause(ctx, time.Duration(j.Args.N)*time.Millisecond)
			return nil
		})
		b.start(cfg, r)
		proxies = append(proxies, proxy)
	}
	ctx, began := t.Context(), time.Now()
	client := b.client(b.cfg) // for nothing is to be enqueued by anyone who does not reach the database
	takes, total := map[int64]bool{}, 0
	for i := 0; time.Since(began) < lasts || len(takes) < 2; i++ {
		require.Less(t, time.Since(began), patience, "the lock does not change hands")
		entries := make([]tenure.Entry, 200)
		for k := range entries {
			entries[k] = tenure.Entry{Tenant: b.tenants()[k%3], Args: plain{rand.IntN(40)}}
		}
		added, err := client.EnqueueMany(t.Context(), entries)
		require.NoError(t, err)
		total += len(added)
		proxy := proxies[i%2]
		switch lock := func(app string) bool { return app == "tenure lock" }; i % 6 {
		case 0:
			proxy.Cut(lock)
		case 1, 2:
			proxy.Hold(lock)
			pause(ctx, b.cfg.Acquire.Lock.TTL*3/4+rand.N(b.cfg.Acquire.Lock.TTL)) // longer than it lives, or not
			proxy.Hold(nil)
		}
		pause(ctx, 200*time.Millisecond)
		l, err := store.ReadLock(t.Context(), b.db["p1"])
		require.NoError(t, err)
		takes[l.Epoch] = true
	}
	b.finished(client, total)
	starts, overlaps := runs.sum()
	require.Zero(t, overlaps)
	require.Equal(t, total, starts, "every job starts once")
	t.Logf("%d jobs, %d epochs", total, len(takes))
}
