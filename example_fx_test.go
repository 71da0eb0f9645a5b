package tenure_test

import (
	"context"
	"fmt"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Greet is a job.
type Greet struct {
	Name string `json:"name"`
}

// Kind implements job.Args.
func (Greet) Kind() string { return "greet" }

// Greeter is a part of the application, with what it needs and its handlers.
type Greeter struct{ greeted chan string }

// NewGreeter is a constructor like any other.
func NewGreeter(greeted chan string) *Greeter { return &Greeter{greeted} }

// Register implements tenure.Registrar.
func (g *Greeter) Register(r *job.Registry) { job.Handle(r, g.Greet) }

// Greet is the handler.
func (g *Greeter) Greet(ctx context.Context, j *job.Job[Greet]) error {
	g.greeted <- fmt.Sprintf("hello %s of %s", j.Args.Name, tenancy.Must(ctx).ID)
	return nil
}

// NewApp is the application: Module provides the node and its client, and starts and stops
// them with it.
func NewApp(cfg config.Config, greeted chan string, jobs **tenure.Client) *fx.App {
	return fx.New(
		tenure.Module,
		fx.Supply(cfg, greeted),
		fx.Provide(
			zap.NewProduction,              // Tenure and Fx log to it
			tenure.AsRegistrar(NewGreeter), // any number of these
		),
		fx.Populate(jobs),
		fx.StopTimeout(tenure.StopTimeout(cfg)), // handlers may finish
		fx.WithLogger(func(log *zap.Logger) fxevent.Logger { // what keeps it from starting is shown, and little else
			quiet := &fxevent.ZapLogger{Logger: log}
			quiet.UseLogLevel(zap.DebugLevel)
			return quiet
		}),
	)
}

// The same with Fx.
func Example_fx() {
	cfg, stop := exampleConfig()
	defer stop()

	greeted := make(chan string, 1)
	var jobs *tenure.Client
	app := NewApp(cfg, greeted, &jobs)
	ctx := context.Background()
	check(app.Start(ctx)) // or app.Run
	defer func() { check(app.Stop(ctx)) }()

	_, err := jobs.Enqueue(tenancy.For(ctx, "acme"), Greet{"Ada"})
	check(err)
	fmt.Println(<-greeted)
	// Output: hello Ada of acme
}
