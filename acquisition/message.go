package acquisition

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/internal/store"
)

// Kinds of messages between nodes. None of them is needed for correctness: a lost
// one costs the time until the next look at the database.
const (
	MessageHint  byte = 1 // jobs were enqueued
	MessageOffer byte = 2 // the sender let go of a pool's lock in favour of the receiver
)

// Hint says that jobs were enqueued in a pool, and in which lanes if they are few.
type Hint struct {
	Pool  string       `json:"p"`
	Lanes []store.Lane `json:"l,omitempty"` // none: look at all of them
	// DueIn is set when only timers were enqueued: the first is due in this time.
	DueIn time.Duration `json:"d,omitempty"`
	// Forwarded: the receiver must not send it on.
	Forwarded bool `json:"f,omitempty"`
}

// maxHint keeps an encoded hint within one datagram, in bytes.
const maxHint = 1000

// Encode renders h for the wire. Lanes that do not fit are left out, all of them.
func (h Hint) Encode() []byte {
	b, err := json.Marshal(h)
	if err != nil || len(b) > maxHint { // a name that is not UTF-8 is replaced, not an error
		h.Lanes = nil
		b, _ = json.Marshal(h)
	}
	return b
}

// DecodeHint reads what Encode wrote.
func DecodeHint(b []byte) (Hint, error) {
	var h Hint
	if err := json.Unmarshal(b, &h); err != nil {
		return Hint{}, fmt.Errorf("decode a hint: %w", err)
	}
	if h.Pool == "" || h.DueIn < 0 {
		return Hint{}, errors.New("decode a hint: no pool, or due in the past")
	}
	return h, nil
}

// Offer names the pool whose lock was let go of.
type Offer struct {
	Pool string `json:"p"`
}

// Encode renders o for the wire.
func (o Offer) Encode() []byte {
	b, _ := json.Marshal(o) // a struct of one string
	return b
}

// DecodeOffer reads what Encode wrote.
func DecodeOffer(b []byte) (Offer, error) {
	var o Offer
	if err := json.Unmarshal(b, &o); err != nil {
		return Offer{}, fmt.Errorf("decode an offer: %w", err)
	}
	if o.Pool == "" {
		return Offer{}, errors.New("decode an offer: no pool")
	}
	return o, nil
}
