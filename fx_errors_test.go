package tenure_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/routing"
)

// appEnv makes this test binary the application of Example_fx, with the configuration that
// it holds.
const appEnv = "TENURE_TEST_APP"

func runApp(text string) int {
	var cfg config.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		return 3
	}
	var jobs *tenure.Client
	NewApp(cfg, make(chan string, 1), &jobs).Run()
	return 0
}

// Anyone who copies the Fx example sees why it does not start, whether its parts cannot be made
// or the node fails to start, and nothing of Fx's own when it does.
func TestTheFxExampleSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dsn   string
		wrong func(*config.Config)
		why   []string
	}{
		"the configuration is wrong": {dsn: "postgres://app@127.0.0.1:1/nowhere", wrong: func(cfg *config.Config) { cfg.Acquire.Lock.TTL = -1 },
			why: []string{"acquire.lock.ttl"}},
		"no ledger is there": {dsn: pgtest.Database(t), wrong: func(*config.Config) {},
			why: []string{"pool main", "has no ledger", "tenure migrate"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			cfg.Node.Name = "test"
			cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: c.dsn}}
			c.wrong(&cfg)
			text, err := json.Marshal(cfg)
			require.NoError(t, err)
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), appEnv+"="+string(text))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			var failed *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &failed)
			require.Equal(t, 1, failed.ExitCode(), "%s", &out)
			require.Contains(t, out.String(), `"level":"error"`)
			for _, why := range c.why {
				require.Contains(t, out.String(), why)
			}
			require.NotContains(t, out.String(), `"msg":"provided"`)
		})
	}
}
