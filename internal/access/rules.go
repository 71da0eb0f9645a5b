package access

import (
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tenurehq/tenure/config"
)

// Rules are who is let in, and what they may do.
type Rules struct {
	Tokens  []Token
	Proxies Proxies
	SignIn  bool     // people sign in, too: see [Guard.SignIn]
	Hosts   []string // names by which programs on this machine call this server, beside addresses and localhost
}

// Token lets in whoever knows its secret.
type Token struct {
	Grant     Grant
	SHA256    string    // of the secret, in hexadecimal digits; the secret itself is kept nowhere
	OldSHA256 string    // of another secret that is as good, while everybody learns the new one; "": there is none
	Expires   time.Time // from when on it lets nobody in; zero: never
}

// Proxies are between callers and the node, and say who calls.
type Proxies struct {
	Networks []netip.Prefix   // where they are; empty: there are none
	Header   string           // in which they write the user
	Users    map[string]Grant // what each may do; "*" is whoever is not named
}

// RulesOf are the rules of a node section. An error says what is wrong with it, which its
// validation would have said, too.
func RulesOf(n config.Node) (Rules, error) {
	r := Rules{SignIn: n.OIDC.Enabled(), Hosts: n.AllowedHosts, Proxies: Proxies{Networks: n.TrustedProxies.Networks, Header: n.TrustedProxies.UserHeader, Users: map[string]Grant{}}}
	for _, name := range slices.Sorted(maps.Keys(n.Tokens)) {
		t := n.Tokens[name]
		g, err := GrantOf(OfToken, name, config.Access{Role: t.Role, Tenants: t.Tenants, Pools: t.Pools, Args: t.Args})
		if err != nil {
			return Rules{}, fmt.Errorf("token %s: %w", name, err)
		}
		expires, err := t.ExpiresAt()
		if err != nil {
			return Rules{}, fmt.Errorf("token %s: expires: %w", name, err)
		}
		r.Tokens = append(r.Tokens, Token{Grant: g, SHA256: t.SHA256, OldSHA256: t.OldSHA256, Expires: expires})
	}
	for user, a := range n.TrustedProxies.Users {
		g, err := GrantOf(OfProxy, user, a)
		if err != nil {
			return Rules{}, fmt.Errorf("user %s of trusted proxies: %w", user, err)
		}
		r.Proxies.Users[user] = g
	}
	return r, nil
}

// GrantOf is what somebody may do who is let in by that name.
func GrantOf(source Source, name string, a config.Access) (Grant, error) {
	role, ok := ParseRole(a.Role)
	if !ok {
		return Grant{}, fmt.Errorf("the role %.80q is none: read, operate and admin are", a.Role)
	}
	return Grant{Name: name, Source: source, Role: role, Tenants: a.Tenants, Pools: a.Pools, Args: a.Args}, nil
}

// door is a secret that is ready to be compared.
type door struct {
	hash    [sha256.Size]byte
	expires time.Time // zero: never
	grant   Grant
	seal    cipher.AEAD // of its cookies
}

// doorsOf are two for a token with two hashes. A hash that cannot be read lets nobody in, and its
// token still counts as one: a mistake in it must not open the doors to everybody on this machine.
func doorsOf(tokens []Token) (doors []door) {
	for _, t := range tokens {
		for i, text := range []string{t.SHA256, t.OldSHA256} {
			if i > 0 && text == "" {
				continue
			}
			d := door{expires: t.Expires, grant: t.Grant}
			hash, err := hex.DecodeString(text)
			if err != nil || len(hash) != sha256.Size {
				d.grant = Grant{}
			}
			copy(d.hash[:], hash)
			d.seal = newSeal(d.hash)
			doors = append(doors, d)
		}
	}
	return doors
}
