package demo

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

const nodeCommandName = "demo-node"

// NodeCommand returns what each node process of the demo runs. Its standard input is a
// pipe from the demo: when that closes, the demo is gone, and so is the node.
func NodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: nodeCommandName + " CONFIG", Hidden: true, Args: cobra.ExactArgs(1),
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
