package signin

import (
	"html/template"
	"net/http"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>Tenure</title></head>
<body><main><h1>Tenure</h1><p>{{.Text}}</p><p><a href="{{.Again}}">Sign in</a></p></main></body></html>
`))

// say answers with a page of one sentence.
func (s *SignIn) say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = page.Execute(w, struct{ Text, Again string }{text, s.prefix + "/oidc/sign-in"}) // whoever asked may have gone
}

// fail logs what is wrong, and tells an id to find it by.
func (s *SignIn) fail(w http.ResponseWriter, what string, err error) {
	id := uuid.NewString()
	s.log.Error("sign-in failed: "+what, zap.String("id", id), zap.Error(err))
	s.say(w, http.StatusBadGateway, "You cannot be signed in now. The node's log has the reason under id "+id+".")
}
