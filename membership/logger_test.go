package membership

import (
	"log"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestBridgeLevels(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	m := newMetrics(Single(Self{Node: "a"}))
	std := log.New(newBridge(zap.New(core), m), "", 0)
	for _, tc := range []struct {
		line, text string
		level      zapcore.Level
	}{
		{"[DEBUG] memberlist: Stream connection from=x", "Stream connection from=x", zapcore.DebugLevel},
		{"[INFO] memberlist: Suspect b has failed", "Suspect b has failed", zapcore.DebugLevel},
		{"[WARN] memberlist: Refuting a suspect message", "Refuting a suspect message", zapcore.WarnLevel},
		{"[ERR] memberlist: Failed to send ping", "Failed to send ping", zapcore.WarnLevel},
		{"[ERROR] memberlist: Failed to compress payload", "Failed to compress payload", zapcore.WarnLevel},
		{"Err: Could not set the deadline", "Err: Could not set the deadline", zapcore.WarnLevel},
		{"[odd", "[odd", zapcore.WarnLevel},
		{"", "", zapcore.WarnLevel},
	} {
		std.Print(tc.line)
		entries := logs.TakeAll()
		require.Len(t, entries, 1, tc.line)
		require.Equal(t, "memberlist", entries[0].Message)
		require.Equal(t, tc.level, entries[0].Level, tc.line)
		require.Equal(t, tc.text, entries[0].ContextMap()["text"])
	}
	require.Equal(t, 6.0, counter(t, m.warnings))
}

func TestBridgeCountsWhatCannotBeDecrypted(t *testing.T) {
	t.Parallel()
	m := newMetrics(Single(Self{Node: "a"}))
	std := log.New(newBridge(zap.NewNop(), m), "", 0)
	for _, line := range []string{
		"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=x",
		"[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=x",
		"[DEBUG] memberlist: failed to join x: remote error: no installed keys could decrypt the message",
		"[ERR] memberlist: failed to receive: remote state is encrypted and encryption is not configured from=x",
		"[ERR] memberlist: failed to receive: encryption is configured but remote state is not encrypted from=x",
		"[ERR] memberlist: failed to receive: " + errNotOurs.Error() + " from=x",
	} {
		before := counter(t, m.undecryptable)
		std.Print(line)
		require.Equal(t, before+1, counter(t, m.undecryptable), line)
	}
	for _, line := range []string{
		"[WARN] memberlist: Binding to public address without encryption!",
		"[ERR] memberlist: Encryption of message failed: x",
		"[DEBUG] memberlist: failed to join x: EOF",
	} {
		before := counter(t, m.undecryptable)
		std.Print(line)
		require.Equal(t, before, counter(t, m.undecryptable), line)
	}
}

func TestBridgeRate(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	b := newBridge(zap.New(core), newMetrics(Single(Self{Node: "a"})))
	now := time.Now()
	b.now = func() time.Time { return now }
	write := func(n int) []observer.LoggedEntry {
		for range n {
			_, err := b.Write([]byte("[ERR] memberlist: again\n"))
			require.NoError(t, err)
		}
		return logs.TakeAll()
	}
	require.Len(t, write(100), warnBurst)
	now = now.Add(time.Second)
	require.Empty(t, write(10))
	now = now.Add(4 * time.Second)
	entries := write(10)
	require.Len(t, entries, 1)
	require.EqualValues(t, 100, entries[0].ContextMap()["skipped"], "what was held back is told")
	now = now.Add(time.Hour)
	require.Len(t, write(100), warnBurst)
}

func TestLogbook(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	b := newLogbook(zap.New(core), time.Minute)
	lines := func() (all []string) {
		for _, e := range logs.TakeAll() {
			all = append(all, e.Message)
		}
		return all
	}
	one, web := live("a-00000001"), Member{Name: "web-00000000", Role: RoleClient}
	b.logMembers([]Member{one, web}, nil)
	require.Equal(t, []string{"member joined"}, lines(), "clients are not for operators")
	b.logMembers([]Member{one, web}, nil)
	require.Empty(t, lines())
	one.Draining = true
	b.logMembers([]Member{one}, map[string]bool{one.Name: true})
	require.Equal(t, []string{"member changed state"}, lines(), "it says that it leaves, and is still there")
	b.logMembers(nil, nil)
	require.Equal(t, []string{"member left"}, lines())
	require.Empty(t, b.parted)

	// What a member says of its leaving may come behind the news of it, which is a warning otherwise.
	b.logMembers([]Member{one}, nil)
	b.logMembers(nil, nil)
	lines()
	require.True(t, b.logFailed(time.Now()))
	b.logMembers(nil, map[string]bool{one.Name: true})
	require.Equal(t, []string{"member left"}, lines())
	b.logMembers([]Member{one}, nil)
	b.logMembers(nil, nil)
	require.False(t, b.logFailed(time.Now().Add(farewellGrace)))
	require.Equal(t, 1, logs.FilterLevelExact(zapcore.WarnLevel).Len())
	require.Empty(t, b.parted)
	b.logMembers([]Member{one}, nil)
	b.logMembers(nil, nil)
	lines()
	b.logMembers([]Member{one}, nil)
	require.Equal(t, []string{"member is back: it was taken for dead"}, lines(), "of a false alarm")
	require.False(t, b.logFailed(time.Now().Add(farewellGrace)))

	// A restarted node and its former self share a name for a while.
	twin := live("a-00000002")
	b.logMembers([]Member{one, twin}, nil)
	lines()
	b.warnTwins(time.Now())
	require.Empty(t, lines())
	b.warnTwins(time.Now().Add(time.Minute))
	b.warnTwins(time.Now().Add(time.Hour))
	require.Len(t, lines(), 1, "one warning")
	b.logMembers([]Member{twin}, nil)
	b.logMembers([]Member{one, twin}, nil)
	lines()
	b.warnTwins(time.Now().Add(time.Minute))
	require.Len(t, lines(), 1, "and another for another time")

	for range 3 {
		b.warnConflicts(map[string][2]string{"a-00000001": {"10.0.0.1:1", "10.0.0.2:1"}})
	}
	require.Len(t, lines(), 1)
}
