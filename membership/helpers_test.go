package membership

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// TestMain allows no goroutine to be left. It looks for longer than goleak does
// by itself: a probe of memberlist's ends with its interval, which memberlist
// stretches up to eightfold on a slow machine (see Stop).
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := leaked(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func leaked(options ...goleak.Option) (err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}

// patience is for what takes milliseconds to seconds on an idle machine.
const patience = 30 * time.Second

func eventually(t *testing.T, condition func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, patience, 5*time.Millisecond, append([]any{what}, args...)...)
}

// await receives, or fails where a plain receive would hang.
func await[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		require.Fail(t, "nothing came")
	}
	return v
}

// testConfig gossips on a free port of loopback. The label keeps parallel tests
// apart, which take over one another's ports.
func testConfig(t testing.TB, join ...string) Config {
	h := fnv.New64a()
	fmt.Fprint(h, os.Getpid(), t.Name())
	return Config{Bind: "127.0.0.1:0", Label: fmt.Sprintf("test-%x", h.Sum64()), Profile: "local", Join: join}
}

type option func(c *Cluster)

// start runs a Cluster until the test ends.
func start(t testing.TB, cfg Config, self Self, options ...option) *Cluster {
	t.Helper()
	c := build(t, cfg, self, options...)
	require.NoError(t, c.Start(t.Context()))
	return c
}

func build(t testing.TB, cfg Config, self Self, options ...option) *Cluster {
	t.Helper()
	if self.Role == "" {
		self.Role = RoleNode
	}
	c, err := New(cfg, self, zap.NewNop())
	require.NoError(t, err)
	for _, o := range options {
		o(c)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t testing.TB, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}

// kill ends a Cluster as a crash would: without a word to the others.
func kill(t *testing.T, c *Cluster) {
	t.Helper()
	require.Equal(t, running, c.endPhase())
	c.cancel(errStopping)
	require.NoError(t, c.ml.Shutdown())
	c.tasks.Wait()
	close(c.stopDone)
}

// startNodes runs nodes a, b, c… that know one another and have settled.
func startNodes(t *testing.T, n int, options ...option) []*Cluster {
	t.Helper()
	var all []*Cluster
	for i := range n {
		var join []string
		if i > 0 {
			join = []string{all[0].Self().Addr}
		}
		all = append(all, start(t, testConfig(t, join...), Self{Node: string(rune('a' + i)), Version: "v1"}, options...))
	}
	agree(t, all...)
	return all
}

// agree waits until each sees exactly all of them, eligible.
func agree(t *testing.T, all ...*Cluster) {
	t.Helper()
	for _, c := range all {
		eventually(t, func() bool {
			return slices.Equal(eligible(c), memberNames(all...))
		}, "%s to see %v", c.name, memberNames(all...))
	}
}

func eligible(c *Cluster) (names []string) {
	for _, m := range c.Members() {
		if m.Eligible() {
			names = append(names, m.Name)
		}
	}
	return names
}

func memberNames(all ...*Cluster) (names []string) {
	for _, c := range all {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// counter sums up a collector's counters.
func counter(t *testing.T, c prometheus.Collector) (sum float64) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// logTo has a Cluster that is not started log elsewhere.
func (c *Cluster) logTo(log *zap.Logger) {
	c.log, c.joiner.log, c.mail.log, c.exchange.log = log, log, log, log
}
