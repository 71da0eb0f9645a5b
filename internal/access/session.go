package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"
)

// SessionLasts is for how long somebody who has shown a token need not show it again.
const SessionLasts = 8 * time.Hour

// Names of the cookie that holds a token. With TLS browsers take it from this host alone.
const (
	tokenCookie      = "__Host-tenure-token"
	plainTokenCookie = "tenure-token"
)

// cookieOf names the cookie of a request's connection, which a proxy may have ended the TLS of.
func cookieOf(r *http.Request) (name string, secure bool) {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return tokenCookie, true
	}
	return plainTokenCookie, false
}

// newSeal encrypts the cookies of a token with a key that follows from its hash, so that each node reads those of all. Whoever
// knows the hash can make none that lets him in: it holds the secret, which is compared as ever.
func newSeal(hash [sha256.Size]byte) cipher.AEAD {
	key := sha256.Sum256(append([]byte("tenure session\n"), hash[:]...))
	block, err := aes.NewCipher(key[:])
	var aead cipher.AEAD
	if err == nil {
		aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the key has the right length
	}
	return aead
}

// TakesTokens says whether somebody can be let in by a token.
func (g *Guard) TakesTokens() bool { return len(g.rules.Load().doors) > 0 }

// OpenSession lets in who shows the secret of a token, for [SessionLasts] in this browser, and returns their name. What
// they may do is decided at each request: a token that is taken away, or has expired, opens nothing more.
func (g *Guard) OpenSession(w http.ResponseWriter, r *http.Request, secret string) (name string, ok bool) {
	rules, now := g.rules.Load(), g.now()
	grant := rules.grantOf(secret, now)
	if grant.Role == None {
		g.logRefused(r)
		return "", false
	}
	cookie, secure := cookieOf(r)
	text := append(binary.BigEndian.AppendUint64(nil, uint64(now.Unix())), secret...)
	sealed := newSeal(sha256.Sum256([]byte(secret))).Seal(nil, nil, text, []byte(cookie))
	setTokenCookie(w, cookie, base64.RawURLEncoding.EncodeToString(sealed), secure, int(SessionLasts.Seconds()))
	return grant.Name, true
}

// CloseSession has a browser forget the token that somebody has shown.
func CloseSession(w http.ResponseWriter) {
	setTokenCookie(w, tokenCookie, "", true, -1)
	setTokenCookie(w, plainTokenCookie, "", false, -1)
}

func setTokenCookie(w http.ResponseWriter, name, value string, secure bool, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode})
}

// grantOfSession is what somebody may do who has shown a token in this browser.
func (rules *ready) grantOfSession(r *http.Request, now time.Time) Grant {
	name, _ := cookieOf(r)
	cookie, err := r.Cookie(name)
	if err != nil {
		return Grant{}
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	if err != nil {
		return Grant{}
	}
	for _, d := range rules.doors {
		text, err := d.seal.Open(nil, nil, sealed, []byte(name))
		if err != nil || len(text) < 8 {
			continue
		}
		began := time.Unix(int64(binary.BigEndian.Uint64(text)), 0)
		if grant := rules.grantOf(string(text[8:]), now); now.Before(began.Add(SessionLasts)) && grant.Role != None {
			grant.SignedIn = true
			return grant
		}
	}
	return Grant{}
}
