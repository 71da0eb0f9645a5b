package signin

import (
	"html/template"
	"net/http"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>Sign in · Tenure</title>{{with .Style}}<link rel="stylesheet" href="{{.}}">{{end}}</head>
<body><main class="signin"><h1>Tenure</h1>{{with .Text}}<p class="note" role="status">{{.}}</p>{{end}}
{{with .Form}}<form method="post" action="{{.}}"><input type="hidden" name="to" value="{{$.To}}"><p><label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label> <button>Sign in</button></p></form>
<p>It is the secret of one of <code>node.tokens</code>; whoever runs this cluster gives them out.</p>{{end}}
{{with .Again}}<p><a href="{{.}}">Sign in{{if $.Form}} at the provider{{end}}</a></p>{{end}}</main></body></html>
`))

type pageBody struct {
	Style, Text string
	Form, To    string // where a token is sent to, and where that leads; "": none is asked for
	Again       string // where people sign in otherwise; "": nowhere
}

// say answers with a page of one sentence.
func (s *SignIn) say(w http.ResponseWriter, code int, text string) {
	again := "/oidc/sign-in"
	if !s.current.Load().cfg.Enabled() {
		again = signInPath
	}
	s.show(w, code, pageBody{Text: text, Again: s.prefix + again})
}

// ask answers with a page that asks for a token, and leads on to a path.
func (s *SignIn) ask(w http.ResponseWriter, code int, text, to string) {
	body := pageBody{Text: text, To: to}
	if s.takesTokens() {
		body.Form = s.prefix + signInPath
	}
	if s.current.Load().cfg.Enabled() {
		body.Again = s.prefix + "/oidc/sign-in"
	}
	s.show(w, code, body)
}

func (s *SignIn) show(w http.ResponseWriter, code int, body pageBody) {
	body.Style = s.Style
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = page.Execute(w, body) // whoever asked may have gone
}

// fail logs what is wrong, and tells an id to find it by.
func (s *SignIn) fail(w http.ResponseWriter, what string, err error) {
	id := uuid.NewString()
	s.log.Error("sign-in failed: "+what, zap.String("id", id), zap.Error(err))
	s.say(w, http.StatusBadGateway, "You cannot be signed in now. The node's log has the reason under id "+id+".")
}
