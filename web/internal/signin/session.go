package signin

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tenurehq/tenure/internal/access"
)

// Names of cookies that browsers take from this host alone, and with TLS.
const (
	sessionCookie = "__Host-tenure-session"
	attemptCookie = "__Host-tenure-sign-in"
)

// maxCookie is what browsers take of a cookie, its name and attributes included. They drop a larger one without a
// word, and whoever signs in would be sent to the provider again and again.
const maxCookie = 4096

// attemptLimit is how long somebody may take at the provider.
const attemptLimit = 10 * time.Minute

// session is what is remembered of somebody who has signed in.
type session struct {
	Name   string    `json:"n"`
	Values []string  `json:"v"` // of the claim, those that the configuration knew
	Began  time.Time `json:"b"`
}

// attempt is what is remembered of somebody who was sent to the provider.
type attempt struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	To       string    `json:"t"`
	Began    time.Time `json:"b"`
}

// isAnswered says whether it is this attempt that the provider answers.
func (a attempt) isAnswered(state string) bool {
	return subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) == 1
}

// sealer encrypts cookies, so that nobody can read or make one.
type sealer struct {
	aead  cipher.AEAD
	realm string // a cookie is good for one provider and client
}

func newSealer(key []byte, issuer, client string) sealer {
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(sum[:])
	var aead cipher.AEAD
	if err == nil {
		aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the key has the right length
	}
	return sealer{aead, issuer + "\n" + client}
}

// write sets a cookie that lasts for a time.
func (s sealer) write(w http.ResponseWriter, name string, v any, lasts time.Duration) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	sealed := s.aead.Seal(nil, nil, text, []byte(name+"\n"+s.realm))
	value := base64.RawURLEncoding.EncodeToString(sealed)
	if room := maxCookie - 200; len(name)+len(value) > room {
		return fmt.Errorf("the cookie %s would have %d bytes, and browsers take %d: give roles to fewer of the values that people have at once", name, len(name)+len(value), room)
	}
	setCookie(w, name, value, int(lasts.Seconds()))
	return nil
}

// read opens a cookie that write has set, and says whether there is one.
func (s sealer) read(r *http.Request, name string, v any) bool {
	c, err := r.Cookie(name)
	if err != nil || s.aead == nil {
		return false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(c.Value)
	if err != nil {
		return false
	}
	text, err := s.aead.Open(nil, nil, sealed, []byte(name+"\n"+s.realm))
	return err == nil && json.Unmarshal(text, v) == nil
}

func forget(w http.ResponseWriter, name string) { setCookie(w, name, "", -1) }

func setCookie(w http.ResponseWriter, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode})
}

// known are the values that the configuration has a role for, as a cookie has little room.
func (r *realm) known(values []string) (out []string) {
	for _, v := range slices.Sorted(maps.Keys(r.grants)) {
		if slices.Contains(values, v) {
			out = append(out, v)
		}
	}
	return out
}

// grantOf is what somebody with these values may do: what the highest role may, of equal ones the
// first value's.
func (r *realm) grantOf(values []string) (best access.Grant) {
	for _, v := range slices.Sorted(slices.Values(values)) {
		if g := r.grants[v]; g.Role > best.Role {
			best = g
		}
	}
	return best
}

// claims are what an ID token says.
type claims map[string]any

// name is who somebody is, for the audit: an address that the provider has verified, or the name that somebody goes by
// with the subject, as many providers let people choose that name. What does not print could make one look like another.
func (c claims) name() string {
	text := func(claim string) string {
		s, _ := c[claim].(string)
		return s
	}
	name := text("sub")
	if chosen := []rune(text("preferred_username")); len(chosen) > 0 {
		name = string(chosen[:min(len(chosen), mostChosen)]) + " (" + name + ")"
	}
	if c["email_verified"] == true {
		name = cmp.Or(text("email"), name)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar // no name becomes another one
	}, name)
}

// mostChosen is how many letters of a name that somebody may choose are said, so that the subject behind it is not cut off.
const mostChosen = 32

// values are those of a claim, which is a text or a list of texts, by its name or by a path with dots. An
// address that the provider has not verified may be anybody's, and does not count.
func (c claims) values(claim string) (out []string) {
	if claim == "email" && c["email_verified"] != true {
		return nil
	}
	found, ok := c[claim]
	if !ok {
		var at any = map[string]any(c)
		for part := range strings.SplitSeq(claim, ".") {
			object, _ := at.(map[string]any)
			at = object[part]
		}
		found = at
	}
	switch v := found.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			if s, ok := one.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}
