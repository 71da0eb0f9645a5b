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

// Who enqueues outside of a handler has a client from elsewhere, and is told.
func TestClientFrom(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "tenure.ClientFrom: this is no context that a handler was called with, nor one made from it", func() { ClientFrom(t.Context()) })
}
