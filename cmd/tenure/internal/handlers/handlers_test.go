package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestRegister(t *testing.T) {
	t.Parallel()
	r := job.NewRegistry()
	defer Register(r, config.Handlers{})()
	require.Equal(t, []string{"http.request"}, r.Kinds(), "no SQL unless it is enabled")

	r = job.NewRegistry()
	defer Register(r, config.Handlers{SQLExec: config.SQLExec{Enabled: true}})()
	require.Equal(t, []string{"http.request", "sql.exec"}, r.Kinds())
	spec, _ := r.Lookup("sql.exec")
	require.True(t, spec.InTx)
	spec, _ = r.Lookup("http.request")
	require.False(t, spec.InTx)
}

// decode makes a job as the workers would.
func decode[A job.Args](t *testing.T, payload string) *job.Job[A] {
	j, err := job.Decode[A](&job.Record{ID: 7, Tenant: "acme", Attempt: 2, Payload: json.RawMessage(payload)})
	require.NoError(t, err)
	return j
}

// decide is what the workers make of a handler's error in the second of ten attempts.
func decide(err error) job.Outcome { return job.Decide(err, 2, 10, job.DefaultPolicy()) }

// requireState checks an outcome and that its error says why.
func requireState(t *testing.T, want job.State, err error, why string) {
	t.Helper()
	o := decide(err)
	require.Equal(t, want.String(), o.State.String(), "%v", err)
	if why != "" {
		require.ErrorContains(t, o.Err, why)
	}
	require.False(t, errors.Is(err, context.Canceled))
}
