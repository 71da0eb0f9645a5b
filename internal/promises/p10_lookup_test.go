package promises_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP10TheLookupTableIsSilent: the database in which tenants are looked up does not answer
// those who look, or nobody. A tenant that was placed before goes on being served in its
// pool, whose other jobs wait for nobody, and one that was not is once the table answers.
func TestP10TheLookupTableIsSilent(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]func(*faultproxy.Proxy) (over func()){
		"who looks": func(p *faultproxy.Proxy) func() {
			goOn := make(chan struct{})
			p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
				if strings.Contains(e.SQL, "app.tenant") {
					<-goOn
				}
				return faultproxy.Pass
			})
			return sync.OnceFunc(func() {
				p.SetRule(nil)
				close(goOn)
			})
		},
		"all": func(p *faultproxy.Proxy) func() {
			p.Hold(func(string) bool { return true })
			return func() { p.Hold(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 2, 2)
			b.exec("p1", "CREATE SCHEMA app; CREATE TABLE app.tenant (id text PRIMARY KEY, pool text); INSERT INTO app.tenant VALUES ('t3', 'p2'), ('t4', 'p2');"+
				"GRANT USAGE ON SCHEMA app TO PUBLIC; GRANT SELECT ON app.tenant TO PUBLIC")
			cfg, proxy := b.behind(b.cfg, "p1")
			cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"t1": {Pool: "p1"}}
			cfg.Tenants.Table = &routing.TableConfig{Pool: "p1", Query: "SELECT pool FROM app.tenant WHERE id = $1", Cache: 50 * time.Millisecond}
			n := b.start(cfg, b.registry(nil))
			n.holds("p2")
			ctx, cancel := context.WithTimeout(tenancy.For(t.Context(), "t3"), patience)
			defer cancel()
			_, err := n.Client().Enqueue(ctx, write{0})
			require.NoError(t, err)
			done := func(tenant string) string {
				return "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = '" + tenant + "'"
			}
			b.eventually(1, "p2", done("t3"))

			over := silence(proxy)
			defer over()
			b.exec("p2", `INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT tenant_id, queue, kind, payload FROM
				(SELECT 't4' AS tenant_id, queue, kind, payload FROM tenure.completed_job LIMIT 1) AS like_it`)
			time.Sleep(2 * cfg.Tenants.Table.Cache) // what is known of t3 is old
			for i := range 5 {
				_, err := n.Client().Enqueue(ctx, write{i})
				require.NoError(t, err)
				b.eventually(2+i, "p2", done("t3"))
			}
			require.Zero(t, b.count("p2", done("t4")))
			require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.job WHERE tenant_id = 't4'"))
			over()
			b.eventually(1, "p2", done("t4"))
		})
	}
}
