package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

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
		Long: "Prints ok, or every mistake with its place and what to do, and exits with 2.\n" +
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
