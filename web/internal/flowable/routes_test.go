package flowable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
)

// Every route refuses who sends no grant, and who has the role below the one it needs.
func TestEveryRouteNeedsItsRole(t *testing.T) {
	t.Parallel()
	handler := mount(&server{log: zap.NewNop()})
	for _, r := range routes {
		method, path, _ := strings.Cut(r.pattern, " ")
		require.NotZero(t, r.role, r.pattern)
		require.Equal(t, method == http.MethodGet, r.role == access.Read, "%s: who may only look changes nothing", r.pattern)
		ask := func(g access.Grant) int {
			req := httptest.NewRequest(method, strings.NewReplacer("{", "", "}", "").Replace(path), strings.NewReader("{}"))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req.WithContext(access.With(req.Context(), g)))
			return w.Code
		}
		require.Equal(t, http.StatusUnauthorized, ask(access.Grant{}), r.pattern)
		if r.role > access.Read {
			require.Equal(t, http.StatusForbidden, ask(access.Grant{Role: r.role - 1}), r.pattern)
		}
	}
}

func TestTypesOfArguments(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`1`: "integer", `-2147483648`: "integer", `2147483648`: "long", `9223372036854775807`: "long", `9223372036854775808`: "json",
		`1.5`: "double", `1.50`: "double", `0.1`: "double", `0.12345678901234567890`: "json", `1e999999999`: "json", `-0.0`: "double",
		`"1"`: "string", `true`: "boolean", `null`: "", `{}`: "json", `[1]`: "json",
	} {
		require.Equal(t, want, typeOf(json.RawMessage(value)), value)
	}
	require.Equal(t, []variable{{"payload", "string", json.RawMessage(`"x"`)}}, variablesOf(json.RawMessage(`"x"`)))
	require.Equal(t, []variable{{"payload", "", json.RawMessage(`null`)}}, variablesOf(json.RawMessage(`null`)))
	require.Empty(t, variablesOf(json.RawMessage(`{}`)))
}

// What a worker is given and sends back unchanged is what it was.
func FuzzVariables(f *testing.F) {
	for _, payload := range []string{`{"n": 1, "s": "x", "big": 9223372036854775808, "half": 0.50, "e": 1e3, "o": {"a": [null]}, "z": null, "t": true}`, `[1]`, `"x"`, `null`, `{}`, `1e999999999`, ` "0"`} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if job.CheckPayload(payload) != nil {
			t.Skip()
		}
		sent := variablesOf(payload)
		output, err := outputOf(sent)
		if slices.ContainsFunc(sent, func(v variable) bool { return v.Name == "" }) || len(output) > job.MaxPayload {
			t.Skip() // nothing that Flowable has
		}
		require.NoError(t, err)
		var members map[string]json.RawMessage
		if json.Unmarshal(payload, &members) != nil || members == nil {
			payload = fmt.Appendf(nil, `{"payload": %s}`, payload)
		}
		if len(sent) > 0 {
			require.Equal(t, exactly(t, payload), exactly(t, output))
		}
	})
}

// exactly reads JSON with its numbers as they are written.
func exactly(t *testing.T, text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&v), string(text))
	return v
}
