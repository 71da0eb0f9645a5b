package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// A deed is noted if it is done, and not if it fails; who may use the ledger can neither change nor remove what
// was noted.
func TestADeedIsNotedWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{Tenant: "globex", DueIn: time.Hour})
	deed := store.Deed{Who: "eve", Action: "job.suspend", Job: id, Detail: map[string]any{"until": "noon"}}
	require.NoError(t, store.SuspendJob(t.Context(), store.Noted(b.db, deed), id, time.Time{}))
	require.ErrorIs(t, store.SuspendJob(t.Context(), store.Noted(b.db, deed), 4711, time.Time{}), store.ErrNotFound)
	deed.Action = "job.retry"
	require.ErrorIs(t, store.InNoted(t.Context(), b.db, deed, func(db store.DB) error {
		_, err := store.RetryAs(t.Context(), db, id, nil)
		return err
	}), store.ErrNotFound)
	require.NoError(t, store.Note(t.Context(), b.db, store.Deed{Who: "eve", Action: "pool.freeze", Subject: "p"}))
	all, err := store.Audit(t.Context(), b.db, store.AuditFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, store.Deed{Who: "eve", Action: "job.suspend", Tenant: "globex", Job: id, Detail: map[string]any{"until": "noon"}}, all[1].Deed)
	for _, f := range []store.AuditFilter{{Tenant: "globex"}, {Job: id}, {Action: "job"}, {Action: "suspend"}, {Action: "job.suspend", Who: "eve"}, {Before: all[0].At, BeforeID: all[0].ID}} {
		f.Limit = 10
		some, err := store.Audit(t.Context(), b.db, f)
		require.NoError(t, err)
		require.Equal(t, all[1:], some, "%+v", f)
	}

	for _, sql := range []string{"UPDATE tenure.audit SET who = 'mallory'", "DELETE FROM tenure.audit", "TRUNCATE tenure.audit"} {
		_, err := b.db.Exec(t.Context(), sql)
		require.True(t, store.NoPrivilege(err), "%s: %v", sql, err)
	}
	execute(t, b.owner, "UPDATE tenure.audit SET at = at - interval '31 days' WHERE action = 'pool.freeze'")
	n, err := store.TrimAudit(t.Context(), b.db, 40*24*time.Hour, 10)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = store.TrimAudit(t.Context(), b.db, 0, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n, "nothing of the last thirty days is removed")
}
