package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/web"
)

func newServe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run a node until SIGINT or SIGTERM",
		Long: "Runs the built-in handlers: http.request, and sql.exec if handlers.sql_exec.enabled is\n" +
			"true; programs with handlers of their own embed a node instead. The first signal stops\n" +
			"it within execution.finish_within; another one, a second later or more, ends it at once.\n" +
			"It exits with 0 only if nothing is left claimed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(a.stderr, "the shortest configuration that works:\n\n%s\n", config.Minimal)
			}
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, newLogger(cfg.Node.Log, a.stderr))
		},
	}
}

// serve runs a node with the built-in handlers until ctx ends.
func serve(ctx context.Context, cfg config.Config, log *zap.Logger) (err error) {
	registry := job.NewRegistry()
	defer handlers.Register(registry, cfg.Handlers)()
	traced, flush, err := traceRuns(ctx, cfg.Node, log.Named("traces"))
	if err != nil {
		return err
	}
	defer flush()
	stopProfiles, err := serveProfiles(cfg.Node.PprofAddress(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	node, err := tenure.New(cfg, registry, traced, tenure.WithLogger(log), tenure.WithVersion(buildVersion()), tenure.WithStarted(func() { tellSystemd(log, "READY=1") }),
		web.Serve(cfg.Node, web.Settings{Redact: redact, Logger: log.Named("web")}))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { tellSystemd(log, "STOPPING=1") })()
	return node.Run(ctx)
}

// redact hides credentials in the arguments of the built-in handlers.
func redact(kind string, text json.RawMessage) json.RawMessage { return handlers.Redact(kind, text) }

// tellSystemd tells the service manager how far this process is, if it is one that wants to know
// (Type=notify). See sd_notify(3).
func tellSystemd(log *zap.Logger, state string) {
	socket := os.Getenv("NOTIFY_SOCKET") // a name that begins with @ is abstract, which net knows
	if socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", socket)
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		log.Warn("systemd could not be told how far the node is", zap.String("state", state), zap.Error(err))
	}
}

// newLogger logs to w as node.log says.
func newLogger(c config.Log, w io.Writer) *zap.Logger {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // Validate refuses other words
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.ISO8601TimeEncoder
	e.EncodeDuration = zapcore.SecondsDurationEncoder // for who reckons with them
	e.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(e)
	if c.Format == "console" {
		e.EncodeLevel, e.EncodeDuration = zapcore.CapitalLevelEncoder, zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(e)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}
