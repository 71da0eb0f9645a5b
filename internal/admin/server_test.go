package admin_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/admin"
)

func TestServer(t *testing.T) {
	t.Parallel()
	s, err := admin.Listen("127.0.0.1:0", "", "")
	require.NoError(t, err)
	s.Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }), zap.NewNop())
	_, err = admin.Listen(s.Address(), "", "")
	require.EqualError(t, err, "node.listen "+s.Address()+" is in use: stop what uses it, choose another port, or serve nothing with off")
	var socket *net.OpError
	require.ErrorAs(t, err, &socket)

	response, err := http.Get("http://" + s.Address())
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Equal(t, "here", string(text))
	s.Stop()
	select {
	case err := <-s.Failed():
		t.Fatalf("a stop is no failure: %v", err)
	default:
	}
	again, err := admin.Listen(s.Address(), "", "")
	require.NoError(t, err, "the address is free again")
	again.Stop()
}

func TestServerOff(t *testing.T) {
	t.Parallel()
	s, err := admin.Listen("", "", "")
	require.NoError(t, err)
	s.Serve(t.Context(), http.NotFoundHandler(), zap.NewNop())
	require.Equal(t, "off", s.Address())
	s.Stop()

	_, err = admin.Listen("192.0.2.1:80", "", "") // an address of nobody
	require.ErrorContains(t, err, "choose an address of this machine")
}
