package execution

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestProbe(t *testing.T) {
	db, _ := pgxpool.New(context.Background(), storetest.DSN(t, "main", 1))
	defer db.Close()
	for _, n := range []string{"plain", "My-Tenant", `a","public`} {
		_, err := db.Exec(t.Context(), "CREATE SCHEMA "+pgx.Identifier{n}.Sanitize())
		t.Log(err)
		err = InTx(t.Context(), db, tenancy.Tenant{ID: "x", Schema: n}, func(ctx context.Context, tx pgx.Tx) error { return nil })
		t.Log(n, err)
	}
}
