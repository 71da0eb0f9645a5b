package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Reported is what a run has said of itself so far.
type Reported struct {
	Record *job.Record
	Age    time.Duration // since it began
	job.Report
}

// Reports lists what a job's runs said of themselves, in their order.
func Reports(ctx context.Context, db DB, id job.ID) ([]job.RunReport, error) {
	return list(ctx, db, fmt.Sprintf("list what the runs of job %d said", id), func(row pgx.CollectableRow) (r job.RunReport, err error) {
		var text []byte
		err = row.Scan(&r.Turn, &r.Attempt, &r.Node, &r.StartedAt, &r.WrittenAt, &r.Done, &r.Total, &r.Note, &r.Output, &text, &r.LeftOut)
		if err != nil {
			return r, err
		}
		var lines []reportLine
		err = json.Unmarshal(text, &lines)
		for _, l := range lines {
			r.Lines = append(r.Lines, job.LogLine{After: time.Duration(l.Ms) * time.Millisecond, Text: l.Text})
		}
		return r, err
	}, sqlReportList, int64(id))
}

// maxReportBytes bounds one statement that writes reports.
const maxReportBytes = 4 << 20

// WriteReports writes what runs on a node say of themselves; runs whose claim was lost change
// nothing. It can be repeated. ErrLocked: somebody has locked the row of one of the jobs, see
// FindHeld; some of the others may be written.
func WriteReports(ctx context.Context, db DB, node string, reports []Reported) error {
	for len(reports) > 0 {
		n, bytes := 0, 0
		for n < len(reports) && bytes < maxReportBytes {
			bytes += reports[n].Size()
			n++
		}
		text, err := encodeReports(reports[:n])
		if err == nil {
			err = briefly(ctx, db, lockTimeout, nil, sqlReportWrite, text, node)
		}
		if err != nil {
			return explain(err, "write what %d runs say", n)
		}
		reports = reports[n:]
	}
	return nil
}

// Size is about how many bytes it has.
func (r *Reported) Size() int {
	n := len(r.Output) + len(r.Note)
	for _, l := range r.Lines {
		n += len(l.Text)
	}
	return n
}

// TrimReports removes what runs said of themselves of jobs that are neither unfinished nor kept:
// that of so many runs at most, of fewer if there are no more.
func TrimReports(ctx context.Context, db DB, retention time.Duration, most int) (n int, err error) {
	count := func(q *pgx.QueuedQuery) { q.QueryRow(func(row pgx.Row) error { return row.Scan(&n) }) }
	err = briefly(ctx, db, lockTimeout, count, sqlReportTrim, retention.Milliseconds(), most)
	return n, explain(err, "remove what old runs said")
}

type reportLine struct {
	Ms   int64  `json:"ms"`
	Text string `json:"text"`
}

// encodeReports is what tenure.write_reports takes.
func encodeReports(reports []Reported) ([]byte, error) {
	type row struct {
		ID      job.ID          `json:"job_id"`
		Turn    int32           `json:"turn"`
		Attempt int             `json:"attempt"`
		Age     int64           `json:"age_us"`
		Done    int64           `json:"done"`
		Total   int64           `json:"total"`
		Note    string          `json:"note"`
		Output  json.RawMessage `json:"output"`
		Lines   []reportLine    `json:"lines"`
		LeftOut int             `json:"left_out"`
	}
	rows := make([]row, len(reports))
	for i, r := range reports {
		rows[i] = row{ID: r.Record.ID, Turn: r.Record.Turn, Attempt: r.Record.Attempt, Age: r.Age.Microseconds(),
			Done: r.Done, Total: r.Total, Note: r.Note, Output: r.Output, Lines: make([]reportLine, len(r.Lines)), LeftOut: r.LeftOut}
		for n, l := range r.Lines {
			rows[i].Lines[n] = reportLine{l.After.Milliseconds(), l.Text}
		}
	}
	return json.Marshal(rows)
}

// literal quotes text for SQL in ASCII, whatever a handler has made of standard_conforming_strings
// and of the client's encoding.
func literal(text string) string {
	var b strings.Builder
	b.WriteString("E'")
	for _, r := range text {
		switch {
		case r == '\'' || r == '\\':
			b.WriteRune(r)
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteString("'")
	return b.String()
}
