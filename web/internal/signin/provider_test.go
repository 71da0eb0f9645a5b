package signin_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// provider is an OpenID provider with keys of its own. Whoever is sent to it is signed in at once, with
// the claims that the test has set.
type provider struct {
	*httptest.Server
	t      *testing.T
	key    *rsa.PrivateKey
	secret string // of the client "tenure"

	mu     sync.Mutex
	claims map[string]any            // guarded by mu; of whom it signs in next
	change func(claims, head object) // guarded by mu; nil: tokens are as they should be
	codes  map[string]url.Values     // guarded by mu; what each code was asked for with
	signer *rsa.PrivateKey           // guarded by mu; what tokens are signed with
	failed []string                  // guarded by mu; why codes were not redeemed
}

type object = map[string]any

func newProvider(t *testing.T) *provider {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	p := &provider{t: t, key: key, signer: key, secret: "cl1ent", codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{"keys": []object{{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes())}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func answer(w http.ResponseWriter, code int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// next has it sign in somebody else from now on.
func (p *provider) next(claims object, change func(claims, head object)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims, p.change = claims, change
}

func (p *provider) signWith(key *rsa.PrivateKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signer = key
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != "tenure" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" {
		http.Error(w, "this is no request of a client that is known here", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = q
	p.mu.Unlock()
	to.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// token redeems each code once, for who knows what its challenge was made of.
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := r.FormValue("code")
	asked, known := p.codes[code]
	delete(p.codes, code)
	user, password, _ := r.BasicAuth()
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	for fault, is := range map[string]bool{
		"the code is unknown": !known, "the client's secret is wrong": user != "tenure" || password != p.secret,
		"the verifier is wrong":           encode(challenge[:]) != asked.Get("code_challenge"),
		"the redirect_uri is another one": r.FormValue("redirect_uri") != asked.Get("redirect_uri"),
	} {
		if is {
			p.failed = append(p.failed, fault)
			answer(w, http.StatusBadRequest, object{"error": "invalid_grant"})
			return
		}
	}
	now := time.Now()
	head := object{"alg": "RS256", "kid": "1", "typ": "JWT"}
	claims := object{"iss": p.URL, "aud": "tenure", "sub": "1234", "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(), "nonce": asked.Get("nonce")}
	for name, value := range p.claims {
		claims[name] = value
	}
	if p.change != nil {
		p.change(claims, head)
	}
	answer(w, http.StatusOK, object{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": p.sign(head, claims)})
}

func (p *provider) sign(head, claims object) string {
	var parts []string
	for _, part := range []object{head, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			return ""
		}
		parts = append(parts, encode(text))
	}
	text := parts[0] + "." + parts[1]
	hash := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, p.signer, crypto.SHA256, hash[:])
	if err != nil {
		return ""
	}
	return text + "." + encode(signature)
}
