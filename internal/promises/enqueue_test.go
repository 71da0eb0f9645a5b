package promises_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// amount is a job whose arguments may be impossible.
type amount struct {
	Text  string  `json:"text,omitempty"`
	Value float64 `json:"value,omitempty"`
	Deep  any     `json:"deep,omitempty"`
}

func (amount) Kind() string { return "plain" }

// odd is a job of any kind.
type odd string

func (o odd) Kind() string { return string(o) }

func nested(depth int) (v any) {
	for range depth {
		v = []any{v}
	}
	return v
}

// What cannot be is refused before anything is written, one by one and in bulk, and
// as the caller's mistake.
func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	c := b.node(b.cfg, b.registry(nil)).Client()
	far := tenure.In(time.Hour) // or what goes wrong here would run
	for name, tc := range map[string]struct {
		args   job.Args
		option tenure.Option
		tenant tenancy.ID
		says   string
	}{
		"no kind":                   {args: odd(""), says: `kind "": 1 to 128`},
		"a long kind":               {args: odd(strings.Repeat("k", 129)), says: "1 to 128"},
		"an unknown kind":           {args: odd("plaim"), says: "no handler is registered"},
		"a queue":                   {option: tenure.OnQueue("a b"), says: `queue "a b"`},
		"an argument's size":        {args: amount{Text: strings.Repeat("x", job.MaxPayload)}, says: "262144 are allowed"},
		"an argument's NUL":         {args: amount{Text: "\x00"}, says: `\u0000`},
		"an argument's depth":       {args: amount{Deep: nested(101)}, says: "nested deeper than 100"},
		"an argument's number":      {args: amount{Value: math.Inf(1)}, says: "unsupported value"},
		"raw arguments":             {args: job.RawArgs{Name: "plain", Payload: []byte(`{"n": 1e999}`)}, says: "exponent beyond"},
		"raw arguments, no JSON":    {args: job.RawArgs{Name: "plain", Payload: []byte(`{`)}, says: "not valid JSON"},
		"raw arguments, no UTF-8":   {args: job.RawArgs{Name: "plain", Payload: []byte("\"\xff\"")}, says: "not UTF-8"},
		"a high priority":           {option: tenure.Priority(job.MaxPriority + 1), says: "-1000 to 1000"},
		"a low priority":            {option: tenure.Priority(job.MinPriority - 1), says: "-1000 to 1000"},
		"no attempts":               {option: tenure.MaxAttempts(0), says: "1 to 1000"},
		"many attempts":             {option: tenure.MaxAttempts(1001), says: "1 to 1000"},
		"before its time":           {option: tenure.In(-1), says: "0 to"},
		"too late":                  {option: tenure.In(math.MaxInt64), says: "0 to"},
		"no time":                   {option: tenure.At(time.Time{}), says: "years 1970 to 9999"},
		"the far future":            {option: tenure.At(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)), says: "years 1970 to 9999"},
		"no key":                    {option: tenure.Unique(""), says: "1 to 1024"},
		"a long key":                {option: tenure.Unique(strings.Repeat("k", 1025)), says: "1 to 1024"},
		"a key's NUL":               {option: tenure.Unique("a\x00"), says: "NUL"},
		"a key that is no text":     {option: tenure.Unique("a\xff"), says: "UTF-8"},
		"a long correlation id":     {option: tenure.Correlation(strings.Repeat("k", 1025)), says: "1024"},
		"a correlation id, no text": {option: tenure.Correlation("\xc3("), says: "UTF-8"},
		"a value beside":            {option: tenure.Meta(map[string]any{"a": func() {}}), says: "meta: "},
		"a value's NUL":             {option: tenure.Meta(map[string]any{"a": "\x00"}), says: `\u0000`},
		"an unknown tenant":         {tenant: "nobody", says: `unknown tenant "nobody"`},
		"a tenant's id":             {tenant: "t1\xff", says: "UTF-8"},
		"a tenant's space":          {tenant: " t1", says: "white space"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.args == nil {
				tc.args = plain{}
			}
			if tc.tenant == "" {
				tc.tenant = "t1"
			}
			options := []tenure.Option{far}
			if tc.option != nil {
				options = append(options, tc.option)
			}
			_, err := c.Enqueue(tenancy.For(t.Context(), tc.tenant), tc.args, options...)
			require.ErrorContains(t, err, tc.says)
			require.True(t, tenure.Refused(err), "%v", err)
			added, err := c.EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: plain{}, Options: []tenure.Option{far}}, {Tenant: tc.tenant, Args: tc.args, Options: options}})
			require.ErrorContains(t, err, "nothing was enqueued: entry 1")
			require.ErrorContains(t, err, tc.says)
			require.True(t, tenure.Refused(err), "%v", err)
			require.Empty(t, added)
		})
	}
	_, err := c.Enqueue(t.Context(), plain{})
	require.ErrorIs(t, err, tenancy.ErrNoTenant)
	require.True(t, tenure.Refused(err))
	counts, err := c.Operator().Pools().Count(t.Context())
	require.NoError(t, err)
	for _, n := range counts {
		require.Zero(t, n.Waiting+n.Timers+n.Finished+n.Dead)
	}
}

// What was left out is said instead of a panic.
func TestEnqueueRefusesNil(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	c := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	entries := []tenure.Entry{{Args: plain{}}, {}}
	for says, call := range map[string]func() error{
		"entry 1: the job's arguments are nil":                        func() error { _, err := c.EnqueueMany(ctx, entries); return err },
		"enqueue: the job's arguments are nil":                        func() error { _, err := c.Enqueue(ctx, nil); return err },
		"enqueue: the job's arguments are a nil *promises_test.plain": func() error { _, err := c.Enqueue(ctx, (*plain)(nil)); return err },
		"option 1 is nil": func() error { _, err := c.Enqueue(ctx, plain{}, tenure.Priority(1), nil); return err },
		"the completion job: the job's arguments are nil": func() error { _, err := c.EnqueueBatch(ctx, tenure.Batch{Jobs: entries[:1]}); return err },
		"job 1: the job's arguments are nil":              func() error { _, err := c.EnqueueBatch(ctx, tenure.Batch{Then: plain{}, Jobs: entries}); return err },
		"InTx: the function is nil":                       func() error { return c.InTx(ctx, nil) },
		"the transaction is nil: pass":                    func() error { _, err := c.EnqueueTx(ctx, nil, plain{}); return err },
		"the transaction is nil: pass the tx that Begin":  func() error { _, err := c.EnqueueManyTx(ctx, nil, entries); return err },
		"the transaction is nil":                          func() error { _, err := c.EnqueueSQLTx(ctx, nil, plain{}); return err },
		"nil: pass a value of the type": func() error {
			return c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := c.EnqueueTx(ctx, tx, nil)
				return err
			})
		},
	} {
		var input *job.InputError
		err := call()
		require.ErrorAs(t, err, &input, says)
		require.ErrorContains(t, err, says)
	}
	_, err := tenure.New(b.cfg, nil)
	require.ErrorContains(t, err, "job.NewRegistry")
}

// A job can only be added in a transaction on its tenant's database that has not failed.
func TestEnqueueTxRefuses(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	c := b.node(b.cfg, b.registry(nil)).Client()
	ctx := tenancy.For(t.Context(), "t1")
	for pool, says := range map[string]string{"p2": `tenant "t1" lives in pool p1, but the transaction is on database`, "p1": "the transaction had failed before"} {
		tx, err := b.db[pool].Begin(ctx)
		require.NoError(t, err)
		if pool == "p1" {
			_, err = tx.Exec(ctx, "SELECT 1/0")
			require.Error(t, err)
		}
		_, err = c.EnqueueTx(ctx, tx, plain{}, tenure.In(time.Hour))
		require.ErrorContains(t, err, says)
		require.Equal(t, pool == "p2", tenure.Refused(err))
		require.NoError(t, tx.Rollback(context.WithoutCancel(ctx)))
	}
	err := c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.EnqueueTx(tenancy.For(ctx, "t2"), tx, plain{}, tenure.In(time.Hour))
		return err
	})
	require.ErrorIs(t, err, tenure.ErrWrongPool)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.timer_job")+b.count("p2", "SELECT count(*) FROM tenure.timer_job"))
}
