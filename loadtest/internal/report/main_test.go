package report

import (
	"testing"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
