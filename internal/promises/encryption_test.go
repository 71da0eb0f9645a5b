package promises_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

// secretKey is a key as the configuration has it.
func secretKey(id string) string {
	return id + ":" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(id[:1], encryption.KeySize)))
}

// paper is a job with something to hide, whose handler gets several.
type paper struct {
	Text string `json:"text"`
}

func (paper) Kind() string { return "paper" }

// Arguments are nowhere in the ledger to be read, whichever way they come to it, and in every handler;
// without the key they are nowhere.
func TestEncryptedArguments(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Encryption.Keys = []string{secretKey("a")}
	b.cfg.Encryption.Tenants = map[tenancy.ID]encryption.TenantKeys{"t2": {Keys: []string{secretKey("own")}}}
	seen := make(chan string, 100)
	r := job.NewRegistry()
	tenure.HandleTx(r, func(_ context.Context, _ pgx.Tx, j *job.Job[odder]) error {
		seen <- j.Args.Text
		return nil
	})
	job.HandleBatch(r, func(_ context.Context, of *job.Batch[paper]) error {
		for _, j := range of.Jobs {
			seen <- j.Args.Text
		}
		return nil
	})
	n := b.start(b.cfg, r)
	c := n.Client()
	t1, t2 := tenancy.For(t.Context(), "t1"), tenancy.For(t.Context(), "t2")
	gets := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			select {
			case text := <-seen:
				got = append(got, text)
			case <-time.After(patience):
				require.Fail(t, "some jobs did not run", "only %v of %v", got, want)
			}
		}
		require.ElementsMatch(t, want, got)
	}
	_, err := c.Enqueue(t1, odder{Text: "hidden one"})
	require.NoError(t, err)
	_, err = c.EnqueueMany(t1, []tenure.Entry{{Args: paper{"hidden two"}}, {Tenant: "t2", Args: paper{"hidden three"}}, {Args: odder{Text: "hidden four"}, Options: []tenure.Option{tenure.In(time.Millisecond)}}})
	require.NoError(t, err)
	require.NoError(t, c.InTx(t1, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.EnqueueTx(ctx, tx, odder{Text: "hidden five"}, tenure.UniqueArgs(0))
		return err
	}))
	b.exec("p1", `SELECT tenure.enqueue('t1', 'odder', '{"text": "open six"}')`)
	gets("hidden one", "hidden two", "hidden three", "hidden four", "hidden five", "open six")
	require.Eventually(t, func() bool { return b.count("p1", "SELECT count(*) FROM tenure.completed_job") == 6 }, patience, 10*time.Millisecond)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE payload::text LIKE '%hidden%'"))
	require.Equal(t, 4, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE payload->1->>'key' = 'a'"))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE payload->1->>'key' = 'own' AND tenant_id = 't2'"))

	// What cannot be decoded is not quoted.
	for _, hidden := range []string{`{"text": 47114711}`, `{"text": "", "at": "hidden time"}`} {
		_, err = c.Enqueue(t1, job.RawArgs{Name: "odder", Payload: []byte(hidden)}, tenure.MaxAttempts(1))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job") == 2 }, patience, 10*time.Millisecond)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job_error WHERE error LIKE '%text cannot be a JSON number, as it is a string%'"))
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.job_error WHERE error NOT LIKE '%47114711%' AND error NOT LIKE '%hidden%'"))
	b.exec("p1", "DELETE FROM tenure.dead_letter_job")

	// Keys are changed while the node runs, and dropped.
	later, err := c.Enqueue(t1, odder{Text: "hidden seven"}, tenure.In(time.Hour))
	require.NoError(t, err)
	kept, err := c.Enqueue(t2, paper{"hidden eight"}, tenure.In(time.Hour))
	require.NoError(t, err)
	cfg := b.cfg
	cfg.Encryption.Keys = []string{secretKey("b"), secretKey("a")}
	cfg.Encryption.Tenants = map[tenancy.ID]encryption.TenantKeys{"t2": {}}
	require.NoError(t, n.reload(cfg))
	o := c.Operator()
	_, err = c.Enqueue(t1, odder{Text: "hidden nine"})
	require.NoError(t, err)
	require.NoError(t, o.Jobs().Retry(t.Context(), later.ID))
	gets("hidden seven", "hidden nine")
	require.Eventually(t, func() bool {
		return b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE payload->1->>'key' = 'b'") == 1
	}, patience, 10*time.Millisecond)
	_, err = c.Enqueue(t2, paper{"hidden ten"})
	require.ErrorIs(t, err, encryption.ErrNoKey)
	require.NoError(t, o.Jobs().Retry(t.Context(), kept.ID))
	var dead operate.JobStatus
	require.Eventually(t, func() bool {
		dead, _, err = o.Jobs().Get(t.Context(), kept.ID)
		require.NoError(t, err)
		return dead.State == "dead"
	}, patience, 10*time.Millisecond)
	require.Equal(t, 1, dead.Attempt)
	require.Contains(t, dead.Error, `decrypt the arguments of kind "paper" for tenant "t2" with key "own": there is no such key`)
	_, err = o.Jobs().OpenPayload(t.Context(), dead)
	require.ErrorIs(t, err, encryption.ErrNoKey)

	// Nobody makes another tenant's job of one.
	b.exec("p1", "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't1', queue, kind, payload FROM tenure.dead_letter_job")
	b.exec("p1", "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't1', queue, 'paper', payload FROM tenure.completed_job WHERE payload->1->>'key' = 'b'")
	require.Eventually(t, func() bool { return b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job") == 3 }, patience, 10*time.Millisecond)
	require.Empty(t, seen)
}

// odder is a job with text.
type odder struct {
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`
}

func (odder) Kind() string { return "odder" }

// What the ledger keeps of a request with an Idempotency-Key tells nothing of arguments that it keeps encrypted: a guess
// could be checked by it.
func TestAnIdempotencyKeyTellsNothingOfEncryptedArguments(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Encryption.Keys, b.cfg.Encryption.Kinds = []string{secretKey("a")}, []string{"paper"}
	site, err := web.Handler(b.client(b.named("client")), web.Settings{})
	require.NoError(t, err)
	post := func(path, key, body string) int {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/api/v1"+path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		return w.Code
	}
	for path, body := range map[string]string{
		"/jobs":      `{"tenant": "t1", "kind": "%s", "args": {"text": "%s"}}`,
		"/jobs/many": `{"jobs": [{"tenant": "t1", "kind": "%s", "args": {"text": "%s"}}]}`,
		"/batches":   `{"tenant": "t1", "then": {"kind": "other", "args": {}}, "jobs": [{"kind": "%s", "args": {"text": "%s"}}]}`,
	} {
		require.Equal(t, http.StatusOK, post(path, path+" a", fmt.Sprintf(body, "paper", "one")))
		require.Equal(t, http.StatusOK, post(path, path+" a", fmt.Sprintf(body, "paper", "another")), "whether they are the same is not told")
		require.Equal(t, http.StatusOK, post(path, path+" b", fmt.Sprintf(body, "paper", "another")))
		require.Equal(t, http.StatusOK, post(path, path+" c", fmt.Sprintf(body, "other", "one")))
		require.Equal(t, http.StatusUnprocessableEntity, post(path, path+" c", fmt.Sprintf(body, "other", "another")), "of a kind that is not encrypted")
	}
	require.Equal(t, 6, b.count("p1", "SELECT count(DISTINCT meta->>'tenure:request') FROM (SELECT meta FROM tenure.job UNION ALL SELECT meta FROM tenure.timer_job) all_of_them"))
}
