package execution

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/tenantconn"
	"github.com/tenurehq/tenure/job"
)

// leaveAll leaves on a session what SQL may leave there.
const leaveAll = `PERFORM set_config('search_path', 'public', false), set_config('app.other', 'secret', false), set_config('role', 'none', false),
		set_config('statement_timeout', '1h', false), pg_advisory_lock(1), pg_advisory_lock_shared(2, 3), setseed(0.5);
	EXECUTE 'LISTEN x'; NOTIFY x, 'secret';
	EXECUTE 'PREPARE p AS SELECT 1'; EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1';
	CREATE TEMP TABLE orders (of text); CREATE TEMP SEQUENCE s; PERFORM nextval('s')`

// A job's last message ends its transaction and scrubs the session, in this order: what is left
// there while COMMIT runs goes as well. Where that has not scrubbed it, the pool does; a connection that is destroyed is not scrubbed.
func TestTheLastMessageScrubs(t *testing.T) {
	t.Parallel()
	var print string
	var pid uint32
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "write", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
		inTx(r, "fail", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, "DO $$ BEGIN "+leaveAll+"; END $$; SELECT 1/0")
			return err
		})
		inTx(r, "prepare", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Prepare(ctx, "p", "SELECT 1")
			return err
		})
		inTx(r, "look", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			return tx.QueryRow(ctx, fingerprint).Scan(&print, &pid)
		})
	})
	c.start()
	var told int
	instead := "" // of what scrubs; "": nothing
	hook := func() (pid uint32) {
		conn, err := c.owner.tenants.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		rules := tenantconn.Of(conn.Conn().PgConn())
		scrub, note := rules.Scrub, rules.Scrubbed
		rules.Scrub = func() string {
			if instead != "" {
				return instead
			}
			return scrub()
		}
		rules.Scrubbed = func(results []*pgconn.Result) {
			told++
			note(results)
		}
		return conn.Conn().PgConn().PID()
	}
	look := func(id string) string {
		require.Equal(t, "in tx", c.run(t, "look", c.tenants[id], "").how)
		return print
	}
	want := map[string]string{}
	for _, id := range []string{"alpha", "gamma"} {
		want[id] = look(id)
		c.asOwner(t, id, fmt.Sprintf(`
			CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF (SELECT count(*) FROM %[1]s.effect) %% 2 = 1 THEN -- put off until COMMIT
					SET CONSTRAINTS ALL DEFERRED;
					INSERT INTO %[1]s.effect VALUES (2);
				ELSE
					%[2]s;
				END IF;
				RETURN NULL;
			END $$;
			CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`, id, leaveAll))
	}
	before := hook()
	for _, tc := range []struct {
		kind, instead string
		told          int
	}{
		{"write", "", 1},
		{"fail", "", 1},
		{"write", "SELECT 1/0", 0},
		{"write", "SET SESSION AUTHORIZATION DEFAULT; SELECT 1/0", 0},
	} {
		for _, id := range []string{"alpha", "gamma"} {
			told, instead = 0, tc.instead
			e := c.run(t, tc.kind, c.tenants[id], "")
			if tc.kind == "fail" {
				require.Equal(t, job.Retrying, e.outcome.State)
			} else {
				require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
			}
			require.Equal(t, tc.told, told, "%s by %s", tc.kind, id)
			instead = ""
			for _, other := range []string{"alpha", "gamma"} {
				require.JSONEq(t, want[other], look(other), "%s after %s by %s", other, tc.kind, id)
				require.Equal(t, before, pid, "on the connection of before")
			}
		}
	}
	told = 0
	require.Equal(t, "in tx", c.run(t, "prepare", c.tenants["alpha"], "").how)
	require.Zero(t, told)
	look("alpha")
	require.NotEqual(t, before, pid)
}

// A tenant's names survive whatever a handler has made of how strings are written.
func TestNamesInTheLastMessage(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "write", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			_, err := tx.Exec(ctx, addEffect+"; "+string(rec.Payload))
			return err
		})
	})
	const schema = `Ä \' "ü" ☃ '';\`
	tenant := c.add(t, "odd", schema, false)
	role := `Ö'\"` + c.suffix
	tenant.Role = role
	c.tenants["odd"].Role = role
	c.exec(t, fmt.Sprintf("CREATE ROLE %s NOLOGIN; GRANT %[1]s TO %s; GRANT USAGE ON SCHEMA %s TO %[1]s; GRANT ALL ON ALL TABLES IN SCHEMA %[3]s TO %[1]s",
		quoted(role), quoted(c.user), quoted(schema)))
	c.exec(t, fmt.Sprintf(`SET search_path = %[1]s; CREATE TABLE seen (who text, path text); GRANT INSERT ON seen TO PUBLIC;
		CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO seen VALUES (current_user, current_setting('search_path'));
			IF (SELECT count(*) FROM effect) %% 2 = 1 THEN
				SET CONSTRAINTS ALL DEFERRED;
				INSERT INTO effect VALUES (2);
			END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late(); RESET search_path`, quoted(schema)))
	c.start()
	for _, settings := range []string{
		"SELECT 1",
		"SET standard_conforming_strings = off",
		"SET client_encoding = 'LATIN1'; SET standard_conforming_strings = off; SET backslash_quote = on",
		"SET client_encoding = 'SJIS'",
		"SET LOCAL client_encoding = 'EUC_JP'; SET LOCAL backslash_quote = off",
	} {
		c.exec(t, fmt.Sprintf("DELETE FROM %s.seen", quoted(schema)))
		e := c.run(t, "write", tenant, settings)
		require.Equal(t, "in tx", e.how, "%s: %v", settings, e.outcome.Err)
		require.Equal(t, 2, c.count(t, fmt.Sprintf("SELECT count(*) FROM %s.seen WHERE who = $1 AND path = quote_ident($2) || ', pg_temp'", quoted(schema)), role, schema), settings)
	}
}
