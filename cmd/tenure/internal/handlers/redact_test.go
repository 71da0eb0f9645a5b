package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"url": "https://u:hunter2@h.example:8443/v1/hook?token=hunter2&n=1&hunter2#hunter2", "method": "PUT", "timeout": "10s"}`:  `{"url": "https://***@h.example:8443/v1/hook?token=***&n=***&***", "method": "PUT", "timeout": "10s"}`,
		`{"url": "https://hooks.example/services/T0/B0/hunter2hunter2hunter2"}`:                                                     `{"url": "https://hooks.example/services/T0/B0/***"}`,
		`{"URL": "://hunter2", "Headers": {"Authorization": "Bearer hunter2", "Cookie": "hunter2", "X-Trace": "hunter2"}}`:          `{"URL": "***", "Headers": {"Authorization": "***", "Cookie": "***", "X-Trace": "***"}}`,
		`{"headers": ["hunter2"], "url": ["x"]}`:                                                                                    `{"headers": "***", "url": ["x"]}`,
		`{"body": {"n": 9007199254740993, "client_secret": "hunter2", "deep": [{"apiKey": {"a": "hunter2"}}], "note": "kept <b>"}}`: `{"body": {"n": 9007199254740993, "client_secret": "***", "deep": [{"apiKey": {"a": "***"}}], "note": "kept <b>"}}`,
		`{"body": "user=x&password=hunter2"}`:                                                                                       `{"body": "***"}`,
		`{"body": "{\"token\": \"hunter2\"}"}`:                                                                                      `{"body": "***"}`,
		`{"body": "hello, world"}`:                                                                                                  `{"body": "hello, world"}`,
		`["hunter2"]`:                                                                                                               `"***"`,
		`{"url": "mailto:hunter2", "body": [1]}`:                                                                                    `{"url": "***", "body": [1]}`,
	} {
		got := string(Redact("http.request", []byte(in)))
		require.JSONEq(t, want, got)
		require.NotContains(t, got, "hunter2")
	}
	other := []byte(`{"token": "x"}`)
	require.Equal(t, other, Redact("invoice.send", other))
}
