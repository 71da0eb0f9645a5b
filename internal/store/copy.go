package store

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// copyColumn is a column of the jobs that are copied, and how one is rendered.
type copyColumn struct {
	name   string
	is     func(*NewJob) bool // whether the job has one; nil: each has
	render func([]byte, *copySource, *NewJob) []byte
}

// copyColumns are those of a new job. One that no job of a copy has is left out.
var copyColumns = []copyColumn{
	{name: "id", render: func(b []byte, _ *copySource, j *NewJob) []byte { return appendInt64(b, int64(j.ID)) }},
	{name: "tenant_id", render: func(b []byte, _ *copySource, j *NewJob) []byte { return appendText(b, j.Tenant) }},
	{name: "queue", render: func(b []byte, _ *copySource, j *NewJob) []byte { return appendText(b, j.Queue) }},
	{name: "kind", render: func(b []byte, _ *copySource, j *NewJob) []byte { return appendText(b, j.Kind) }},
	{name: "payload", render: func(b []byte, _ *copySource, j *NewJob) []byte { return appendJSONB(b, j.Payload) }},
	{name: "priority", render: func(b []byte, _ *copySource, j *NewJob) []byte { return appendInt16(b, j.Priority) }},
	{name: "turn", render: func(b []byte, c *copySource, _ *NewJob) []byte { return appendInt32(b, c.turn) }},
	{"max_attempts", func(j *NewJob) bool { return j.MaxAttempts != 0 },
		func(b []byte, _ *copySource, j *NewJob) []byte { return appendInt16(b, int16(j.MaxAttempts)) }},
	{"meta", func(j *NewJob) bool { return j.Meta != nil },
		func(b []byte, _ *copySource, j *NewJob) []byte { return appendJSONB(b, j.Meta) }},
	{"correlation_id", func(j *NewJob) bool { return j.CorrelationID != "" },
		func(b []byte, _ *copySource, j *NewJob) []byte { return appendText(b, j.CorrelationID) }},
	{"exclusive_key", func(j *NewJob) bool { return j.ExclusiveKey != "" },
		func(b []byte, _ *copySource, j *NewJob) []byte { return appendText(b, j.ExclusiveKey) }},
	{"timeout_ms", func(j *NewJob) bool { return j.Timeout != 0 },
		func(b []byte, _ *copySource, j *NewJob) []byte {
			return appendInt32(b, int32(j.Timeout.Milliseconds()))
		}},
	{"due_at", (*NewJob).Later, func(b []byte, c *copySource, j *NewJob) []byte {
		at := j.DueAt
		if at.IsZero() {
			at = c.now.Add(j.DueIn)
		}
		return appendInt64(b, at.UnixMicro()-postgresEpoch)
	}},
}

// copySource renders jobs in Postgres' binary COPY format as they are read. The
// general encoder goes through reflection for each value, which costs as much as
// Postgres' own work on the row.
type copySource struct {
	jobs    []*NewJob
	columns []copyColumn
	now     time.Time // the database's
	turn    int32     // the first of each

	next    int
	begun   bool
	ended   bool
	pending []byte // rendered, not yet read
	buf     []byte
}

// copyJobs adds jobs to a table.
func copyJobs(ctx context.Context, tx pgx.Tx, table string, jobs []*NewJob, now time.Time, turn int32) error {
	if len(jobs) == 0 {
		return nil
	}
	c := &copySource{jobs: jobs, now: now, turn: turn}
	var names []string
	for _, column := range copyColumns {
		if column.is == nil || slices.ContainsFunc(jobs, column.is) {
			c.columns, names = append(c.columns, column), append(names, column.name)
		}
	}
	_, err := tx.Conn().PgConn().CopyFrom(ctx, c, "COPY tenure."+table+" ("+strings.Join(names, ", ")+") FROM STDIN BINARY")
	return translate(err)
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
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.columns)))
	for i := range c.columns {
		if column := &c.columns[i]; column.is == nil || column.is(j) {
			b = column.render(b, c, j)
		} else {
			b = appendNull(b)
		}
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

func appendInt32(b []byte, n int32) []byte {
	b = binary.BigEndian.AppendUint32(b, 4)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendInt64(b []byte, n int64) []byte {
	b = binary.BigEndian.AppendUint32(b, 8)
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

func appendJSONB(b, json []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(json)+1))
	b = append(b, 1) // jsonb's version
	return append(b, json...)
}
