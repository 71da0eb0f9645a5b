package timeline

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// On the wire a stamp is a cluster id of eight bytes and a timeline of four.
const stampSize = 12

// maxTimeline is later than any database gets to, by one promotion after another.
const maxTimeline = 1 << 20

// maxStamps is how many of them fit a datagram.
const maxStamps = 90

var errMalformed = errors.New("decode timelines")

func appendStamp(b []byte, s Stamp) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(s.Cluster)), uint32(s.Timeline))
}

// decodeStamps decodes what appendStamp has encoded, and hands each to take; none, if
// anything is wrong.
func decodeStamps(b []byte, take func(Stamp)) error {
	if len(b)%stampSize != 0 {
		return fmt.Errorf("%w: %d bytes are no multiple of %d", errMalformed, len(b), stampSize)
	}
	parts := slices.Collect(slices.Chunk(b, stampSize))
	for _, part := range parts {
		if timeline := binary.BigEndian.Uint32(part[8:]); timeline > maxTimeline {
			return fmt.Errorf("%w: no database gets to timeline %d", errMalformed, timeline)
		}
	}
	for _, part := range parts {
		take(Stamp{ClusterID(binary.BigEndian.Uint64(part)), int32(binary.BigEndian.Uint32(part[8:]))})
	}
	return nil
}

// tokens makes and checks the tokens of questions. A token says when and for whom it was
// made, and proves that it was made here, so nothing has to be remembered.
type tokens struct {
	secret [32]byte
	born   time.Time
}

func newTokens() tokens {
	t := tokens{born: time.Now()}
	rand.Read(t.secret[:]) // never fails
	return t
}

// A token is eight bytes of time and sixteen of proof.
const tokenSize = 24

func (t *tokens) makeFor(member string) []byte {
	return t.sign(member, uint64(time.Since(t.born)))
}

func (t *tokens) sign(member string, at uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, at)
	mac := hmac.New(sha256.New, t.secret[:])
	mac.Write(b)
	mac.Write([]byte(member))
	return mac.Sum(b)[:tokenSize]
}

// isValid tells whether a member was asked a moment ago with this token.
func (t *tokens) isValid(member string, token []byte) bool {
	at := binary.BigEndian.Uint64(token)
	return hmac.Equal(token, t.sign(member, at)) && time.Since(t.born)-time.Duration(at) <= tokenLifetime
}

// cutToken takes the token off a question or an answer.
func cutToken(b []byte) (token, rest []byte, err error) {
	if len(b) < tokenSize {
		return nil, nil, fmt.Errorf("%w: %d bytes hold no token", errMalformed, len(b))
	}
	return b[:tokenSize], b[tokenSize:], nil
}

// errUnasked is for an answer that nobody has asked for, or that comes from somebody else
// than was asked.
var errUnasked = errors.New("an answer about timelines that was not asked for, is too late, or is not from the member that was asked")
