package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsNoIDIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"0", "-1", "x", "1.0", "01", "9223372036854775808", "99999999999999999999"} {
		code, out := b.ask(admin, http.MethodGet, "/jobs/"+id, "")
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s: %v", id, out)
	}
	code, _ := b.ask(admin, http.MethodGet, "/jobs/9223372036854775807", "")
	require.Equal(t, http.StatusNotFound, code)
}
