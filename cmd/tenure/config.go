package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/config"
)

func newConfig(a *app) *cobra.Command {
	return newGroup("config", "Check and show the configuration", newConfigCheck(a), newConfigShow(a))
}

func newConfigCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Find mistakes in a configuration without connecting to anything",
		Long: "Prints ok, or every mistake with its place and how to fix it, and exits with 2.\n" +
			"References such as ${env:NAME} are resolved, so run it where the node will run.",
		Args: cobra.MaximumNArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		path := configPath(a.config, os.Getenv(configEnv))
		if len(args) == 1 {
			path = args[0]
		}
		_, err := loadConfig(path)
		var refused *config.Error
		switch {
		case *output == asJSON && (err == nil || errors.As(err, &refused)):
			faults := cmp.Or(refused, &config.Error{File: path, Faults: []config.Fault{}})
			return errors.Join(printJSON(a.stdout, faults), err)
		case err != nil:
			return err
		}
		_, err = fmt.Fprintln(a.stdout, "ok")
		return err
	}
	return cmd
}

func newConfigShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in force, defaults included and secrets masked",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			text, err := cfg.Show()
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(text)
			return err
		},
	}
}

const (
	configEnv     = "TENURE_CONFIG"
	defaultConfig = "node.yaml"
)

// configPath is where the configuration is: the flag, else the environment, else
// a file in the working directory.
func configPath(flag, env string) string {
	return cmp.Or(flag, env, defaultConfig)
}

func loadConfig(path string) (config.Config, error) {
	cfg, err := config.Load(path)
	switch {
	case err == nil, errors.As(err, new(*config.Error)):
		return cfg, err
	case errors.Is(err, fs.ErrNotExist):
		return cfg, &configError{&advised{err, "name the file with --config or $" + configEnv + ", or run this where " + defaultConfig + " is"}}
	}
	return cfg, &configError{&advised{err, "make the file readable by this user, or name another one with --config"}}
}

// checkPools refuses names that are not under pools.
func checkPools(cfg config.Config, names ...string) error {
	known := slices.Sorted(maps.Keys(cfg.Pools))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usagef("pool %q is not under pools in the configuration, which has: %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
