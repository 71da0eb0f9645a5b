package npm

import "testing"

// npm need not be installed: the registry is then the public one, unless the environment names another.
func TestRegistry(t *testing.T) {
	for _, name := range []string{"PATH", "NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		t.Setenv(name, "")
	}
	if got := registry(); got != public+"/" {
		t.Error(got)
	}
	t.Setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/npm")
	if got := registry(); got != "http://127.0.0.1:1/npm/" {
		t.Error(got)
	}
}
