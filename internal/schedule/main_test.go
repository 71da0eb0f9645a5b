package schedule

import (
	"testing"
	"time"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is for what takes milliseconds on an idle machine.
const patience = 30 * time.Second
