package membership

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge takes memberlist's lines, "[WARN] memberlist: text", and writes them as
// zap entries. Levels move down by one where an operator would be misled: an
// "error" of memberlist's is a packet that did not arrive, which costs nobody a
// job, and its "info" is a rumour about a member that followView logs in our words once
// it is the view.
type bridge struct {
	log     *zap.Logger
	metrics *metrics
	now     func() time.Time

	mu      sync.Mutex
	tokens  float64   // guarded by mu; warnings that may still be written
	filled  time.Time // guarded by mu
	skipped int       // guarded by mu; warnings not written since the last one that was
}

const (
	// A dead or misconfigured neighbour makes memberlist complain several times per
	// second, for as long as it stays that way.
	warnBurst     = 10
	warnPerSecond = 0.2
)

func newBridge(log *zap.Logger, m *metrics) *bridge {
	return &bridge{log: log, metrics: m, now: time.Now, tokens: warnBurst}
}

// Write gets one line per call, from log.Logger. It never fails.
func (b *bridge) Write(line []byte) (int, error) {
	level, text := splitLevel(line)
	if level == zapcore.WarnLevel {
		b.metrics.warnings.Inc()
		// The only trace memberlist leaves of a blocked UDP path.
		if bytes.Contains(text, []byte("over TCP but UDP probes failed")) {
			b.metrics.udpBlocked.Inc()
		}
	}
	message := "memberlist"
	if isUndecryptable(text) {
		b.metrics.undecryptable.Inc()
		level, message = zapcore.WarnLevel, "gossip could not be decrypted: give all nodes the same cluster.keys, or they stay apart; a new key is to be known to all before it comes first"
	}
	if !b.log.Core().Enabled(level) { // before the line is copied: most lines are debug
		return len(line), nil
	}
	var skipped int
	if level == zapcore.WarnLevel {
		var ok bool
		if skipped, ok = b.takeToken(); !ok {
			return len(line), nil
		}
	}
	fields := []zap.Field{zap.String("text", string(text))}
	if skipped > 0 {
		fields = append(fields, zap.Int("skipped", skipped))
	}
	b.log.Log(level, message, fields...)
	return len(line), nil
}

// isUndecryptable tells whether a line is about something that no key of its receiver
// decrypts. A member that tries to join is told of it, too, which memberlist thinks worth no
// more than its debug level.
func isUndecryptable(text []byte) bool {
	for _, said := range []string{
		"no installed keys could decrypt the message",
		"encryption is not configured", // there are no keys here
		"is not encrypted",             // there are none where it comes from; memberlist's words and packetFilter's
	} {
		if bytes.Contains(text, []byte(said)) {
			return true
		}
	}
	return false
}

func (b *bridge) takeToken() (skipped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.filled.IsZero() {
		b.tokens = min(warnBurst, b.tokens+now.Sub(b.filled).Seconds()*warnPerSecond)
	}
	b.filled = now
	if b.tokens < 1 {
		b.skipped++
		return 0, false
	}
	b.tokens--
	skipped, b.skipped = b.skipped, 0
	return skipped, true
}

// splitLevel takes the level and memberlist's own name off a line. Lines without
// a level exist and are few; they are worth a warning.
func splitLevel(line []byte) (zapcore.Level, []byte) {
	line = bytes.TrimSpace(line)
	level := zapcore.WarnLevel
	if rest, ok := bytes.CutPrefix(line, []byte("[")); ok {
		if word, rest, ok := bytes.Cut(rest, []byte("]")); ok {
			switch strings.ToUpper(string(word)) {
			case "TRACE", "DEBUG", "INFO":
				level, line = zapcore.DebugLevel, rest
			case "WARN", "WARNING", "ERR", "ERROR":
				line = rest
			}
		}
	}
	line = bytes.TrimSpace(line)
	return level, bytes.TrimPrefix(line, []byte("memberlist: "))
}
