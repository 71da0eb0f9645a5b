package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/api"
)

// The doctor waits as long here as on the command line: a busy machine takes more than a second, and nothing is wrong.
func TestTheDoctorIsPatient(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "p1", 1)
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"p1": {DSN: dsn}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "p1"}}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	db, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer db.Close(context.Background())
	_, err = db.Exec(t.Context(), "CREATE OR REPLACE FUNCTION tenure.server_state(OUT server text, OUT timeline integer, OUT refused text, OUT owner text) "+
		"LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); END'")
	require.NoError(t, err)
	b := &bundle{t, nil, api.Handler(client, nil, zap.NewNop())}
	require.Contains(t, fmt.Sprint(b.do(http.MethodGet, "/doctor", "")), "did not answer within 5s")
}
