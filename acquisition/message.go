package acquisition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
)

// Kinds of messages between nodes. None of them is needed for correctness: a lost
// one costs the time until the next look at the database.
const (
	MessageHint     byte = 1 // jobs were enqueued
	MessageOffer    byte = 2 // the sender has released a pool's lock in favour of the receiver, or is about to
	MessageInvite   byte = 3 // the sender holds a pool's lock and has more jobs than its workers can run
	MessageCapacity byte = 4 // how many of those jobs the sender can run
	MessageAssigned byte = 5 // the sender has made claims for the receiver
	MessageAnswer   byte = 6 // to an offer: the sender is prepared to take the lock, or does not serve the pool
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
	if h.Pool == "" {
		return Hint{}, errors.New("decode a hint: no pool")
	}
	if h.DueIn < 0 {
		return Hint{}, errors.New("decode a hint: due in the past")
	}
	for _, l := range h.Lanes {
		if strings.ContainsRune(l.Queue, 0) || strings.ContainsRune(l.Tenant, 0) { // Postgres refuses it, and with it the reading of every other lane
			return Hint{}, errors.New("decode a hint: a lane with NUL in its name")
		}
	}
	return h, nil
}

// About is a message that says little more than which pool it is about: an offer or the
// answer to one, an invitation, or that there are claims.
type About struct {
	Pool string `json:"p"`
	Idle bool   `json:"i,omitempty"` // of an offer: the holder dozed
	Soon bool   `json:"s,omitempty"` // of an offer: the holder will release it once the receiver is prepared
	No   bool   `json:"n,omitempty"` // of an answer: the sender cannot take the lock
	// Conns, of such an offer, is how many connections the holder's handlers need.
	Conns int `json:"c,omitempty"`
}

// Encode renders a for the wire.
func (a About) Encode() []byte {
	b, _ := json.Marshal(a) // it has nothing that could fail
	return b
}

// DecodeAbout reads what Encode wrote.
func DecodeAbout(b []byte) (About, error) {
	var a About
	if err := json.Unmarshal(b, &a); err != nil {
		return About{}, fmt.Errorf("decode a message about a pool: %w", err)
	}
	if a.Pool == "" {
		return About{}, errors.New("decode a message about a pool: no pool")
	}
	return a, nil
}

// Capacity is what a node that was invited tells the holder: how many jobs it has taken
// over in this session, how many more it has capacity for, and what has become of its
// claims. The two numbers together survive messages that are lost or overtake one
// another: what was assigned beyond taken is on its way, and counts.
type Capacity struct {
	Pool    string    `json:"p"`
	Session uuid.UUID `json:"s"`
	Taken   int64     `json:"t"`
	Free    int       `json:"r"`
	Idle    int       `json:"i,omitempty"` // of the workers: jobs for them need not wait
	// Over are claims that have come to their end since the last message.
	Over []int64 `json:"o,omitempty"`
	// Returned: some of their jobs were given back and wait again.
	Returned bool `json:"b,omitempty"`
	// DueIn is set when some were deferred: the first is due in this time.
	DueIn time.Duration `json:"d,omitempty"`
	// Kinds tells those that the session has in the ledger from others; see [Elector].
	Kinds uint32 `json:"k,omitempty"`
	// Full are tenants whose jobs have their share of the sender's workers.
	Full []string `json:"f,omitempty"`
}

// maxCapacity is more than any node has, so that the capacity of many can be added up.
const maxCapacity = 1 << 24

// maxOver claims and maxFull bytes of tenants keep an encoded Capacity within one datagram.
const (
	maxOver = 50
	maxFull = 300
)

// Encode renders r for the wire.
func (r Capacity) Encode() []byte {
	b, _ := json.Marshal(r) // nothing in it can fail
	return b
}

// DecodeCapacity reads what Encode wrote.
func DecodeCapacity(b []byte) (Capacity, error) {
	var r Capacity
	if err := json.Unmarshal(b, &r); err != nil {
		return Capacity{}, fmt.Errorf("decode a capacity message: %w", err)
	}
	if r.Pool == "" || r.Session == uuid.Nil || r.Taken < 0 || min(r.Free, r.Idle) < 0 || max(r.Free, r.Idle) > maxCapacity || r.DueIn < 0 {
		return Capacity{}, errors.New("decode a capacity message: no pool or session, or a number that is negative or too high")
	}
	return r, nil
}
