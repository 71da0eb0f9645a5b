package encryption

import (
	"strconv"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Config is the encryption section of the configuration.
type Config struct {
	// Kinds whose arguments are encrypted; empty: all, once there are keys. What is encrypted is decrypted,
	// whatever stands here.
	Kinds []string `yaml:"kinds"`
	// Keys of all tenants without keys of their own: each an id, a colon and 32 bytes in base64. The first
	// encrypts, all decrypt.
	Keys []string `yaml:"keys"`
	// Tenants have keys of their own. One with an empty list can have no jobs of these kinds, and its
	// encrypted ones are dead letters.
	Tenants map[tenancy.ID]TenantKeys `yaml:"tenants"`
}

// TenantKeys are one tenant's.
type TenantKeys struct {
	Keys []string `yaml:"keys"` // as Config.Keys
}

// Validate returns every fault of c, joined.
func (c Config) Validate() error {
	var l fault.List
	for i, k := range c.Kinds {
		if job.ValidateKind("kind", k) != nil {
			l.Add("encryption.kinds["+strconv.Itoa(i)+"]", "", "is not a name: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit")
		}
	}
	if len(c.Kinds) > 0 && len(c.Keys) == 0 && len(c.Tenants) == 0 {
		l.Add("encryption.kinds", "add encryption.keys, made with: openssl rand -base64 32", "has kinds to encrypt, and no keys for it")
	}
	check := func(path string, keys []string) {
		seen := map[string]bool{}
		for i, text := range keys {
			at := path + ".keys[" + strconv.Itoa(i) + "]"
			k, err := ParseKey(text)
			switch {
			case err != nil:
				l.Add(at, "put an id, a colon and what openssl rand -base64 32 prints into a file, and refer to it: ${file:/run/secrets/tenure_2026-11}", "%v", err)
			case seen[k.id]:
				l.Add(at, "give each key an id of its own", "has the id of a key before it")
			}
			seen[k.id] = true
		}
	}
	check("encryption", c.Keys)
	for id, t := range c.Tenants {
		if err := id.Validate(); err != nil {
			l.Add("encryption.tenants", "", "%v", err)
		}
		check("encryption.tenants."+string(id), t.Keys)
	}
	return l.Err()
}

// Ring returns the key ring that a valid c describes; nil: there are no keys.
func (c Config) Ring() KeyRing {
	if len(c.Keys) == 0 && len(c.Tenants) == 0 {
		return nil
	}
	r := Ring{Tenants: make(map[string]Keys, len(c.Tenants)), Others: parseAll(c.Keys)}
	for id, t := range c.Tenants {
		r.Tenants[string(id)] = parseAll(t.Keys)
	}
	return r
}

// parseAll parses keys that are valid.
func parseAll(texts []string) (keys Keys) {
	for _, text := range texts {
		if k, err := ParseKey(text); err == nil {
			keys = append(keys, k)
		}
	}
	return keys
}
