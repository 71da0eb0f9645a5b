package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// auditSQL makes a pool's database write down what becomes of its claims, sessions
// and lock, in the transactions that change them: claims are gone when their jobs
// are, and what is to be proved is what stood when. Nothing in there decides
// anything, so it may be left out without changing what the nodes do.
//
// The epoch and the holder that are noted with a claim are right: its transaction holds
// the lock's row, so that nobody can change it meanwhile.
const auditSQL = `
CREATE SCHEMA audit;
CREATE TABLE audit.event (
    seq        bigserial   PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    what       text        NOT NULL, -- claimed, shrunk, released, taken, offered, or a session's state
    session_id uuid,
    member     text,
    epoch      bigint,
    claim_id   bigint,
    turn       integer,
    job_ids    bigint[],
    last_seen  timestamptz,                                  -- of the session
    holder_id  uuid,                                         -- of the lock, when a claim was made
    given      boolean);                                     -- by the holder, to another session
CREATE INDEX ON audit.event (epoch) WHERE what = 'claimed';

CREATE FUNCTION audit.claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO audit.event (what, session_id, epoch, claim_id, turn, job_ids, holder_id, given)
        SELECT 'claimed', NEW.session_id, l.epoch, NEW.id, NEW.turn, NEW.job_ids, l.holder, NEW.given FROM tenure.acquire_lock l;
    ELSIF TG_OP = 'UPDATE' THEN
        IF NEW.job_ids <> OLD.job_ids THEN
            INSERT INTO audit.event (what, session_id, claim_id, turn, job_ids)
            VALUES ('shrunk', NEW.session_id, NEW.id, NEW.turn, NEW.job_ids);
        END IF;
    ELSE
        INSERT INTO audit.event (what, session_id, claim_id, turn) VALUES ('released', OLD.session_id, OLD.id, OLD.turn);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON tenure.claim FOR EACH ROW EXECUTE FUNCTION audit.claim();

CREATE FUNCTION audit.session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.event (what, session_id, member, last_seen) VALUES (NEW.state, NEW.session_id, NEW.member, NEW.last_seen);
    RETURN NULL;
END $$;
CREATE TRIGGER audit_open AFTER INSERT ON tenure.node_session FOR EACH ROW EXECUTE FUNCTION audit.session();
CREATE TRIGGER audit_end AFTER UPDATE ON tenure.node_session FOR EACH ROW
    WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION audit.session();

CREATE FUNCTION audit.lock() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.event (what, session_id, member, epoch)
    VALUES (CASE WHEN NEW.holder IS NULL THEN 'offered' ELSE 'taken' END, NEW.holder, coalesce(NEW.holder_member, NEW.next_holder), NEW.epoch);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON tenure.acquire_lock FOR EACH ROW
    WHEN (NEW.epoch <> OLD.epoch OR NEW.holder IS DISTINCT FROM OLD.holder) EXECUTE FUNCTION audit.lock();
`

// auditEvent is a row of audit.event.
type auditEvent struct {
	Pool    string
	Seq     int64
	At      time.Time
	What    string
	Session uuid.UUID
	Member  string
	Epoch   int64
	Claim   int64
	Turn    int32
	Jobs    []job.ID
	Seen    time.Time // when the session last said that it lives
	Holder  uuid.UUID // of the lock, when a claim was made
	Given   bool      // by the holder, to another session
}

// readAudit reads all that a pool wrote down, in order.
func readAudit(ctx context.Context, pool string, conn *pgx.Conn) ([]auditEvent, error) {
	rows, err := conn.Query(ctx, `SELECT seq, at, what, coalesce(session_id, '00000000-0000-0000-0000-000000000000'),
		coalesce(member, ''), coalesce(epoch, 0), coalesce(claim_id, 0), coalesce(turn, 0), coalesce(job_ids, '{}'), coalesce(last_seen, at),
		coalesce(holder_id, '00000000-0000-0000-0000-000000000000'), coalesce(given, false)
		FROM audit.event ORDER BY seq`)
	if err != nil {
		return nil, fmt.Errorf("read the audit of %s: %w", pool, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (auditEvent, error) {
		e := auditEvent{Pool: pool}
		err := row.Scan(&e.Seq, &e.At, &e.What, &e.Session, &e.Member, &e.Epoch, &e.Claim, &e.Turn, &e.Jobs, &e.Seen, &e.Holder, &e.Given)
		return e, err
	})
}
