package execution

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
)

// errUnable is returned when the pool's database could not do what every job needs. The
// job is not to blame: it is put off, and no attempt is charged.
var errUnable = errors.New("the pool's database is not able to run jobs now")

// errReadOnly is returned when a transaction could not write. Whether the database cannot,
// or the handler wanted it so, is found out afterwards.
var errReadOnly = errors.New("the transaction is read-only")

// blame adds to an error of the job's own transaction what the database has to do with it;
// failed: a statement of that transaction has failed.
func blame(err error, failed bool) error {
	var state interface{ SQLState() string } // of Postgres, or what was read of it
	if !errors.As(err, &state) {
		return err
	}
	switch code := state.SQLState(); {
	case code == "25006": // read_only_sql_transaction
		return errors.Join(errReadOnly, err)
	case failed && (code == "53100" || code == "58030"): // disk_full, io_error
		return errors.Join(errUnable, err)
	}
	return err
}

// readOnlyTimeout bounds the question whether a database can be written to.
const readOnlyTimeout = 2 * time.Second

// isReadOnly asks whether transactions on db are read-only if nobody says otherwise. If it
// does not answer, they are.
func isReadOnly(ctx context.Context, db *pgxpool.Pool) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readOnlyTimeout) // the run may have timed out meanwhile
	defer cancel()
	var on bool
	err := db.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&on)
	return on || err != nil
}

// noConnectionError is that there is no connection for a job.
type noConnectionError struct{ error }

func (e *noConnectionError) Unwrap() error { return e.error }

// refusesTenant tells whether the database refused to open a tenant's transaction for what
// the tenant is: its schema or its role. Any other error is that there is no connection.
func refusesTenant(err error) bool {
	var pg *pgconn.PgError
	var none *noConnectionError
	if errors.As(err, &none) || !errors.As(err, &pg) {
		return false
	}
	severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity)
	return severity == "ERROR" && blame(err, true) == err
}

// failed tells whether a statement of the transaction failed, or its connection.
func (h *handle) failed() bool {
	pc := h.conn.PgConn()
	return h.back || pc.IsClosed() || pc.TxStatus() == 'E'
}

// A job that its database is not able to run waits a little, and longer each time on this
// node. What looks like the database may be the job's own doing, as when it alone needs
// more room than there is: while others can be run it waits long. While none can, all of
// them should go on soon after that is over, and how few are tried is up to the room.
const (
	firstPutOff   = 250 * time.Millisecond
	longestPutOff = 5 * time.Minute // and as much again of jitter, as always
	longestForAll = longestPause / 2
	mostPutOff    = 10_000 // jobs that are remembered
	sayEvery      = 10 * time.Second
)

type putOffs struct {
	mu    sync.Mutex
	last  map[job.ID]time.Duration // guarded by mu; how long each was put off
	said  time.Time                // guarded by mu
	since time.Time                // guarded by mu; when last began
}

// next is how long a job is to wait now, and whether somebody should be told. Without
// its jitter the wait is no longer than longest.
func (p *putOffs) next(id job.ID, longest time.Duration) (wait time.Duration, say bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.last) >= mostPutOff || now.Sub(p.since) > 12*longestPutOff { // begin anew: only a few go on for so long
		p.last = nil
	}
	if p.last == nil {
		p.last, p.since = map[job.ID]time.Duration{}, now
	}
	d := min(max(2*p.last[id], firstPutOff), longest)
	p.last[id] = d
	if say = now.Sub(p.said) >= sayEvery; say {
		p.said = now
	}
	return d + rand.N(d), say
}

// longestWithout bounds a wait for a connection: that there is none is nobody's doing, and
// the next who asks learns it without asking the server; see routing.ErrCrowded.
const longestWithout = 4 * time.Second

func (r *run) putOff() job.Outcome {
	longest, pause := longestPutOff, longestPause
	if none := (*noConnectionError)(nil); errors.As(r.err, &none) {
		longest, pause = longestWithout/2, longestWithout
	}
	if r.workers.room.unable(r.claim.Owner, pause) {
		longest = min(longest, longestForAll)
	}
	wait, say := r.workers.putOffs.next(r.claim.Record.ID, longest)
	if say {
		r.workers.log.Warn("jobs are put off: their database is not able to run them; they try again by themselves, no attempt is charged",
			zap.Stringer("job", r.claim.Record.ID), zap.String("tenant", r.claim.Record.Tenant), zap.Duration("for", wait), zap.Error(r.err))
	}
	return job.Outcome{State: job.Snoozed, Delay: wait, Err: r.err}
}
