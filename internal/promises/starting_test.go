package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// A program that enqueues while its node starts need not wait for the start by itself,
// wherever its tenants are listed.
func TestEnqueueWhileTheNodeStarts(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(b *testbed){
		"static": func(*testbed) {},
		"table": func(b *testbed) {
			b.exec("p1", `CREATE TABLE public.place (id text, pool text); INSERT INTO public.place VALUES ('t1', 'p1');
				GRANT SELECT ON public.place TO PUBLIC`)
			b.cfg.Tenants.Static = nil
			b.cfg.Tenants.Table = &routing.TableConfig{Pool: "p1", Query: "SELECT pool FROM public.place WHERE id = $1", Cache: time.Minute}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			place(b)
			ran := make(chan job.ID, 3)
			n, err := tenure.New(b.cfg, b.registry(func(id job.ID) { ran <- id }), tenure.WithLogger(b.log.logger("test")))
			require.NoError(t, err)
			ctx := tenancy.For(t.Context(), "t1")
			calls := []func() error{
				func() error { _, err := n.Client().Enqueue(ctx, plain{1}); return err },
				func() error { _, err := n.Client().EnqueueMany(ctx, []tenure.Entry{{Args: plain{2}}}); return err },
				func() error {
					return n.Client().InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
						_, err := n.Client().EnqueueTx(ctx, tx, plain{3})
						return err
					})
				},
			}
			errs := make(chan error, len(calls))
			for _, call := range calls {
				go func() { errs <- call() }()
			}
			select {
			case err := <-errs:
				t.Fatalf("a call came back before the node was started: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			require.NoError(t, n.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, n.Stop(context.Background())) })
			for range calls {
				require.NoError(t, <-errs)
				<-ran
			}
		})
	}
}

// Nobody waits longer than they are willing to, nor for a database that does not answer.
func TestEnqueueDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.exec("p2", "ALTER SCHEMA tenure RENAME TO hidden")
	n, err := tenure.New(b.cfg, b.registry(nil))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(tenancy.For(t.Context(), "t1"), 20*time.Millisecond)
	defer cancel()
	_, err = n.Client().Enqueue(ctx, plain{1})
	require.ErrorIs(t, err, tenure.ErrPoolDown)
	require.ErrorContains(t, err, "must have been started")

	b.cfg.Pools["p1"] = routing.PoolConfig{DSN: "postgres://nobody@127.0.0.1:1/none"}
	c, err := tenure.NewClient(b.cfg)
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	bounded, cancel := context.WithTimeoutCause(tenancy.For(t.Context(), "t1"), patience, errors.New("it was waited for"))
	defer cancel()
	_, err = c.Enqueue(bounded, plain{1})
	require.ErrorIs(t, err, tenure.ErrPoolDown)
	require.False(t, tenure.Refused(err))
	_, err = c.Enqueue(tenancy.For(bounded, "t2"), plain{1})
	require.ErrorContains(t, err, "tenure migrate --pool p2")
	require.NotErrorIs(t, err, tenure.ErrPoolDown)
	require.True(t, tenure.Refused(err))
	pool, down := tenure.DownPool(err)
	require.True(t, down)
	require.Equal(t, "p2", pool)
	require.NoError(t, bounded.Err())
}

// Who calls before the start, after the stop, or starts twice, is told that.
func TestStartedOnceAndStopped(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	ctx := tenancy.For(t.Context(), "t1")
	c, err := tenure.NewClient(b.cfg)
	require.NoError(t, err)
	n, err := tenure.New(b.cfg, b.registry(nil), tenure.WithLogger(b.log.logger("test")))
	require.NoError(t, err)
	calls := func(c *tenure.Client) error {
		_, err := c.Enqueue(ctx, plain{1})
		_, many := c.EnqueueMany(ctx, []tenure.Entry{{Args: plain{1}}})
		in := c.InTx(ctx, func(context.Context, pgx.Tx) error { return nil })
		require.ErrorContains(t, many, err.Error()[len("enqueue plain: "):])
		require.ErrorContains(t, in, err.Error()[len("enqueue plain: "):])
		return err
	}
	require.EqualError(t, calls(c), "enqueue plain: the client is not started: call Start")
	for name, life := range map[string]struct {
		part interface {
			Start(context.Context) error
			Stop(context.Context) error
		}
		client *tenure.Client
	}{"client": {c, c}, "node": {n, n.Client()}} {
		require.NoError(t, life.part.Start(t.Context()))
		require.ErrorContains(t, life.part.Start(t.Context()), "the "+name+" was started")
		_, err := life.client.Enqueue(ctx, plain{1})
		require.NoError(t, err)
		require.NoError(t, life.part.Stop(t.Context()))
		require.EqualError(t, calls(life.client), "enqueue plain: the "+name+" is stopped")
		_, err = life.client.Operator().Jobs().List(t.Context(), operate.JobFilter{})
		require.ErrorContains(t, err, "or the node or client is stopped")
		require.ErrorContains(t, life.part.Start(t.Context()), "make another one with New")
	}
}

// A program that only enqueues is told that a database cannot be reached, and which, as a node's is; what was not sent is not
// mistaken for what may have been done.
func TestAClientSaysThatAPoolIsDown(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	cfg, proxy := b.behind(b.cfg, "p1")
	cfg.Cluster = nil
	c, ctx := b.client(cfg), tenancy.For(t.Context(), "t1")
	calls := map[string]func() error{
		"Enqueue":     func() error { _, err := c.Enqueue(ctx, plain{1}); return err },
		"EnqueueMany": func() error { _, err := c.EnqueueMany(ctx, []tenure.Entry{{Args: plain{2}}}); return err },
		"EnqueueBatch": func() error {
			_, err := c.EnqueueBatch(ctx, tenure.Batch{Then: plain{3}, Jobs: []tenure.Entry{{Args: plain{4}}}})
			return err
		},
		"InTx": func() error { return c.InTx(ctx, func(context.Context, pgx.Tx) error { return nil }) },
	}
	for name, call := range calls {
		require.NoError(t, call(), name)
	}
	proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	proxy.Cut(nil)
	defer proxy.SetRule(nil)
	for name, call := range calls {
		var err error
		require.Eventually(t, func() bool { err = call(); return errors.Is(err, tenure.ErrPoolDown) }, patience, time.Millisecond, "%s: connections that are broken are gone after a call each", name)
		pool, down := tenure.DownPool(err)
		require.Equal(t, []any{"p1", true, false}, []any{pool, down, tenure.Refused(err)}, "%s: %v", name, err)
		require.ErrorIs(t, call(), tenure.ErrPoolDown, name)
	}
	proxy.SetRule(nil)
	for name, call := range calls {
		require.Eventually(t, func() bool { return call() == nil }, patience, 10*time.Millisecond, name)
	}
}
