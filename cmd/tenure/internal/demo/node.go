package demo

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
)

const nodeCommandName = "demo-node"

// NodeCommand returns what each node process of the demo runs. Its standard input is a
// pipe from the demo: when that closes, the demo is gone, and so is the node.
func NodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: nodeCommandName + " CONFIG", Short: "Run a node of the demo", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := config.Load(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			go func() { // ends with the process
				_, _ = io.Copy(io.Discard, os.Stdin)
				cancel()
			}()
			log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.Lock(os.Stderr), zap.InfoLevel))
			n, err := tenure.New(cfg, registry(cfg.Node.Name), tenure.WithLogger(log))
			if err != nil {
				return err
			}
			return n.Run(ctx)
		},
	}
}

// call stands for one call of the traffic: it takes as long as the recording says,
// scaled down, and writes one effect.
type call struct {
	Function string        `json:"function"`
	Took     time.Duration `json:"took"`
}

func (call) Kind() string { return "traffic.call" }

// invoice is a job that changes the tenant's own data.
type invoice struct {
	Invoice int `json:"invoice"`
}

func (invoice) Kind() string { return "invoice.send" }

// registry holds the demo's handlers, which say in the effect table which node ran
// them.
func registry(node string) *job.Registry {
	r := job.NewRegistry()
	effect := func(ctx context.Context, tx pgx.Tx, id job.ID, kind string) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id, kind, node) VALUES ($1, $2, $3)", int64(id), kind, node)
		return err
	}
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[call]) error {
		if err := effect(ctx, tx, j.ID, j.Kind); err != nil {
			return err
		}
		return wait.For(ctx, j.Args.Took) // the work; behind the effect, so that a killed node leaves it half done
	}, job.Retry("R10/PT1S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[invoice]) error {
		if _, err := tx.Exec(ctx, "UPDATE invoice SET sent_at = now(), times_sent = times_sent + 1 WHERE id = $1", j.Args.Invoice); err != nil {
			return err
		}
		return effect(ctx, tx, j.ID, j.Kind)
	}, job.Retry("R10/PT1S"))
	job.Handle(r, chargeCard, job.Retry("R10/PT2S"))
	return r
}
