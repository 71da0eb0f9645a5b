package routing

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{number: 1} // in service
		require.NoError(t, p.Outage())
		first, second := errors.New("no route"), errors.New("timeout")
		p.Lost(first)
		p.Lost(second)
		require.ErrorIs(t, p.Outage(), ErrPoolDown)
		require.ErrorIs(t, p.Outage(), second)
		require.NotErrorIs(t, p.Outage(), first)
		_, err := p.Number()
		require.NoError(t, err, "it is still in service")
		p.Heard()
		require.NoError(t, p.Outage())

		p.Lost(first)
		time.Sleep(forgetOutage - 1)
		p.Lost(first)
		time.Sleep(forgetOutage - time.Nanosecond)
		require.Error(t, p.Outage())
		time.Sleep(time.Nanosecond)
		require.NoError(t, p.Outage(), "whoever found it has stopped looking, as a node does that is stopped")
	})
}
