package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tenurehq/tenure/config"
)

const (
	configEnv     = "TENURE_CONFIG"
	defaultConfig = "node.yaml"
)

// configPath is where the configuration is: the flag, else the environment, else
// a file in the working directory.
func configPath(flag, env string) string {
	switch {
	case flag != "":
		return flag
	case env != "":
		return env
	}
	return defaultConfig
}

// loadConfig reads the configuration, or says what is wrong with it.
func (a *app) loadConfig() (config.Config, error) {
	return loadConfig(configPath(a.config, os.Getenv(configEnv)))
}

func loadConfig(path string) (config.Config, error) {
	cfg, err := config.Load(path)
	var refused *config.Error
	switch {
	case err == nil:
		return cfg, nil
	case errors.As(err, &refused):
		return cfg, refused
	case errors.Is(err, fs.ErrNotExist):
		return cfg, &configError{&advised{err, "name the file with --config or $" + configEnv + ", or run this where " + defaultConfig + " is"}}
	}
	return cfg, &configError{&advised{err, "make the file readable for this user, or name another with --config"}}
}

// checkPools refuses names that are not under pools.
func checkPools(cfg config.Config, names ...string) error {
	known := slices.Sorted(maps.Keys(cfg.Pools))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usagef("pool %q is not under pools in the configuration; there are: %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
