package report

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// AuditSQL makes a pool's database write down what becomes of its claims, sessions
// and lock, in the transactions that change them: claims are gone when their jobs
// are, and what is to be proved is what stood when. Nothing in there decides
// anything, so it may be left out without changing what the nodes do.
//
// The epoch and the holder that are noted with a claim are right: its transaction holds
// the lock's row, so that nobody can change it meanwhile.
const AuditSQL = `
CREATE SCHEMA audit;
CREATE TABLE audit.event (
    seq        bigserial   PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    what       text        NOT NULL, -- claimed, shrunk, released, excess, keyed, beside, overtaken, taken, offered, or a session's state
    session_id uuid,
    member     text,                                         -- of excess: the limit, and how many were in flight under it; of keyed, beside and overtaken: the exclusive key
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
        IF EXISTS (SELECT FROM tenure.job_limit) THEN
            -- What the claims list has ended if it is gone, or has another turn.
            INSERT INTO audit.event (what, session_id, claim_id, turn, job_ids, member)
            SELECT 'excess', NEW.session_id, NEW.id, NEW.turn, NEW.job_ids,
                   format('%s %s of %s: %s of %s', l.scope, l.name, l.tenant_id, count(*), l.max_running)
            FROM tenure.claim c
            CROSS JOIN unnest(c.job_ids) AS run (id)
            JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn
            JOIN tenure.job_limit l ON l.tenant_id = j.tenant_id
                AND l.name = CASE l.scope WHEN 'kind' THEN j.kind WHEN 'queue' THEN j.queue ELSE '' END
            GROUP BY l.tenant_id, l.scope, l.name, l.max_running
            HAVING count(*) > l.max_running;
        END IF;
        -- Of a job with an exclusive key: that it starts; which other one is in flight; and which one that was not
        -- claimed goes before it: tried before, or further ahead in the queue, or waiting to be tried again.
        INSERT INTO audit.event (what, session_id, claim_id, turn, job_ids, member)
        SELECT other.what, NEW.session_id, NEW.id, NEW.turn, array_remove(ARRAY[j.id, other.id], NULL), format('key %s of %s', j.exclusive_key, j.tenant_id)
        FROM tenure.job j
        CROSS JOIN LATERAL (
            SELECT 'keyed' AS what, NULL::bigint AS id
            UNION ALL
            SELECT CASE WHEN EXISTS (SELECT FROM tenure.claim c WHERE o.id = ANY (c.job_ids) AND c.turn = o.turn) THEN 'beside' ELSE 'overtaken' END, o.id
            FROM tenure.job o
            WHERE o.tenant_id = j.tenant_id AND o.exclusive_key = j.exclusive_key AND o.id <> j.id
              AND ((o.attempt = 0, o.position) < (j.attempt = 0, j.position) OR EXISTS (SELECT FROM tenure.claim c WHERE o.id = ANY (c.job_ids) AND c.turn = o.turn))
            UNION ALL
            SELECT 'overtaken', t.id FROM tenure.timer_job t
            WHERE t.tenant_id = j.tenant_id AND t.exclusive_key = j.exclusive_key AND t.attempt > 0 AND j.attempt = 0) other
        WHERE j.id = ANY (NEW.job_ids) AND j.turn = NEW.turn AND j.exclusive_key IS NOT NULL;
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

// AuditEvent is a row of audit.event, as ReadAudit selects it.
type AuditEvent struct {
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

// ReadAudit reads all that a pool wrote down, in order.
func ReadAudit(ctx context.Context, pool string, conn *pgx.Conn) ([]AuditEvent, error) {
	rows, err := conn.Query(ctx, `SELECT $1::text, seq, at, what, coalesce(session_id, '00000000-0000-0000-0000-000000000000'),
		coalesce(member, ''), coalesce(epoch, 0), coalesce(claim_id, 0), coalesce(turn, 0), coalesce(job_ids, '{}'), coalesce(last_seen, at),
		coalesce(holder_id, '00000000-0000-0000-0000-000000000000'), coalesce(given, false)
		FROM audit.event ORDER BY seq`, pool)
	if err != nil {
		return nil, fmt.Errorf("read the audit of %s: %w", pool, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[AuditEvent])
}
