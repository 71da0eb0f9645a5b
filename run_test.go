package tenure

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// A listener that fails stops the node rather than leave it without its probes, and a
// configuration without a file is not read again.
func TestRunEndsWithItsListener(t *testing.T) {
	t.Parallel()
	file := &configFile{log: zap.NewNop()}
	failed := make(chan error, 1)
	broken := errors.New("the listener broke")
	failed <- broken
	require.ErrorIs(t, file.watchFile(t.Context(), failed), broken)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, file.watchFile(ended, nil))
}

func TestASlowListSaysWhatIsFoundSooner(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	slow := fmt.Errorf("list jobs: %w", over.Err())

	err := (&JobFilter{Kind: "rare"}).explainSlowness(over, slow)
	require.ErrorIs(t, err, slow)
	require.ErrorContains(t, err, "name a tenant or a queue, too")
	require.ErrorContains(t, (&JobFilter{Tenant: "acme"}).explainSlowness(over, slow), "name a queue, too")

	require.Equal(t, slow, (&JobFilter{Tenant: "acme", Queue: "mail"}).explainSlowness(over, slow), "there is nothing to add")
	require.Equal(t, slow, (&JobFilter{Kind: "rare"}).explainSlowness(t.Context(), slow), "it failed in time")
	require.NoError(t, (&JobFilter{Kind: "rare"}).explainSlowness(over, nil))
}
