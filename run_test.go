package tenure

import (
	"context"
	"errors"
	"testing"

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
