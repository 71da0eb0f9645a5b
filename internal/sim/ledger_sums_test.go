package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLedgerIsUpToDate fails when a statement was changed that ledger_test.go has in Go:
// change it there too, and then its sum here.
func TestLedgerIsUpToDate(t *testing.T) {
	sums := map[string]string{}
	for text, s := range loadStatements() {
		sum := sha256.Sum256([]byte(text))
		sums[s.name] = hex.EncodeToString(sum[:6])
	}
	for name, want := range map[string]string{
		"lock_offer":    "b9f9cf0a3f53",
		"lock_read":     "44539b71ac6e",
		"lock_renew":    "d4a12bacbb14",
		"lock_take":     "ace76ad68e95",
		"session_beat":  "061b218dc170",
		"session_leave": "d6cd749c934e",
		"session_open":  "40ca6847826d",
		"session_seeds": "363e188a0b3f",
		"timer_fire":    "49961df65028",
	} {
		require.Equal(t, want, sums[name], "%s.sql has changed", name)
	}
}
