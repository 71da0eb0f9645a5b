package encryption

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/job"
)

// ErrNoKey is returned when a tenant has no key, or not the one that is asked for. Nobody can read then
// what it has encrypted.
var ErrNoKey = errors.New("there is no such key")

// ErrUnreadable is returned for what was not encrypted by the key that it names for that tenant and kind,
// or was changed since.
var ErrUnreadable = errors.New("it was not encrypted for this tenant and kind by this key, or was changed since")

// KeyRing has the keys of tenants. What it returns may be asked for with each job: one that asks a
// service keeps what that said. It must be safe for concurrent use.
type KeyRing interface {
	// Newest returns the key that encrypts for a tenant from now on. ErrNoKey: it has none.
	Newest(ctx context.Context, tenant string) (Key, error)
	// Find returns a tenant's key, of now or before, by its id. ErrNoKey: it has none with this id any
	// more; its jobs are dead letters then. Another error: they are deferred until it has gone, and no attempt
	// is charged. It is asked before a job's transaction begins.
	Find(ctx context.Context, tenant, id string) (Key, error)
}

// Cipher encrypts and decrypts arguments. A nil one encrypts nothing and has no key.
type Cipher struct{ rules atomic.Pointer[rules] }

type rules struct {
	ring  KeyRing
	kinds map[string]bool // nil: all
}

// New returns a cipher that encrypts the arguments of some kinds, or of all if none is named. What is
// encrypted it decrypts, whatever its kind. A nil ring has no keys, and encrypts nothing.
func New(ring KeyRing, kinds ...string) *Cipher {
	c := &Cipher{}
	c.Replace(ring, kinds...)
	return c
}

// Replace has the cipher be as [New] would make it, from the next job on.
func (c *Cipher) Replace(ring KeyRing, kinds ...string) {
	r := &rules{ring: ring}
	if len(kinds) > 0 {
		r.kinds = make(map[string]bool, len(kinds))
		for _, k := range kinds {
			r.kinds[k] = true
		}
	}
	c.rules.Store(r)
}

func (c *Cipher) load() *rules {
	if c == nil {
		return &rules{}
	}
	return c.rules.Load()
}

// marker begins an envelope: what stands in the ledger in the place of arguments is an array of it and of
// what is sealed. An array, because a program of before encryption decodes no array into a struct or a
// map: to it the job is a dead letter, to be retried, and not one without arguments.
const marker = jobmeta.Prefix + "encrypted"

type sealed struct {
	Key  string `json:"key"`
	Data []byte `json:"data"` // nonce, ciphertext and tag
}

// IsEncrypted tells whether arguments are encrypted, or would be taken for it.
func IsEncrypted(payload []byte) bool {
	for len(payload) > 0 && payload[0] <= ' ' {
		payload = payload[1:]
	}
	if len(payload) == 0 || payload[0] != '[' {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	if _, err := d.Token(); err != nil { // the bracket
		return false
	}
	first, err := d.Token()
	return err == nil && first == marker
}

// KeyOf returns the id of the key that encrypted arguments; empty if they are not, or are broken.
func KeyOf(payload []byte) string {
	e, err := parse(payload)
	if err != nil {
		return ""
	}
	return e.Key
}

// parse reads an envelope.
func parse(payload []byte) (e sealed, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(payload, &parts); err != nil || len(parts) != 2 || json.Unmarshal(parts[1], &e) != nil {
		return e, ErrUnreadable
	}
	return e, nil
}

// Encrypts tells whether the arguments of jobs of a kind are encrypted.
func (c *Cipher) Encrypts(kind string) bool { return c.load().encrypts(kind) }

func (r *rules) encrypts(kind string) bool { return r.ring != nil && (r.kinds == nil || r.kinds[kind]) }

// Seal encrypts a job's arguments, unless its kind is not to be. ErrNoKey: its tenant has no key.
func (c *Cipher) Seal(ctx context.Context, tenant, kind string, payload []byte) ([]byte, error) {
	r := c.load()
	if IsEncrypted(payload) {
		return nil, fmt.Errorf("arguments of kind %q: an array cannot begin with %q, by which encrypted arguments are known; put it into an object", kind, marker)
	}
	if !r.encrypts(kind) {
		return payload, nil
	}
	key, err := r.ring.Newest(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("encrypt the arguments of kind %q for tenant %q: %w", kind, tenant, err)
	}
	return json.Marshal([]any{marker, sealed{key.id, key.aead.Seal(nil, nil, payload, binding(tenant, kind))}})
}

// Open decrypts a job's arguments; those that are not encrypted it returns as they are. ErrNoKey,
// ErrUnreadable: nobody can read them; another error is the key ring's.
func (c *Cipher) Open(ctx context.Context, tenant, kind string, payload []byte) ([]byte, error) {
	if !IsEncrypted(payload) {
		return payload, nil
	}
	e, err := parse(payload)
	if err != nil {
		return nil, fmt.Errorf("decrypt the arguments of kind %q: %w", kind, err)
	}
	key, err := Key{}, ErrNoKey
	if r := c.load(); r.ring != nil {
		key, err = r.ring.Find(ctx, tenant, e.Key)
	}
	var plain []byte
	if err == nil {
		if plain, err = key.aead.Open(nil, nil, e.Data, binding(tenant, kind)); err != nil {
			err = ErrUnreadable
		}
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt the arguments of kind %q for tenant %q with key %q: %w", kind, tenant, e.Key, err)
	}
	return plain, nil
}

// OpenRecord decrypts the arguments of a job that is about to run. If nobody can, they make it a dead
// letter.
func (c *Cipher) OpenRecord(ctx context.Context, r *job.Record) error {
	plain, err := c.Open(ctx, r.Tenant, r.Kind, r.Payload)
	switch {
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrUnreadable):
		return job.Discard(err)
	case err != nil:
		return err
	}
	r.Encrypted = IsEncrypted(r.Payload)
	r.Payload = plain
	return nil
}

// binding is what a ciphertext is bound to: neither a tenant's id nor a kind has a NUL.
func binding(tenant, kind string) []byte { return []byte("tenure/1\x00" + tenant + "\x00" + kind) }
