package fault_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/fault"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	keys := []string{"dsn", "max_conns", "renew_every", "ttl", "eu-1"}
	for word, want := range map[string]string{
		"dns": "dsn", "DSN": "dsn", "max_con": "max_conns", "maxConns": "max_conns", "max-conns": "max_conns", "conns": "max_conns",
		"renew": "renew_every", "tll": "ttl", "eu1": "eu-1", "eu_1": "eu-1", "": "", "x": "", "password": "", "eu": "eu-1",
		strings.Repeat("a", 1000): "",
	} {
		require.Equal(t, want, fault.Nearest(word, keys), word)
	}
}
