package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenurehq/tenure/internal/devpg"
)

// Program is the path of one of PostgreSQL's programs, such as pg_dump, of the servers' own
// version. The servers that `make` fetches come without most of them: there, and wherever else one
// is missing, a test that needs it is skipped.
func Program(t testing.TB, name string) string {
	t.Helper()
	bin, err := devpg.Find()
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("this needs %s: on Debian, apt-get install postgresql: %v", name, err)
	}
	return path
}

// Standby gives a test a standby of a server of its own, which needs pg_basebackup. It stops
// when the test ends.
func Standby(t testing.TB, s *devpg.Server) *devpg.Server {
	t.Helper()
	Program(t, "pg_basebackup")
	standby, err := s.Standby(t.Context())
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		if err := standby.Stop(ctx); err != nil {
			t.Error("pgtest:", err)
		}
	})
	return standby
}
