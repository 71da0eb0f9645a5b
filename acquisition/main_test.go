package acquisition

import (
	"testing"
	"time"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is for what takes milliseconds on an idle machine.
const patience = 30 * time.Second

// nudged tells whether a one-place channel was nudged, and takes the nudge.
func nudged(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
