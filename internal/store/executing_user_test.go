package store_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
)

// intruder is what the tenant acme makes of all that Postgres executes for others: it does for globex what
// it may do for acme, and notes that it ran.
const intruder = `
CREATE TABLE acme.ran (who text);
GRANT USAGE ON SCHEMA acme TO PUBLIC;
GRANT INSERT ON acme.ran TO PUBLIC;
CREATE FUNCTION acme.try(tenant text, job bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one text;
BEGIN
    FOREACH one IN ARRAY ARRAY[
        format('SELECT tenure.enqueue(%L, ''stolen'')', tenant), format('SELECT tenure.enqueue_external(%L, ''stolen'')', tenant),
        format('SELECT tenure.enqueue_linked(%L, ''stolen'', as_batch => true)', tenant),
        format('INSERT INTO tenure.door (call, tenant, kind, payload, queue, priority) VALUES (''enqueue'', %L, ''stolen'', ''{}'', ''q'', 0)', tenant),
        format('SELECT tenure.retry(%s)', job), format('SELECT tenure.cancel(%s)', job)]
    LOOP
        BEGIN
            EXECUTE one;
        EXCEPTION WHEN insufficient_privilege THEN -- the next one
        END;
    END LOOP;
END
$$;
CREATE FUNCTION acme.act() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO acme.ran VALUES (current_user);
    PERFORM acme.try('globex', 4711);
END
$$;
CREATE FUNCTION acme.f(integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM acme.act(); RETURN $1; END $$;
CREATE FUNCTION acme.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM acme.act(); RETURN NEW; END $$;
CREATE FUNCTION acme.eq(integer, integer) RETURNS boolean LANGUAGE sql AS 'SELECT acme.f($1) = $2';
CREATE FUNCTION acme.helpful() RETURNS integer SECURITY DEFINER LANGUAGE sql AS 'SELECT acme.f(1)';
CREATE OPERATOR acme.=== (LEFTARG = integer, RIGHTARG = integer, FUNCTION = acme.eq);
CREATE TYPE acme.colour AS ENUM ('red');
CREATE FUNCTION acme.to_colour(integer) RETURNS acme.colour LANGUAGE sql AS $$ SELECT 'red'::acme.colour WHERE acme.f($1) > 0 $$;
CREATE CAST (integer AS acme.colour) WITH FUNCTION acme.to_colour(integer);
CREATE DOMAIN acme.even AS integer CHECK (acme.f(VALUE) > 0);
CREATE TABLE acme.indexed (x integer);
INSERT INTO acme.indexed SELECT generate_series(1, 3);
CREATE INDEX ON acme.indexed (acme.f(x));
CREATE TABLE acme.generated (x integer, y integer GENERATED ALWAYS AS (acme.f(x)) STORED);
CREATE TABLE acme.defaulted (x integer, y integer DEFAULT acme.f(1));
CREATE TABLE acme.checked (x integer CHECK (acme.f(x) > 0));
CREATE TABLE acme.triggered (x integer);
CREATE TRIGGER fire BEFORE INSERT ON acme.triggered FOR EACH ROW EXECUTE FUNCTION acme.fire();
CREATE TABLE acme."tenure.enqueue(" (x integer);
CREATE TRIGGER fire BEFORE INSERT ON acme."tenure.enqueue(" FOR EACH ROW EXECUTE FUNCTION acme.fire();
CREATE TABLE acme.guarded (x integer);
INSERT INTO acme.guarded VALUES (1);
ALTER TABLE acme.guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY guard ON acme.guarded USING (acme.f(x) > 0);
CREATE VIEW acme.looked AS SELECT acme.f(1);
CREATE VIEW acme.called AS SELECT id FROM tenure.enqueue('globex', 'stolen'); -- a tenant's view calls it as who looks
CREATE MATERIALIZED VIEW acme.refreshed AS SELECT acme.f(1);
GRANT ALL ON ALL TABLES IN SCHEMA acme TO PUBLIC;
`

// TestWhatATenantMadeActsForNobodyElse, whoever executes it and for whatever reason: not a superuser, not the
// nodes' user, and not autovacuum, which analyzes as the table's owner in a superuser's session.
func TestWhatATenantMadeActsForNobodyElse(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	super, err := owner.Acquire(t.Context())
	require.NoError(t, err)
	defer super.Release()
	execute(t, owner, "INSERT INTO tenure.dead_letter_job (id, tenant_id, queue, kind, payload, origin, error) VALUES (4711, 'globex', 'q', 'dead', '{}', 'job', 'x')")
	execute(t, conn, "SET ROLE "+roleAcme)
	execute(t, conn, intruder)
	execute(t, conn, "RESET ROLE")
	kept := func(why string) {
		t.Helper()
		var jobs []string
		require.NoError(t, owner.QueryRow(t.Context(), `SELECT array_agg(kind) FROM (
			SELECT kind FROM tenure.job WHERE tenant_id = 'globex' UNION ALL SELECT kind FROM tenure.timer_job WHERE tenant_id = 'globex'
			UNION ALL SELECT kind FROM tenure.external_job WHERE tenant_id = 'globex' UNION ALL SELECT kind FROM tenure.dead_letter_job WHERE tenant_id = 'globex') j`).Scan(&jobs))
		require.Equal(t, []string{"dead"}, jobs, why)
	}
	for _, sql := range []string{
		"ANALYZE acme.indexed", "REINDEX TABLE acme.indexed", "CREATE INDEX ON acme.indexed (acme.f(x + 1))", "VACUUM FULL acme.indexed",
		"REFRESH MATERIALIZED VIEW acme.refreshed", "INSERT INTO acme.indexed VALUES (7)", "INSERT INTO acme.generated VALUES (1)",
		"INSERT INTO acme.defaulted VALUES (1)", "INSERT INTO acme.checked VALUES (1)", "INSERT INTO acme.triggered VALUES (1)",
		`INSERT INTO acme."tenure.enqueue(" VALUES (1)`, "/* tenure.enqueue() */ INSERT INTO acme.triggered SELECT length('tenure.enqueue()') -- tenure.enqueue()",
		"SELECT FROM acme.guarded", "SELECT * FROM acme.looked", "SELECT 1 OPERATOR(acme.===) 1",
		"SELECT 1::acme.colour", "SELECT 1::acme.even", "SELECT acme.helpful()", "SELECT acme.act()", "DO 'BEGIN PERFORM acme.act(); END'",
		// Where Postgres reads no code: in literals that go on behind \\', between dollar quotes, in comments within comments.
		`INSERT INTO acme.triggered SELECT length(E'it\'s tenure.enqueue(')`, "INSERT INTO acme.triggered SELECT length($q$ tenure.enqueue( $q$)",
		"INSERT INTO acme.triggered SELECT 1 /* a /* b */ tenure.enqueue( */",
		// A trigger does not call it because the statement does, too.
		"INSERT INTO acme.triggered SELECT count(e.id) FROM tenure.enqueue('acme', 'own') e",
	} {
		for user, c := range map[string]*pgx.Conn{"a superuser": super.Conn(), "the runtime user": conn} {
			execute(t, owner, "TRUNCATE acme.ran")
			_, err := c.Exec(t.Context(), sql)
			if user == "a superuser" {
				require.NoError(t, err, sql)
			}
			var ran int
			require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM acme.ran").Scan(&ran))
			owners := err != nil                                                   // it is for the table's owner
			bypasses := user == "a superuser" && sql == "SELECT FROM acme.guarded" // policies
			warns := user == "the runtime user" && (sql == "ANALYZE acme.indexed" || sql == "VACUUM FULL acme.indexed")
			require.Equal(t, !owners && !bypasses && !warns, ran > 0, "%s as %s: %v", sql, user, err)
			kept(sql + ", as " + user)
		}
	}
	for _, c := range []*pgx.Conn{super.Conn(), conn} {
		_, err := c.Exec(t.Context(), "SELECT * FROM acme.called")
		require.Equal(t, "42501", code(err))
		kept("a view")
	}
	// All the while it may act for itself.
	execute(t, owner, "DELETE FROM tenure.job; CREATE OR REPLACE FUNCTION acme.act() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM tenure.enqueue('acme', 'own'); END $$")
	execute(t, owner, "ANALYZE acme.indexed")
	var own int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job WHERE tenant_id = 'acme' AND kind = 'own'").Scan(&own))
	require.Positive(t, own)
}

// TestWhoAnswersForCode: who may act for all tenants does so by statements that call the ledger themselves, and by
// functions that are executed with the rights of their owner.
func TestWhoAnswersForCode(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	const voucher = "tenure_test_voucher"
	execute(t, owner, "CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO PUBLIC")
	storetest.Role(t, owner, voucher, "app")
	execute(t, owner, "GRANT INSERT (tenant_id) ON tenure.job TO "+voucher)
	execute(t, owner, `CREATE FUNCTION app.plain() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM tenure.enqueue('globex', 'k'); END $$;
		CREATE FUNCTION app.vouched() RETURNS void SECURITY DEFINER LANGUAGE plpgsql AS $$ BEGIN PERFORM tenure.enqueue('globex', 'k'); END $$;
		ALTER FUNCTION app.vouched() OWNER TO `+voucher)
	call := func(sql string) (string, error) {
		_, err := conn.Exec(t.Context(), sql)
		return code(err), err
	}
	for _, sql := range []string{
		"SELECT tenure.enqueue('globex', 'k')", "select * from TENURE . Enqueue ('globex', 'k')", `SELECT "tenure"."enqueue"('globex', 'k')`,
		"DO $$ BEGIN PERFORM tenure.enqueue('globex', 'k'); END $$", "-- don't\nSELECT tenure.enqueue('globex', 'k')",
		"WITH n AS (SELECT generate_series(1, 2)) SELECT tenure.enqueue_linked('globex', 'k', correlation_id => 'it''s') FROM n",
		"SELECT tenure.cancel(id) FROM tenure.job_status", "SELECT app.vouched()",
		"/* app='web',route='%2F' */ SELECT 'it''s' AS \"a \"\"name\"\"\", 4 - 2 / 1, tenure.enqueue('globex', E'k')", "do language plpgsql $do$begin perform tenure.retry(1); end$do$",
	} {
		said, err := call(sql)
		require.Empty(t, said, "%s: %v", sql, err)
	}
	for _, sql := range []string{"SELECT app.plain()", `SELECT app.plain() AS "tenure.enqueue("`, "SELECT app.plain() AS xtenure -- .enqueue("} {
		_, err := call(sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, sql)
		require.Equal(t, "42501", pg.Code, sql)
		require.Contains(t, pg.Hint, "SECURITY DEFINER", sql)
	}
	execute(t, owner, "DELETE FROM tenure.tenant_role")
	said, err := call("SELECT app.plain()")
	require.Empty(t, said, "without roles there is nobody to be kept apart: %v", err)
}

// TestNoTextIsTakenForACall: whatever a statement is made of, what it comes across may enqueue for others only if
// Postgres itself has found the call in it.
func TestNoTextIsTakenForACall(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, owner, `CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO PUBLIC;
		CREATE FUNCTION app.plain() RETURNS bigint LANGUAGE sql AS $$ SELECT id FROM tenure.enqueue('globex', 'across') $$`)
	const call = "(SELECT id FROM tenure.enqueue('globex', 'called'))"
	opens := []string{"'", "e'", "E'", "U&'", "x.e'", "$$", "$a$", "/*", "/* /*", "--", `"`, `U&"`, "(", "1 - ", "$1"}
	closes := []string{"'", "'", "'", "'", "'", "$$", "$a$", "*/ 1", "*/ */ 1", "\n 1", `"`, `"`, ")", "", ""}
	inside := append(slices.Clone(opens), `\'`, `\\`, "''", "*/", "\n", "\r", " ", ",", "'\n'", "tenure.enqueue(", call, "a")
	random := rand.New(rand.NewPCG(26, 47))
	accepted := 0
	for range 4000 {
		var sql strings.Builder
		sql.WriteString("SELECT ")
		for range random.IntN(4) {
			kind := random.IntN(len(opens))
			sql.WriteString(opens[kind])
			for range random.IntN(4) {
				sql.WriteString(inside[random.IntN(len(inside))])
			}
			sql.WriteString(closes[kind] + ", ")
		}
		if random.IntN(4) == 0 {
			sql.WriteString(call + ", ")
		}
		sql.WriteString("app.plain()")
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SET LOCAL standard_conforming_strings = "+[]string{"on", "off"}[random.IntN(2)])
		require.NoError(t, err)
		if _, err = tx.Exec(t.Context(), sql.String()); err == nil {
			var called, across int
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE kind = 'called'), count(*) FILTER (WHERE kind = 'across') FROM tenure.job").Scan(&called, &across))
			require.True(t, called > 0 || across == 0, "%q", sql.String())
			accepted += across
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.Greater(t, accepted, 100, "calls are found")
}

// TestNobodySaysWhoHeIs at the door.
func TestNobodySaysWhoHeIs(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, conn, "SET ROLE "+roleAcme)
	for _, sql := range []string{
		"INSERT INTO tenure.door (call, tenant, kind, caller) VALUES ('enqueue', 'globex', 'k', '" + roleGlobex + "')",
		"CREATE VIEW acme.door AS SELECT * FROM tenure.door",
		"CREATE TABLE acme.door (call text, tenant text, kind text, caller text); CREATE TRIGGER t BEFORE INSERT ON acme.door FOR EACH ROW EXECUTE FUNCTION tenure.answer()",
	} {
		_, err := conn.Exec(t.Context(), sql+"; INSERT INTO acme.door (call, tenant, kind, caller) VALUES ('enqueue', 'globex', 'k', '"+roleGlobex+"')")
		require.Equal(t, "42501", code(err), "%s: %v", sql, err)
	}
	// A view's own defaults need no right on the columns of the door.
	execute(t, owner, "INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, due_at) VALUES (4712, 'globex', 'q', 'later', '{}', now() + '1 day')")
	for _, view := range []string{"CREATE VIEW acme.gate", "CREATE TEMP VIEW gate"} {
		name := view[strings.LastIndex(view, " ")+1:]
		execute(t, conn, view+" AS SELECT * FROM tenure.door; ALTER VIEW "+name+" ALTER caller SET DEFAULT '"+owner.Config().ConnConfig.User+"'")
		_, err := conn.Exec(t.Context(), "INSERT INTO "+name+" (call, tenant, kind, payload, priority, with_data) VALUES ('enqueue', 'globex', 'stolen', '{}', 0, true)")
		require.Equal(t, "42501", code(err), "%s: %v", view, err)
		execute(t, conn, "INSERT INTO "+name+" (call, job_id, keep) VALUES ('cancel', 4712, true)")
	}
	tag, err := owner.Exec(t.Context(), "DELETE FROM tenure.timer_job")
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "it is not cancelled")
	execute(t, owner, "REVOKE EXECUTE ON FUNCTION tenure.enqueue FROM PUBLIC")
	_, err = conn.Exec(t.Context(), "INSERT INTO tenure.door (call, tenant, kind, payload, queue, priority) VALUES ('enqueue', 'acme', 'k', '{}', 'q', 0)")
	require.ErrorContains(t, err, "permission denied for function tenure.enqueue")
	super := connectTo(t, owner.Config().ConnString())
	execute(t, super, "SET session_replication_role = replica")
	for _, sql := range []string{"enqueue('acme', 'k')", "enqueue_external('acme', 'k')", "enqueue_linked('acme', 'k')", "cancel(1)", "retry(1)"} {
		_, err = super.Exec(t.Context(), "SELECT tenure."+sql)
		require.ErrorContains(t, err, "triggers are switched off", sql)
	}
	var jobs int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job").Scan(&jobs))
	require.Zero(t, jobs)
}
