package execution

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// asOwner runs statements as a tenant's role, in its schema.
func (c *city) asOwner(t *testing.T, id, statements string) {
	t.Helper()
	who := c.tenants[id].Role
	if who == "" {
		who = c.user
	}
	c.exec(t, fmt.Sprintf("SET ROLE %s; SET search_path = %s; %s; RESET ROLE; RESET search_path", who, id, statements))
}

// witness makes a table and a function that notes there who calls it, and where.
const witness = `
	CREATE TABLE seen (who text, path text, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION see() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO %[1]s.seen VALUES (current_user, current_setting('search_path'));
		RETURN true;
	END $$`

// What a tenant has put off until the end of its transaction is done as that tenant.
func TestDeferredTriggers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		trigger string // what it does, beside being seen
		says    string // part of the error; "": the job is finished
		seen    int
	}{
		"one that works in the tenant's schema": {"PERFORM count(*) FROM orders", "", 1},
		"one that fails":                        {"PERFORM 1 / 0", "division by zero", 0},
		"one whose table is missing":            {"PERFORM count(*) FROM nowhere", `relation "nowhere" does not exist`, 0},
		"one that says that the claim is lost":  {"RAISE 'mine' USING ERRCODE = 'TN001'", "mine", 0},
		"one that is put off once more": {`
			IF (SELECT count(*) FROM effect) < 4 THEN
				SET CONSTRAINTS ALL DEFERRED;
				INSERT INTO effect VALUES (2);
			END IF`, "", 4},
		"one that leaves its path": {"SET LOCAL search_path = public", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCity(t, func(r *job.Registry) {
				inTx(r, "write", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
					_, err := tx.Exec(ctx, addEffect)
					return err
				})
			})
			for _, id := range []string{"alpha", "gamma"} {
				c.asOwner(t, id, fmt.Sprintf(witness, id)+fmt.Sprintf(`;
					CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
					BEGIN
						PERFORM %s.see();
						%s;
						RETURN NULL;
					END $$;
					CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`, id, tc.trigger))
			}
			c.exec(t, "ALTER TABLE tenure.ended ADD at timestamptz DEFAULT clock_timestamp()")
			c.start()
			for _, id := range []string{"alpha", "gamma"} {
				e := c.run(t, "write", c.tenants[id], "")
				if tc.says == "" {
					require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
					require.Equal(t, 1, c.count(t, "SELECT count(*) FROM tenure.ended WHERE job_id = $1 AND who = $2", int64(e.claim.Record.ID), c.user))
				} else {
					require.Equal(t, job.Retrying, e.outcome.State)
					require.ErrorContains(t, e.outcome.Err, tc.says)
					require.NotContains(t, e.outcome.Err.Error(), "finish the job", "the ledger has nothing to do with it")
				}
				require.Zero(t, c.count(t, "SELECT count(*) FROM tenure.ended WHERE at < (SELECT min(at) FROM "+id+".seen) AND job_id = $1", int64(e.claim.Record.ID)),
					"locks of the ledger are not held while the tenant's triggers run")
				who := c.tenants[id].Role
				if who == "" {
					who = c.user
				}
				require.Equal(t, tc.seen, c.count(t, "SELECT count(*) FROM "+id+".seen WHERE who = $1 AND path = $2", who, id+", pg_temp"), id)
				require.Equal(t, tc.seen, c.count(t, "SELECT count(*) FROM "+id+".seen"), id)
			}
		})
	}
}

// What a tenant has made in its schema, and as temporary objects, is not found by the
// ledger's own statements in its transaction: it would run as the pool's user.
func TestLedgerStatementsFindNothingOfTheTenant(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "enqueue", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			if _, err := tx.Exec(ctx, `CREATE DOMAIN pg_temp.jsonb AS pg_catalog.jsonb CHECK (see());
				CREATE DOMAIN pg_temp.timestamptz AS pg_catalog.timestamptz CHECK (see());
				SET LOCAL search_path = `+rec.Tenant+`, pg_catalog, pg_temp`); err != nil {
				return err
			}
			for _, j := range []store.NewJob{{}, {UniqueKey: "u"}, {DueIn: time.Hour}, {DueAt: time.Now().Add(time.Hour)}, {UniqueKey: "v", DueIn: time.Hour}} {
				j.Tenant, j.Queue, j.Kind, j.Payload = rec.Tenant, "default", "k", []byte(`{}`)
				if _, _, err := store.Enqueue(ctx, store.OnTx(tx), 1, &j); err != nil {
					return err
				}
			}
			var path string
			if err := tx.QueryRow(ctx, "SELECT current_setting('search_path')").Scan(&path); err != nil || path != rec.Tenant+", pg_catalog, pg_temp" {
				return fmt.Errorf("the handler's search path has become %s: %w", path, err)
			}
			return nil
		})
	})
	for _, id := range []string{"alpha", "gamma"} {
		c.asOwner(t, id, fmt.Sprintf(witness, id)+fmt.Sprintf(`;
			CREATE FUNCTION times(bigint, interval) RETURNS interval LANGUAGE sql AS $$ SELECT CASE WHEN %[1]s.see() THEN interval '0' END $$;
			CREATE OPERATOR * (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = times);
			CREATE FUNCTION same(integer, integer) RETURNS boolean LANGUAGE sql AS $$ SELECT %[1]s.see() $$;
			CREATE OPERATOR = (LEFTARG = integer, RIGHTARG = integer, FUNCTION = same);
			CREATE FUNCTION set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT CASE WHEN %[1]s.see() THEN '' END $$;
			CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT CASE WHEN %[1]s.see() THEN now() END $$;
			CREATE FUNCTION nextval(regclass) RETURNS bigint LANGUAGE sql AS $$ SELECT CASE WHEN %[1]s.see() THEN 1 END $$`, id))
	}
	c.exec(t, "INSERT INTO tenure.tenant_role (tenant_id, role_name) VALUES ('alpha', '"+c.tenants["alpha"].Role+"')")
	c.start()
	for _, id := range []string{"alpha", "gamma"} {
		e := c.run(t, "enqueue", c.tenants[id], "")
		require.Equal(t, "in tx", e.how, "%s: %v", id, e.outcome.Err)
		require.Zero(t, c.count(t, "SELECT count(*) FROM "+id+".seen"), "what ran of tenant %s while the ledger was at work", id)
		require.Equal(t, 3, c.count(t, "SELECT count(*) FROM tenure.timer_job WHERE tenant_id = $1 AND due_at > now() + interval '50 minutes'", id))
		require.Equal(t, 2, c.count(t, "SELECT count(*) FROM tenure.job WHERE tenant_id = $1", id))
		c.exec(t, "DELETE FROM tenure.unique_job")
	}
}

// The rows of a cursor that outlives its transaction are read when that ends, as the tenant.
func TestHeldCursors(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "hold", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, "DECLARE c CURSOR WITH HOLD FOR SELECT see()")
			return err
		})
	})
	c.asOwner(t, "alpha", fmt.Sprintf(witness, "alpha"))
	c.start()
	e := c.run(t, "hold", c.tenants["alpha"], "")
	require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
	require.Equal(t, 1, c.count(t, "SELECT count(*) FROM alpha.seen WHERE who = $1 AND path = 'alpha, pg_temp'", c.tenants["alpha"].Role))
	require.Equal(t, 1, c.count(t, "SELECT count(*) FROM alpha.seen"))
}
