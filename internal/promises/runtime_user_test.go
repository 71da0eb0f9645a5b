package promises_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// The promises are tested as a user who is nobody and owns nothing, and their handlers run in their
// tenant's role: else what a superuser may do would hide what is missing.
func TestNodesOwnNothing(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	conn := connectTo(b, b.cfg.Pools["p1"].DSN)
	var mighty bool
	var owned int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolinherit,
			(SELECT count(*) FROM pg_shdepend d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = r.oid AND d.deptype = 'o'
			   AND d.dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())))
		FROM pg_roles r WHERE rolname = current_user`).Scan(&mighty, &owned))
	require.False(t, mighty)
	require.Zero(t, owned)

	users := make(chan [2]string, 1)
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, _ *job.Job[plain]) error {
		var user [2]string
		err := tx.QueryRow(ctx, "SELECT session_user, current_user").Scan(&user[0], &user[1])
		users <- user
		return err
	})
	n := b.start(b.cfg, r)
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{})
	require.NoError(t, err)
	require.Equal(t, [2]string{conn.Config().ConnConfig.User, rolePrefix + "t1"}, receive(t, users))
}
