package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/job"
)

// SQLExec asks for one SQL statement in the tenant's schema.
type SQLExec struct {
	SQL string `json:"sql"`
	// Args stand for $1, $2 and so on. Numbers, strings and truth values take the
	// type of their place in the statement; lists suit SQL arrays and jsonb, objects
	// suit jsonb.
	Args []any `json:"args,omitempty"`

	fault error // as of an [HTTPRequest]
}

func (SQLExec) Kind() string { return "sql.exec" }

// UnmarshalJSON leaves it to the handler to say what is wrong.
func (s *SQLExec) UnmarshalJSON(text []byte) error {
	type plain SQLExec
	s.fault = readArguments(s.Kind(), text, (*plain)(s))
	return nil
}

// execSQL runs the statement in the transaction that ends the job: its effects
// happen exactly once.
func execSQL(ctx context.Context, tx pgx.Tx, j *job.Job[SQLExec]) error {
	if j.Args.fault != nil {
		return job.Discard(j.Args.fault)
	}
	word := firstWord(j.Args.SQL)
	if word == "" {
		return job.Discard(errors.New("sql is empty"))
	}
	if why, bad := refused[word]; bad {
		return job.Discard(fmt.Errorf("%s %s", word, why))
	}
	// Query rather than Exec, which takes the simple protocol when there are no
	// arguments and so would run several statements. The statement is described
	// each time, as tenants' tables may differ.
	args := []any{pgx.QueryExecModeDescribeExec}
	for _, a := range j.Args.Args {
		args = append(args, sqlArg(a))
	}
	rows, err := tx.Query(ctx, j.Args.SQL, args...)
	if err != nil {
		return sqlOutcome(err)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return sqlOutcome(err)
	}
	return nil
}

// refused are the statements that cannot work here, by their first word.
var refused = map[string]string{
	"COPY":     "would wait for rows from this side: use INSERT ... SELECT",
	"COMMIT":   endsTx,
	"END":      endsTx,
	"ROLLBACK": endsTx,
	"ABORT":    endsTx,
	"PREPARE":  "leaves something behind the transaction, which would outlive the job",
}

const endsTx = "would end the transaction, which is committed together with the job"

// firstWord is the word that a statement begins with, in capitals.
func firstWord(sql string) string {
	for {
		sql = strings.TrimLeft(sql, "; \t\r\n\f\v")
		switch {
		case strings.HasPrefix(sql, "--"):
			end := strings.IndexAny(sql, "\r\n") // Postgres takes either
			if end < 0 {
				return ""
			}
			sql = sql[end:]
		case strings.HasPrefix(sql, "/*"):
			sql = afterComment(sql)
		default:
			end := strings.IndexFunc(sql, func(r rune) bool { return !unicode.IsLetter(r) })
			if end == 0 {
				end = 1 // such as the ( around a query
			}
			if end < 0 {
				end = len(sql)
			}
			return strings.ToUpper(sql[:end])
		}
	}
}

// afterComment skips a comment, and those within it: in SQL they nest.
func afterComment(sql string) string {
	depth := 0
	for sql != "" {
		switch {
		case strings.HasPrefix(sql, "/*"):
			depth++
			sql = sql[2:]
		case strings.HasPrefix(sql, "*/"):
			depth--
			sql = sql[2:]
		default:
			sql = sql[1:]
		}
		if depth == 0 {
			return sql
		}
	}
	return ""
}

// classSyntax are the errors of a statement that is wrong, names what does not
// exist, or does what its role may not.
const classSyntax = "42"

// What pgx says of args that are not those that the statement needs. It has no types for that.
var (
	miscounted = regexp.MustCompile(`^expected (\d+) arguments, got (\d+)$`)
	unfit      = regexp.MustCompile(`^failed to encode args\[(\d+)\]: `)
)

func sqlOutcome(err error) error {
	if m := miscounted.FindStringSubmatch(err.Error()); m != nil {
		return job.Discard(fmt.Errorf("the arguments of sql.exec: the statement needs %s args, and there are %s", m[1], m[2]))
	}
	if m := unfit.FindStringSubmatch(err.Error()); m != nil {
		return job.Discard(fmt.Errorf("the arguments of sql.exec: args[%s] cannot become what the statement needs there", m[1]))
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.HasPrefix(pg.Code, classSyntax) {
		return job.Discard(err)
	}
	return err
}

// sqlArg makes an argument fit for any type that it may stand for: pgx sends a
// string as text, which Postgres reads as the type it needs. A number keeps all
// its digits that way.
func sqlArg(v any) any {
	switch v := v.(type) {
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return list(v)
	}
	return v
}

// list makes the elements fit for SQL arrays, without changing what they are in
// JSON.
func list(in []any) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = v
		switch v := v.(type) {
		case []any:
			out[i] = list(v)
		case json.Number:
			if n, err := v.Int64(); err == nil {
				out[i] = n
			} else if f, err := v.Float64(); err == nil && strconv.FormatFloat(f, 'g', -1, 64) == v.String() {
				out[i] = f
			}
		}
	}
	return out
}
