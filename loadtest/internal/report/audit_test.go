package report

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// What the audit says of exclusive keys, in the transaction of a claim: that a job starts, which one is in
// flight beside it, and which one should have gone before it; and of limits what is beyond them.
func TestAuditOfClaims(t *testing.T) {
	t.Parallel()
	owner, _ := storetest.Pools(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := owner.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec(AuditSQL)
	add := func(key string, attempt int) (id job.ID) {
		t.Helper()
		require.NoError(t, owner.QueryRow(t.Context(), `INSERT INTO tenure.job (turn, tenant_id, queue, kind, payload, exclusive_key, attempt)
			VALUES (1, 't', 'q', 'k', '1', nullif($1, ''), $2) RETURNING id`, key, attempt).Scan(&id))
		return id
	}
	seen := int64(0)
	type said struct {
		what string
		jobs []job.ID
	}
	says := func(want ...said) {
		t.Helper()
		conn, err := owner.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		events, err := ReadAudit(t.Context(), "p", conn.Conn())
		require.NoError(t, err)
		var got []said
		for _, e := range events {
			if e.Seq > seen && e.What != "claimed" && e.What != "released" {
				got = append(got, said{e.What, e.Jobs})
			}
			seen = max(seen, e.Seq)
		}
		require.ElementsMatch(t, want, got)
	}
	claim := func(ids ...job.ID) {
		t.Helper()
		exec("INSERT INTO tenure.claim (session_id, turn, job_ids) VALUES ($1, 1, $2)", uuid.New(), ids)
	}
	end := func(id job.ID) {
		t.Helper()
		exec("DELETE FROM tenure.claim WHERE $1 = ANY (job_ids)", int64(id))
		exec("DELETE FROM tenure.job WHERE id = $1", int64(id))
	}

	first, second, other, free := add("a", 0), add("a", 0), add("b", 0), add("", 0)
	claim(free)
	says()
	claim(first, other)
	says(said{"keyed", []job.ID{first}}, said{"keyed", []job.ID{other}})
	claim(second)
	says(said{"keyed", []job.ID{second}}, said{"beside", []job.ID{second, first}})
	exec("DELETE FROM tenure.claim WHERE $1 = ANY (job_ids)", int64(second))
	end(first)
	third := add("a", 0)
	claim(third)
	says(said{"keyed", []job.ID{third}}, said{"overtaken", []job.ID{third, second}})
	end(third)

	again := add("a", 1) // it was tried before
	claim(second)
	says(said{"keyed", []job.ID{second}}, said{"overtaken", []job.ID{second, again}})
	exec("DELETE FROM tenure.claim WHERE $1 = ANY (job_ids)", int64(second))
	claim(again)
	says(said{"keyed", []job.ID{again}})
	exec("DELETE FROM tenure.claim WHERE $1 = ANY (job_ids)", int64(again))
	exec(`WITH gone AS (DELETE FROM tenure.job WHERE id = $1 RETURNING id, tenant_id, queue, kind, payload, exclusive_key)
		INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, exclusive_key, attempt, due_at) SELECT gone.*, 2, now() FROM gone`, int64(again))
	claim(second)
	says(said{"keyed", []job.ID{second}}, said{"overtaken", []job.ID{second, again}})

	exec("INSERT INTO tenure.job_limit (tenant_id, scope, name, max_running) VALUES ('t', 'kind', 'k', 2)")
	beyond := add("", 0)
	claim(beyond)
	says(said{"excess", []job.ID{beyond}})
}
