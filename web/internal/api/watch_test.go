package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/access"
)

// What was read for others, too, is not said to who may not see it any more.
func TestAStreamSaysNothingOnceItsReaderMayNot(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancelCause(t.Context())
	w := httptest.NewRecorder()
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	out.follow(ctx, "1", event{"locks", "1", "old", false}, func(context.Context) (event, error) {
		end(access.ErrChanged)
		return event{"locks", "2", "secret", false}, nil
	})
	require.NotContains(t, w.Body.String(), "secret")
}
