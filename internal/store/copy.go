package store

import (
	"encoding/binary"
	"io"
	"time"
)

// copySource renders jobs in Postgres' binary COPY format as they are read. The
// general encoder goes through reflection for each value, which costs as much as
// Postgres' own work on the row.
type copySource struct {
	jobs []*NewJob
	due  bool
	ids  bool      // they have been drawn
	keys bool      // some have an exclusive key
	now  time.Time // the database's
	turn int32     // the first of each

	timeouts bool // some have a timeout

	next    int
	begun   bool
	ended   bool
	pending []byte // rendered, not yet read
	buf     []byte
}

var copyHeader = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

// copyChunk is how much is rendered at a time.
const copyChunk = 64 << 10

// Read implements io.Reader.
func (c *copySource) Read(p []byte) (int, error) {
	if len(c.pending) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		c.render()
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

func (c *copySource) render() {
	b := c.buf[:0]
	if !c.begun {
		b = append(b, copyHeader...)
		c.begun = true
	}
	for c.next < len(c.jobs) && len(b) < copyChunk {
		b = c.row(b, c.jobs[c.next])
		c.next++
	}
	if c.next == len(c.jobs) {
		b = binary.BigEndian.AppendUint16(b, 0xffff) // the end
		c.ended = true
	}
	c.buf, c.pending = b, b
}

func (c *copySource) row(b []byte, j *NewJob) []byte {
	columns := uint16(9)
	if c.due {
		columns++
	}
	if c.ids {
		columns++
	}
	if c.keys {
		columns++
	}
	if c.timeouts {
		columns++
	}
	b = binary.BigEndian.AppendUint16(b, columns)
	b = appendText(b, j.Tenant)
	b = appendText(b, j.Queue)
	b = appendText(b, j.Kind)
	b = appendJSONB(b, j.Payload)
	b = appendInt16(b, j.Priority)
	if j.MaxAttempts == 0 {
		b = appendNull(b)
	} else {
		b = appendInt16(b, int16(j.MaxAttempts))
	}
	if j.Meta == nil {
		b = appendNull(b)
	} else {
		b = appendJSONB(b, j.Meta)
	}
	if j.CorrelationID == "" {
		b = appendNull(b)
	} else {
		b = appendText(b, j.CorrelationID)
	}
	b = binary.BigEndian.AppendUint32(b, 4)
	b = binary.BigEndian.AppendUint32(b, uint32(c.turn))
	if c.due {
		at := j.DueAt
		if at.IsZero() {
			at = c.now.Add(j.DueIn)
		}
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()-postgresEpoch))
	}
	if c.ids {
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(j.id))
	}
	switch {
	case !c.keys:
	case j.ExclusiveKey == "":
		b = appendNull(b)
	default:
		b = appendText(b, j.ExclusiveKey)
	}
	switch {
	case !c.timeouts:
	case j.Timeout == 0:
		b = appendNull(b)
	default:
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(j.Timeout.Milliseconds()))
	}
	return b
}

func appendNull(b []byte) []byte { return binary.BigEndian.AppendUint32(b, 0xffffffff) }

func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func appendInt16(b []byte, n int16) []byte {
	b = binary.BigEndian.AppendUint32(b, 2)
	return binary.BigEndian.AppendUint16(b, uint16(n))
}

func appendJSONB(b, json []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(json)+1))
	b = append(b, 1) // jsonb's version
	return append(b, json...)
}
