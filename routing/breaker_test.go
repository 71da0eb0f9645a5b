package routing

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
)

// everySecond spaces out tries in these tests.
var everySecond = backoff.Policy{First: time.Second, Longest: time.Second}

func TestBreakerIsSlowToChange(t *testing.T) {
	t.Parallel()
	const quiet = 4 * time.Second
	var told []bool
	var b Breaker
	b.Pace(quiet, everySecond)
	b.Watch(func(up bool) { told = append(told, up) })
	now := time.Now()
	note := func(failure error, after time.Duration) {
		now = now.Add(after)
		b.Note(failure, now)
	}
	cut := errors.New("the connection was cut")
	note(cut, 0)
	note(cut, time.Millisecond)
	note(nil, time.Millisecond)
	note(cut, time.Millisecond)
	note(cut, time.Millisecond)
	require.False(t, b.IsDown(), "never three in a row")
	note(cut, time.Millisecond)
	require.True(t, b.IsDown())

	note(nil, time.Second)
	note(nil, time.Second)
	note(nil, time.Second)
	require.True(t, b.IsDown(), "three, but within two seconds")
	note(cut, time.Second)
	note(nil, time.Second)
	note(nil, 3*time.Second)
	require.True(t, b.IsDown(), "two since the last failure")
	note(nil, 3*time.Second)
	require.False(t, b.IsDown())

	note(cut, time.Second)
	note(cut, quiet)
	require.True(t, b.IsDown(), "two failures, and long without success")
	require.Equal(t, []bool{false, true, false}, told)
}

// Anyone who wants to use the database is told that it is silent for as long as it is, and not
// while the breaker is still to be sure of it.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{service: service{found: found{number: 1}}} // in service
		p.Breaker.Pace(time.Hour, everySecond)
		require.NoError(t, p.Outage())
		first, second := errors.New("no route"), errors.New("timeout")
		fails := func(why error) { p.Breaker.Note(why, time.Now()) }
		fails(first)
		fails(first)
		require.NoError(t, p.Outage(), "it may have been the connection")
		fails(second)
		require.ErrorIs(t, p.Outage(), ErrPoolDown)
		require.ErrorIs(t, p.Outage(), second)
		require.NotErrorIs(t, p.Outage(), first)
		_, err := p.Number()
		require.NoError(t, err, "it is still in service")
		p.Breaker.Note(nil, time.Now())
		require.NoError(t, p.Outage())
		require.True(t, p.Breaker.IsDown(), "others stay elected for a while")
		fails(first)
		require.ErrorIs(t, p.Outage(), first)
		fails(&pgconn.PgError{Code: "57P03"})
		require.ErrorIs(t, p.Outage(), ErrPoolDown, "it starts")
		fails(&pgconn.PgError{Code: "53300"})
		require.NoError(t, p.Outage(), "it answers, and the caller may have what Postgres refuses here")

		fails(first)
		time.Sleep(silenceOver - 1)
		fails(first)
		time.Sleep(silenceOver - time.Nanosecond)
		require.Error(t, p.Outage())
		time.Sleep(time.Nanosecond)
		require.NoError(t, p.Outage(), "nobody looks any more, as after a node was stopped")
	})
}

// Of a pool that is not in service yet, the breaker is open without a call.
func TestPoolUp(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Pools = map[string]PoolConfig{"main": {DSN: "postgres://nobody@127.0.0.1:1/none", MaxConns: 10}}
	r, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r))
	up := func() (up float64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "tenure_pool_up" {
				require.Equal(t, "main", f.GetMetric()[0].GetLabel()[0].GetValue())
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		require.Fail(t, "it is not told")
		return 0
	}
	p, _ := r.Pool("main")
	require.True(t, p.Breaker.IsDown())
	require.Zero(t, up())
	p.enter(found{}, errors.New("no route"))
	require.True(t, p.Breaker.IsDown())
	require.NoError(t, p.Unfit(), "it may come by itself")
	p.enter(found{number: 1}, nil)
	require.False(t, p.Breaker.IsDown())
	require.EqualValues(t, 1, up())
	p.Breaker.Pace(time.Hour, everySecond)
	for range downAfter {
		p.Breaker.Note(errors.New("timeout"), time.Now())
	}
	require.Zero(t, up())
	p.Breaker.Note(nil, time.Now())
	require.EqualValues(t, 1, up(), "as soon as it answers")
}
