package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// What was seen before a pause is not shown as how it stands: a page waits for a new look, and if that takes too long
// the pool is one of which nothing is known.
func TestNothingOldLooksNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		takes, dead := 20*time.Millisecond, int64(0)
		var mu sync.Mutex // guards these: a look may outlast who asked for it
		set := func(t time.Duration, d int64) {
			mu.Lock()
			defer mu.Unlock()
			takes, dead = t, d
		}
		l := newLooker(new(operate.Operator))
		l.names = func() []string { return []string{"p1"} }
		l.askOne = func(context.Context, string) (seen operate.PoolOverview, _ error) {
			mu.Lock()
			seen.Load.Dead, seen.Load.Finished = dead, 1000*dead
			sleep := takes
			mu.Unlock()
			time.Sleep(sleep)
			return seen, nil
		}
		l.wrong = func(context.Context, string) (found operate.PoolFindings, _ error) { return found, nil }
		look := func(wantDead int64, waits time.Duration) glance {
			t.Helper()
			began := time.Now()
			g := l.look(t.Context())["p1"]
			require.Equal(t, waits, time.Since(began))
			require.Equal(t, wantDead, g.seen.Load.Dead)
			return g
		}
		look(0, 20*time.Millisecond)
		time.Sleep(75 * time.Second)
		set(500*time.Millisecond, 300)
		g := look(300, 500*time.Millisecond)
		finished, _, _ := g.perSecond()
		require.Zero(t, finished, "a rate over the pause is none of late")

		time.Sleep(3 * time.Second)
		look(300, patience)
		time.Sleep(81 * time.Second)
		set(time.Minute, 300)
		began := time.Now()
		g = l.look(t.Context())["p1"]
		require.Equal(t, lookWithin, time.Since(began))
		require.True(t, g.begun.IsZero())
		require.Nil(t, g.seen)
		state, why := new(visit).poolState(&poolRow{}, g, nil)
		require.Equal(t, "unknown", state)
		require.Len(t, problemsOf(poolRow{Name: "p1", State: state, Why: why}), 1)
		time.Sleep(2 * time.Minute)
	})
}

// However many tabs ask for the same, one at a time asks the databases; who may see something else asks for himself, and
// nobody is shown what was looked up before an action.
func TestTabsShareALook(t *testing.T) {
	t.Parallel()
	pages, err := parsePages("")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := &site{pages: pages, looker: newLooker(new(operate.Operator)), dead: newDeadCounts(nil)}
		var mu sync.Mutex
		page := s.page(func(v *visit) (view, error) {
			mu.Lock()
			looks++
			n := looks
			mu.Unlock()
			time.Sleep(time.Second)
			return view{Page: "error", Body: fmt.Sprint("look ", n)}, nil
		})
		ask := func(path string, g access.Grant) string {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r.WithContext(access.With(r.Context(), g)))
			return w.Body.String()
		}
		ann, bob := access.Grant{Name: "ann", Role: access.Admin}, access.Grant{Name: "bob", Role: access.Admin}
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { assert.Contains(t, ask("/jobs/1", ann), ">ann<") })
			group.Go(func() { assert.Contains(t, ask("/jobs/1", bob), ">bob<") })
		}
		synctest.Wait()
		group.Go(func() { ask("/jobs/1", access.Grant{Role: access.Admin, Args: true}) })
		group.Go(func() { ask("/jobs/1", access.Grant{Role: access.Read}) })
		group.Go(func() { ask("/jobs/1", access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"acme"}}) })
		group.Go(func() { ask("/jobs/2", ann) })
		synctest.Wait()
		mu.Lock()
		asked := looks
		mu.Unlock()
		assert.Equal(t, 5, asked)
		s.tables.expire()
		assert.Contains(t, ask("/jobs/1", ann), "look 6")
		group.Wait()
		assert.Contains(t, ask("/jobs/1", ann), "look 7")
	})
}
