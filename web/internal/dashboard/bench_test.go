package dashboard_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/web/internal/dashboard"
)

// manyPools is a client of so many pools on one server, one in a hundred of which takes connections and says
// nothing. In each other one a node holds the lock, as far as the ledger says.
func manyPools(b *testing.B, pools int) *operate.Operator {
	server := pgtest.Server(b, devpg.Options{MaxConnections: 2*pools + 50, Settings: map[string]string{"autovacuum": "off"}})
	require.NoError(b, server.CreateDatabase(b.Context(), "template"))
	require.NoError(b, storetest.Prepare(b.Context(), server.DSN("template"), "pool", 1))
	exec := func(database, sql string) {
		conn, err := pgx.Connect(b.Context(), server.DSN(database))
		require.NoError(b, err)
		_, err = conn.Exec(b.Context(), sql)
		require.NoError(b, err)
		require.NoError(b, conn.Close(b.Context()))
	}
	exec("template", `INSERT INTO tenure.node_session (session_id, node, member, kinds, expires_at) VALUES ('00000000-0000-0000-0000-000000000001', 'node-1', 'node-1-0a', '{k}', now() + interval '1 day');
		UPDATE tenure.acquire_lock SET holder = '00000000-0000-0000-0000-000000000001', holder_member = 'node-1-0a', epoch = 1, taken_at = now(), renewed_at = now(), expires_at = now() + interval '1 day';
		INSERT INTO tenure.lock_change (epoch, change, node, member) VALUES (1, 'taken', 'node-1', 'node-1-0a')`)
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = deaf.Close() })
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{}
	for i := range pools {
		name := fmt.Sprintf("pool-%04d", i+1)
		if i%100 == 99 {
			cfg.Pools[name] = routing.PoolConfig{DSN: fmt.Sprintf("postgres://app@%s/deaf_%d?sslmode=disable", deaf.Addr(), i)}
			continue
		}
		require.NoError(b, server.CloneDatabase(b.Context(), "template", name))
		exec(name, fmt.Sprintf("UPDATE tenure.pool SET number = %d, name = '%s'", i+1, name))
		cfg.Pools[name] = routing.PoolConfig{DSN: server.DSN(name)}
	}
	client, err := tenure.NewClient(cfg, tenure.WithKinds(job.NewRegistry()))
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(b, client.Start(ctx))
	b.Cleanup(func() { require.NoError(b, client.Stop(context.Background())) })
	return client.Operator()
}

// BenchmarkPages fetches pages that show all pools, every 100 ms, as many who look do. TENURE_BENCH_POOLS says how many
// pools there are; a hundredth of them does not answer.
func BenchmarkPages(b *testing.B) {
	pools := 100
	if text := os.Getenv("TENURE_BENCH_POOLS"); text != "" {
		var err error
		pools, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	op := manyPools(b, pools)
	handler, err := dashboard.Handler(op, dashboard.Settings{Prefix: "/ops"})
	require.NoError(b, err)
	for _, path := range []string{"/", "/cluster", "/pools"} {
		b.Run(fmt.Sprintf("%d pools %s", pools, path), func(b *testing.B) {
			bed := &benchBed{b, handler}
			for until := time.Now().Add(2 * time.Minute); bed.get(path).unknown > 0 && time.Now().Before(until); { // until all have answered or failed
				time.Sleep(time.Second)
			}
			var took []time.Duration
			for b.Loop() {
				p := bed.get(path)
				require.Zero(b, p.unknown)
				took = append(took, p.took)
				b.StopTimer()
				time.Sleep(100 * time.Millisecond)
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
		})
	}
}

type benchBed struct {
	b       *testing.B
	handler http.Handler
}

// fetched is a page that was fetched: how long it took, and of how many pools it did not know anything.
type fetched struct {
	took    time.Duration
	unknown int
}

func (bed *benchBed) get(path string) fetched {
	r := httptest.NewRequest(http.MethodGet, "/ops"+path, nil)
	r = r.WithContext(access.With(r.Context(), access.Grant{Name: "bench", Role: access.Admin}))
	w := httptest.NewRecorder()
	began := time.Now()
	bed.handler.ServeHTTP(w, r)
	took := time.Since(began)
	require.Equal(bed.b, http.StatusOK, w.Code)
	return fetched{took, strings.Count(w.Body.String(), `data-tone="warn">unknown<`)}
}
