package membership

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// keys are what gossip is encrypted with; nil: with nothing.
type keys struct {
	mu   sync.Mutex // held while they change
	ring *memberlist.Keyring
}

// newKeys is nil without keys. Of several, the first encrypts.
func newKeys(texts []string) (*keys, error) {
	raw, err := decodeKeys(texts)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	ring, err := memberlist.NewKeyring(raw, raw[0])
	return &keys{ring: ring}, err
}

// decodeKeys reads keys, each once.
func decodeKeys(texts []string) (all [][]byte, err error) {
	for i, text := range texts {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("cluster.keys[%d] is not base64", i) // without the key
		}
		if !slices.ContainsFunc(all, func(k []byte) bool { return bytes.Equal(k, key) }) {
			all = append(all, key)
		}
	}
	return all, nil
}

// keyring is what memberlist takes.
func (k *keys) keyring() *memberlist.Keyring {
	if k == nil {
		return nil
	}
	return k.ring
}

// replace makes want the keys, in that order. Keys are only ever taken off at the end: for any other
// one memberlist shifts the rest in the list that packets are being decrypted with.
func (k *keys) replace(want [][]byte) error {
	for _, key := range want {
		if err := k.ring.AddKey(key); err != nil {
			return err
		}
	}
	if err := k.ring.UseKey(want[0]); err != nil {
		return err
	}
	have, same := k.ring.GetKeys(), 0
	for same < len(want) && bytes.Equal(have[same], want[same]) {
		same++
	}
	for _, key := range slices.Backward(have[same:]) {
		if err := k.ring.RemoveKey(key); err != nil {
			return err
		}
	}
	for _, key := range want[same:] { // one that only moved is unknown for a moment, and gossip repeats itself
		if err := k.ring.AddKey(key); err != nil {
			return err
		}
	}
	return nil
}
