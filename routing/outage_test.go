package routing_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/routing"
)

func TestOutage(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	require.NoError(t, p.Outage())
	first, second := errors.New("no route"), errors.New("timeout")
	p.Lost(first)
	p.Lost(second)
	require.ErrorIs(t, p.Outage(), routing.ErrPoolDown)
	require.ErrorIs(t, p.Outage(), second)
	require.NotErrorIs(t, p.Outage(), first)
	_, err := p.Number()
	require.NoError(t, err, "it is still in service")
	p.Heard()
	require.NoError(t, p.Outage())
}
