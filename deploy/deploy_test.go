// Package deploy_test checks the files that people deploy Tenure by, without what they deploy it with.
package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
)

// collectors takes in what a node registers.
type collectors struct {
	prometheus.Registerer
	all []prometheus.Collector
}

func (c *collectors) Register(one prometheus.Collector) error {
	c.all = append(c.all, one)
	return c.Registerer.Register(one)
}

func (c *collectors) MustRegister(some ...prometheus.Collector) {
	c.all = append(c.all, some...)
	c.Registerer.MustRegister(some...)
}

// metrics are the names of a node's metrics.
func metrics(t *testing.T) map[string]bool {
	t.Setenv("HOSTNAME", "node-1")
	t.Setenv("GOSSIP_KEY", "dGVudXJlLWNvbXBvc2UtZXhhbXBsZS1nb3NzaXBrZXk=")
	t.Setenv("EU_DSN", "postgres://postgres:tenure@127.0.0.1/postgres")
	t.Setenv("US_DSN", "postgres://postgres:tenure@127.0.0.2/postgres")
	cfg, err := config.Load("compose/node.yaml")
	require.NoError(t, err)
	seen := &collectors{Registerer: prometheus.NewRegistry()}
	_, err = tenure.New(cfg, job.NewRegistry(), tenure.WithMetrics(seen))
	require.NoError(t, err)
	names, described := map[string]bool{}, make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		for _, c := range seen.all {
			c.Describe(described)
		}
	}()
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range described {
		names[name.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

// Every metric that the alerts, the dashboard and the page name is one that a node has, and the page has all.
func TestMetricsExist(t *testing.T) {
	known := metrics(t)
	require.Greater(t, len(known), 30)
	named := regexp.MustCompile(`tenure_\w+`)
	for _, file := range []string{"alerts.yaml", "alerts_test.yaml", "grafana.json", "../docs/observability.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all := named.FindAllString(string(text), -1)
		require.NotEmpty(t, all)
		for _, name := range all {
			require.True(t, known[name] || known[strings.TrimSuffix(name, "_bucket")], "%s: no node has %s", file, name)
		}
	}
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	for name := range known {
		require.True(t, strings.Contains(string(page), "`"+name+"`"), "docs/observability.md does not say what %s means", name)
	}
}

// dashboard is what is checked of Grafana's file.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

// Prometheus reads the alerts, which fire when they should, and every query of the dashboard.
func TestPrometheusReadsThem(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (apt-get install prometheus)")
	}
	run := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("check", "rules", "alerts.yaml")
	run("test", "rules", "alerts_test.yaml")
	run("check", "config", "--syntax-only", "compose/prometheus.yaml")

	text, err := os.ReadFile("grafana.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	var rules []map[string]string
	variables := strings.NewReplacer("$__rate_interval", "5m", "$pool", ".*")
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have id %d", p.ID)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		ids[p.ID] = true
		for _, target := range p.Targets {
			rules = append(rules, map[string]string{"alert": "a" + strings.Repeat("a", len(rules)), "expr": variables.Replace(target.Expr)})
		}
	}
	queries, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}}) // which is YAML, too
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(file, queries, 0o600))
	run("check", "rules", file)
}

// systemd accepts the unit, finds it well guarded, and gives a node the time to stop.
func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("tenure.service")
	require.NoError(t, err)
	require.Contains(t, string(text), "TimeoutStopSec=40")
	require.Less(t, tenure.StopTimeout(config.Default()).Seconds(), 40.0)

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (apt-get install systemd)")
	}
	own, err := os.Executable() // systemd wants to see what it would start
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), "tenure.service")
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/tenure", own)), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", unit).CombinedOutput() // of 100
	require.NoError(t, err, "%s", out)
}

// composition is what is checked of Compose's file.
type composition struct {
	Services map[string]struct {
		Image   string
		Command []string
		Volumes []string
		Depends any `yaml:"depends_on"`
		Build   *struct{ Context, Dockerfile string }
	}
}

// What the composition mounts, builds and waits for exists.
func TestComposition(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose/compose.yaml")
	require.NoError(t, err)
	var c composition
	require.NoError(t, yaml.Unmarshal(text, &c))
	require.Len(t, c.Services, 8)
	built := map[string]bool{}
	for _, s := range c.Services {
		if s.Build != nil {
			require.FileExists(t, filepath.Join("compose", s.Build.Context, s.Build.Dockerfile))
			built[s.Image] = true
		}
	}
	for name, s := range c.Services {
		require.True(t, built[s.Image] || strings.Contains(s.Image, ":"), "%s: %s is neither built nor of a version", name, s.Image)
		for _, v := range s.Volumes {
			file, _, _ := strings.Cut(v, ":")
			require.FileExists(t, filepath.Join("compose", file), name)
		}
		switch others := s.Depends.(type) {
		case map[string]any:
			for other := range others {
				require.Contains(t, c.Services, other)
			}
		case []any:
			for _, other := range others {
				require.Contains(t, c.Services, other)
			}
		}
	}
}

// The image is built by the Go that the module asks for, and starts what there is.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	module, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)[1]
	require.Contains(t, string(text), "FROM golang:"+string(version)+" AS build")
	for _, args := range [][]string{{"health", "--help"}, {"serve", "--help"}} {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"run", "-ldflags=-s -w", "../cmd/tenure"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
