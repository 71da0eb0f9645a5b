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
	byText, _, err := loadStatements()
	require.NoError(t, err)
	sums := map[string]string{}
	for text, s := range byText {
		sum := sha256.Sum256([]byte(text))
		sums[s.name] = hex.EncodeToString(sum[:6])
	}
	for name, want := range map[string]string{
		"lock_offer":    "7efe84ece6c9",
		"lock_read":     "44539b71ac6e",
		"lock_renew":    "d4a12bacbb14",
		"lock_take":     "2fd166e9486b",
		"session_beat":  "061b218dc170",
		"session_leave": "d6cd749c934e",
		"session_open":  "67346f3773e6",
		"session_seeds": "363e188a0b3f",
		"timer_fire":    "3ed6e9631d0b",
	} {
		require.Equal(t, want, sums[name], "%s.sql has changed", name)
	}
}
