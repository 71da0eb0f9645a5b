package execution

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
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

// blame adds to an error of the job's own transaction what the database has to do with it.
func blame(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "25006": // read_only_sql_transaction
		return errors.Join(errReadOnly, err)
	case "53100", "58030": // disk_full, io_error
		return errors.Join(errUnable, err)
	}
	return err
}

// readOnlyTimeout bounds the question whether a database can be written to.
const readOnlyTimeout = 2 * time.Second

// isReadOnly asks whether transactions on db are read-only if nobody says otherwise. If it
// does not answer, they are.
func isReadOnly(ctx context.Context, db *pgxpool.Pool) bool {
	ctx, cancel := context.WithTimeout(ctx, readOnlyTimeout)
	defer cancel()
	var on bool
	err := db.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&on)
	return on || err != nil
}

// refusesTenant tells whether the database refused to open a tenant's transaction for what the
// tenant is: its schema or its role. Any other error is that there is no connection.
func refusesTenant(err error) bool {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	return errors.As(err, &pg) && !errors.As(err, &connect) && pg.Severity != "FATAL" && blame(err) == err
}

// failed tells whether a statement of the transaction failed, or its connection.
func (h *handle) failed() bool {
	pc := h.conn.Conn().PgConn()
	return pc.IsClosed() || pc.TxStatus() == 'E'
}

// putOff is how long a job waits for a database that is not able to run it.
const putOff = 2 * time.Second

// seldom lets one of many in a while.
type seldom struct{ last atomic.Int64 }

const sayEvery = 10 * time.Second

func (s *seldom) now() bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return now-last >= int64(sayEvery) && s.last.CompareAndSwap(last, now)
}

func (r *run) putOff() job.Outcome {
	if r.workers.unable.now() {
		r.workers.log.Warn("jobs are put off: their database is not able to run them; they try again by themselves, no attempt is charged",
			zap.Stringer("job", r.claim.Record.ID), zap.String("tenant", r.claim.Record.Tenant), zap.Error(r.err))
	}
	return job.Outcome{State: job.Snoozed, Delay: putOff + rand.N(putOff), Err: r.err}
}
