package npm

import "testing"

// npm need not be installed where the environment names the registry.
func TestRegistry(t *testing.T) {
	for _, name := range []string{"PATH", "NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		t.Setenv(name, "")
	}
	if got, err := registry(); err == nil {
		t.Error(got)
	}
	t.Setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/npm")
	if got, err := registry(); got != "http://127.0.0.1:1/npm/" {
		t.Error(got, err)
	}
}
