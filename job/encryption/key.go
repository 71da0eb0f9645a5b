package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// KeySize is the length of a key's secret, in bytes.
const KeySize = 32

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Key is one key. It does not print what it consists of.
type Key struct {
	id   string
	aead cipher.AEAD
}

// NewKey returns a key. Its id stands beside what it has encrypted and is no secret: 1 to 64 letters,
// digits and . _ -. Another secret needs another id. The secret has [KeySize] random bytes.
func NewKey(id string, secret []byte) (Key, error) {
	if !idForm.MatchString(id) {
		return Key{}, errors.New("a key's id has 1 to 64 letters, digits and . _ -, and this one has not")
	}
	if len(secret) != KeySize {
		return Key{}, fmt.Errorf("the key's secret has %d bytes: %d are needed", len(secret), KeySize)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return Key{}, fmt.Errorf("the key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return Key{}, fmt.Errorf("the key: %w", err)
	}
	return Key{id, aead}, nil
}

// ParseKey reads a key as the configuration has it: its id, a colon, and its secret in base64. Its errors
// go on from the name of what holds the key.
func ParseKey(text string) (Key, error) {
	id, encoded, ok := strings.Cut(strings.TrimSpace(text), ":")
	if !ok || !idForm.MatchString(id) {
		return Key{}, fmt.Errorf("is not a key: an id of letters, digits and . _ -, a colon, and %d bytes in base64", KeySize)
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil { // nor is the id quoted, which may be the secret if they were mixed up
		return Key{}, errors.New("has a secret that is not in base64")
	}
	if len(secret) != KeySize {
		return Key{}, fmt.Errorf("has a secret of %d bytes: %d are needed", len(secret), KeySize)
	}
	return NewKey(id, secret)
}

// ID is the key's id.
func (k Key) ID() string { return k.id }

// Format prints the key's id, whatever is asked for.
func (k Key) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "key %q", k.id) }

// Keys are those of one owner, the newest first: it encrypts, and all decrypt.
type Keys []Key

// Newest implements KeyRing: the keys are every tenant's.
func (k Keys) Newest(context.Context, string) (Key, error) {
	if len(k) == 0 {
		return Key{}, ErrNoKey
	}
	return k[0], nil
}

// Find implements KeyRing.
func (k Keys) Find(_ context.Context, _, id string) (Key, error) {
	for _, key := range k {
		if key.id == id {
			return key, nil
		}
	}
	return Key{}, ErrNoKey
}

// Ring is a key ring that holds keys by tenant.
type Ring struct {
	Tenants map[string]Keys // those with keys of their own, which may be none
	Others  Keys            // of all other tenants
}

// Newest implements KeyRing.
func (r Ring) Newest(ctx context.Context, tenant string) (Key, error) {
	return r.of(tenant).Newest(ctx, tenant)
}

// Find implements KeyRing.
func (r Ring) Find(ctx context.Context, tenant, id string) (Key, error) {
	return r.of(tenant).Find(ctx, tenant, id)
}

func (r Ring) of(tenant string) Keys {
	if own, ok := r.Tenants[tenant]; ok {
		return own
	}
	return r.Others
}

var (
	_ KeyRing = Keys{}
	_ KeyRing = Ring{}
)
