//go:build !linux

package lease

import "time"

// suspended is not known here: after a suspension a node finds out at its next renewal
// that it has lost its locks and sessions, and the ledger has refused its claims.
func suspended(bool) time.Duration { return 0 }
