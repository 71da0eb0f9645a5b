package promises_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// amiss is a job whose handler's statement fails with a code.
type amiss struct{ Code string }

func (amiss) Kind() string { return "amiss" }

// Jobs of tenants whose schema or role is missing, or not granted, wait uncharged, and run once that is mended. What
// a handler raises itself is charged, whatever its code.
func TestWhatATenantLacksIsNotCharged(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	name := b.db["p1"].Config().ConnConfig.Database
	name = rolePrefix + name[strings.LastIndex(name, "_")+1:] // roles are the whole server's
	norole, nogrant := name+"_norole", name+"_nogrant"
	lacking := map[tenancy.ID]routing.TenantConfig{
		"noschema": {Pool: "p1", Role: rolePrefix + "t1"},
		"norole":   {Pool: "p1", Role: norole},
		"nogrant":  {Pool: "p1", Role: nogrant},
	}
	b.exec("p1", fmt.Sprintf("CREATE SCHEMA norole; CREATE SCHEMA nogrant; CREATE ROLE %q", nogrant))
	cfg := b.cfg
	cfg.Tenants.Static = maps.Clone(cfg.Tenants.Static)
	maps.Copy(cfg.Tenants.Static, lacking)
	r := b.registry(nil)
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[amiss]) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("DO $$BEGIN RAISE 'of its own' USING ERRCODE = '%s'; END$$", j.Args.Code))
		return err
	})
	c := b.start(cfg, r).Client()
	for id := range lacking {
		_, err := c.Enqueue(tenancy.For(t.Context(), id), write{}, tenure.MaxAttempts(1))
		require.NoError(t, err)
	}
	err := c.InTx(tenancy.For(t.Context(), "noschema"), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT 1")
		return err
	})
	require.ErrorContains(t, err, "CREATE SCHEMA")
	require.True(t, tenure.Refused(err))
	own := []string{"TN002", "22023", "42501"}
	for _, code := range own {
		_, err := c.Enqueue(tenancy.For(t.Context(), "t1"), amiss{code}, tenure.MaxAttempts(1))
		require.NoError(t, err)
	}
	b.eventually(len(own), "p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE tenant_id = 't1'")
	b.eventually(len(lacking), "p1", "SELECT count(*) FROM tenure.timer_job WHERE attempt = 0")
	require.Equal(t, len(own), b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job"))

	b.exec("p1", "CREATE SCHEMA noschema")
	for id, p := range lacking {
		storetest.Role(t, b.db["p1"], p.Role, string(id))
		b.exec("p1", fmt.Sprintf("CREATE TABLE %s.effect (job_id bigint)", id))
	}
	require.Eventually(t, func() bool {
		b.exec("p1", "UPDATE tenure.timer_job SET due_at = now() WHERE due_at > now()") // it is up to a minute later by now
		return b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'") == len(lacking)
	}, patience, time.Second)
}
