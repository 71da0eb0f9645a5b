package access

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Problems has what refuses a request before the API sees it answer as the API does (RFC 9457).
func Problems(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/api/") {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&problemWriter{ResponseWriter: w}, r)
	})
}

// problemWriter makes an error of plain text a problem.
type problemWriter struct {
	http.ResponseWriter
	status int // of a problem that is to be written; 0: none
}

// Unwrap is for [http.ResponseController].
func (p *problemWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (p *problemWriter) WriteHeader(status int) {
	if h := p.Header(); status >= http.StatusBadRequest && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		h.Set("Content-Type", "application/problem+json")
		h.Del("Content-Length")
		p.status = status
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (p *problemWriter) Write(text []byte) (int, error) {
	if p.status == 0 {
		return p.ResponseWriter.Write(text)
	}
	problem := map[string]any{"title": http.StatusText(p.status), "status": p.status, "detail": strings.TrimSpace(string(text))}
	return len(text), json.NewEncoder(p.ResponseWriter).Encode(problem)
}
