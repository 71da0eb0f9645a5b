package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A page says that it could not be printed at once, so that the next ones are not tried: what one tenant's
// payloads take is not waited for twice. Apart, others' are printed first, however they stand.
func TestSlowPagesSaySo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(tenant, payload string) {
		_, err := b.owner.Exec(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT $1, 'default', 'k', "+payload, tenant)
		require.NoError(t, err)
	}
	read := func(apart bool) (slow bool, printed, tooLarge map[string]int) {
		req := store.PageRequest{Apart: apart}
		lanes, err := store.Lanes(t.Context(), b.db, 100)
		require.NoError(t, err)
		for _, l := range lanes {
			req.Add(l, 0, 10)
		}
		p, err := store.ReadPage(t.Context(), b.db, &req, store.KindsOf([]string{"k"}), false)
		require.NoError(t, err)
		printed, tooLarge = map[string]int{}, map[string]int{}
		for _, j := range p.Jobs {
			if j.Record.Payload != nil {
				printed[j.Record.Tenant]++
			}
			if j.TooLarge {
				tooLarge[j.Record.Tenant]++
			}
		}
		return p.Slow, printed, tooLarge
	}
	add("small", "'{}'")
	for _, apart := range []bool{false, true} {
		slow, printed, _ := read(apart)
		require.False(t, slow && !apart)
		require.Equal(t, map[string]int{"small": 1}, printed)
	}
	add("large", "jsonb_agg('1e100000'::numeric) FROM generate_series(1, 11000)") // Postgres cannot print as much
	for _, apart := range []bool{false, true} {
		slow, printed, tooLarge := read(apart)
		require.Equal(t, map[string]int{"small": 1}, printed)
		require.Equal(t, map[string]int{"large": 1}, tooLarge)
		if !apart {
			require.True(t, slow)
		}
	}
}

// What is printed apart can be used, however little of it there is time for.
func TestPagesArePrintedInOrder(t *testing.T) {
	t.Parallel()
	var jobs []store.Waiting
	for lane, sizes := range [][]int64{{9, 1, 2}, {2, 3}, {4}} {
		for n, size := range sizes {
			jobs = append(jobs, store.Waiting{Lane: lane, Bytes: size, Left: size != 4, Record: job.Record{ID: job.ID(10*lane + n)}})
		}
	}
	var ids []job.ID
	for _, w := range store.OrderApart(jobs) {
		ids = append(ids, w.Record.ID)
	}
	require.Equal(t, []job.ID{10, 11, 0, 1, 2}, ids)
}
