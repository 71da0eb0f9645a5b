package api

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/operate"
)

// What no pool that answered has may be in another. What else is wrong is in the log only.
func TestProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"not found":         {fmt.Errorf("job 1: %w", tenure.ErrNotFound), http.StatusNotFound},
		"perhaps elsewhere": {errors.Join(tenure.ErrNotFound, &operate.UnansweredError{Pools: []string{"secret"}}), http.StatusServiceUnavailable},
		"in some pools":     {fmt.Errorf("secret: %w", &operate.PartlyError{Of: 2}), http.StatusServiceUnavailable},
		"misconfigured":     {fmt.Errorf("secret: %w", tenure.ErrWrongPool), http.StatusServiceUnavailable},
		"anything else":     {errors.New("secret"), http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answer huma.StatusError
			require.ErrorAs(t, problemOf(t.Context(), zap.NewNop(), "test", c.err), &answer)
			require.Equal(t, c.status, answer.GetStatus())
			require.NotContains(t, answer.Error(), "secret")
		})
	}
}
