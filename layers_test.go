package tenure_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tenurehq/tenure"

// layers says which packages of this module each package may import: imports only
// point down. "" is the root package. A package that is not listed fails the test,
// so that a new one gets its place on purpose.
var layers = map[string][]string{
	"internal/fault": {}, // the shape of a refused setting; every Config is validated into it
	"job":            {}, // the domain knows nobody
	"tenancy":        {},

	"internal/store":    {"job", "tenancy"},                      // all SQL of the ledger, and no decision about it
	"internal/underlay": {},                                      // what tests put below membership and routing
	"membership":        {"internal/fault", "internal/underlay"}, // gossip proposes; it knows neither jobs nor databases

	"routing":   {"internal/fault", "internal/store", "internal/underlay", "tenancy"},
	"execution": {"internal/fault", "job", "tenancy"}, // runs handlers and never sees the ledger's SQL

	"acquisition":       {"internal/fault", "job", "tenancy", "routing", "execution", "internal/store"}, // not membership: it declares the Elector it needs
	"internal/proposal": {"acquisition", "internal/store", "membership", "routing"},                     // where those who do not know one another meet
	"internal/admin":    {},                                                                             // is handed what it shows

	"config": {"internal/fault", "job", "tenancy", "routing", "execution", "acquisition", "membership"},

	"": {"internal/admin", "internal/proposal", "internal/store", "job", "tenancy", "routing", "execution", "acquisition", "membership", "config"},

	"internal/devpg":           {},
	"internal/devpg/pgtest":    {"internal/devpg"},
	"internal/store/storetest": {"internal/store", "internal/devpg/pgtest"},
	"internal/traffic":         {},
	"internal/mutants":         {},
	"internal/release":         {"", "config", "job", "tenancy"}, // what a user of the release before could write
	"internal/release/program": {"internal/release"},
	"internal/notices":         {},
	"internal/model":           {}, // a picture of the protocol, not a part of it
	"internal/faultproxy":      {},
	"internal/sim":             {}, // tests only, which may import anything
	"job/jobtest":              {"", "job", "tenancy", "routing", "execution", "config", "membership", "internal/store", "internal/store/storetest", "internal/devpg", "internal/devpg/pgtest"},

	"cmd/tenure":                   {"", "config", "job", "tenancy", "cmd/tenure/internal/demo", "cmd/tenure/internal/handlers"},
	"cmd/tenure/internal/demo":     {"", "config", "job", "tenancy", "routing", "membership", "internal/devpg", "internal/traffic"},
	"cmd/tenure/internal/handlers": {"", "config", "job", "tenancy"},
	"loadtest":                     {"", "config", "job", "tenancy", "routing", "membership", "internal/devpg", "internal/faultproxy", "internal/traffic"},
}

// outside says which packages may import something from outside that the others
// must not, and why. A prefix covers all packages below it.
var outside = []struct {
	path    string
	allowed []string
	why     string
}{
	{"go.uber.org/fx", []string{""}, "an embedder never meets the wiring"},
	{"github.com/hashicorp/memberlist", []string{"membership", "internal/underlay"}, "its traps are met in one place"},
	{"github.com/spf13/cobra", []string{"cmd/tenure", "cmd/tenure/internal/demo", "loadtest"}, "a library has no flags"},
	{"github.com/pressly/goose/v3", []string{"internal/store"}, "migrations are the ledger's"},
	{"testing", []string{"internal/devpg/pgtest", "internal/store/storetest", "job/jobtest"}, "tests' packages stay out of what users run"},
	{"github.com/stretchr/testify/require", []string{"internal/devpg/pgtest", "internal/store/storetest", "job/jobtest"}, "tests' packages stay out of what users run"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		require.NoError(t, dec.Decode(&p))
		name := local(p.ImportPath)
		allowed, known := layers[name]
		require.True(t, known, "package %q has no place in layers_test.go", name)
		for _, imp := range p.Imports {
			if imp == module || strings.HasPrefix(imp, module+"/") {
				require.Contains(t, allowed, local(imp), "package %q must not import %q: imports only point down", name, local(imp))
			}
			for _, o := range outside {
				if imp == o.path || strings.HasPrefix(imp, o.path+"/") && o.path != "testing" {
					require.True(t, slices.Contains(o.allowed, name), "package %q must not import %s: %s", name, imp, o.why)
				}
			}
		}
	}
}

func local(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}
