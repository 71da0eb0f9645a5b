package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/operate"
)

// startLimit and operateLimit bound what the operating commands wait for; each
// pool has less than that for its answer.
const (
	startLimit   = 10 * time.Second
	operateLimit = 30 * time.Second
	stopLimit    = 5 * time.Second
)

// manyLimit bounds what is done to many jobs, so that a command that is forgotten ends some day.
const manyLimit = 24 * time.Hour

// operation is the databases of a configuration, opened for one command.
type operation struct {
	*operate.Operator
	client *tenure.Client
	cfg    config.Config
	// unfit says why databases that answer are out of service: not migrated, or a standby
	// after a failover, when an operator needs the others all the more.
	unfit []error
}

// operate runs fn on the databases that can be used; without start, on all as they are.
// Without gossip: its address may be taken by the node on this machine, and joining would
// take longer than most commands.
func (a *app) operate(ctx context.Context, limit time.Duration, start bool, fn func(context.Context, *operation) error) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	if start { // else the doctor looks at the configuration, too
		cfg.Cluster = nil
	}
	client, err := tenure.NewClient(cfg, tenure.WithVersion(buildVersion()))
	if err != nil {
		return err
	}
	o := &operation{Operator: client.Operator(), client: client, cfg: cfg}
	running, cancel := context.WithTimeout(operate.ByWhom(ctx, whoAsks()), limit)
	defer cancel()
	if !start {
		return fn(running, o)
	}
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err = client.Start(starting); err == nil {
		all := o.Pools().Unfit()
		for _, pool := range slices.Sorted(maps.Keys(all)) {
			o.unfit = append(o.unfit, all[pool])
		}
		err = fn(running, o)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit) // also after Ctrl-C
	defer cancel()
	return errors.Join(err, client.Stop(stopping))
}

// loadConfig reads the configuration, or says what is wrong with it. The pools must be
// in it.
func (a *app) loadConfig(pools ...string) (config.Config, error) {
	if a.remote.address(a.config) != "" { // the shell that completes a command comes here, too
		return config.Config{}, needsDatabases("this")
	}
	cfg, err := loadConfig(configPath(a.config, os.Getenv(configEnv)))
	if err == nil {
		err = checkPools(cfg, pools...)
	}
	return cfg, err
}

// unsaid is why pools are out of service, without those that err is about.
func (o *operation) unsaid(err error) error {
	var rest []error
	for _, unfit := range o.unfit {
		if err == nil || !strings.Contains(err.Error(), unfit.Error()) {
			rest = append(rest, unfit)
		}
	}
	return errors.Join(rest...)
}

// whoAsks is who is said to do what this command does: of sudo who typed it, and as whom.
func whoAsks() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if typist := os.Getenv("SUDO_USER"); typist != "" && typist != name {
		name = typist + " (as " + name + ")"
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return strings.ToValidUTF8(name, "?")
}
