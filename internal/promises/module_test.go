package promises_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// chain handles write and enqueues plain: it needs the client that the node it
// belongs to provides.
type chain struct{ jobs *tenure.Client }

func newChain(jobs *tenure.Client) *chain { return &chain{jobs} }

func (c *chain) Register(r *job.Registry) {
	job.Handle(r, func(ctx context.Context, j *job.Job[write]) error {
		_, err := c.jobs.Enqueue(ctx, plain{j.Args.N})
		return err
	})
	job.Handle(r, func(context.Context, *job.Job[plain]) error { return nil })
}

func TestModuleLetsHandlersEnqueue(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	var jobs *tenure.Client
	var op *operate.Operator
	app := fxtest.New(t, tenure.Module, fx.Supply(b.cfg),
		fx.Supply(fx.Annotated{Group: "tenure.options", Target: tenure.WithVersion("v9")}, fx.Annotated{Group: "tenure.options", Target: tenure.WithLogger(b.log.logger("fx"))}),
		fx.Provide(tenure.AsRegistrar(newChain)), fx.Populate(&jobs, &op), fx.StopTimeout(tenure.StopTimeout(b.cfg)))
	app.RequireStart()
	_, err := jobs.Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	b.finished(jobs, 2)
	all, err := op.Jobs().List(t.Context(), operate.JobFilter{State: "done"})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.node_session WHERE version = 'v9'"))
	require.True(t, b.log.says("acquire lock taken"))
	app.RequireStop()
}

// Run is not for a node of an Fx application, and says so at once.
func TestModuleRefusesRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	var n *tenure.Node
	app := fxtest.New(t, tenure.Module, fx.Supply(b.cfg, b.log.logger("fx")), fx.Populate(&n), fx.StopTimeout(tenure.StopTimeout(b.cfg)))
	require.EqualError(t, n.Run(t.Context()), "this node belongs to an fx application, which starts and stops it")
	require.False(t, b.log.says("starting"))
	app.RequireStart()
	app.RequireStop()
}

func TestANodeWithoutHandlersStarts(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.start(b.cfg, job.NewRegistry()).holds("p1")
}
