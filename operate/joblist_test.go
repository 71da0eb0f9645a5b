package operate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
