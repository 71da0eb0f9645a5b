package execution

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/tenantconn"
)

// Where a connection leads through a pooler, a transaction is all that it keeps: whatever comes
// before or behind it runs on another session. Package routing has what such a transaction
// begins with. What is left for here is that handlers cannot step out of it.

// The SQLSTATEs of tenure.require_database, of what has no ledger, and of several statements where
// one is allowed.
const (
	codeOtherDatabase = "TN005"
	codeNoSchema      = "3F000"
	codeNoFunction    = "42883"
	codeSyntax        = "42601"
)

// errBehindPooler is returned for what would stay with a session.
var errBehindPooler = errors.New("this pool's transactions go through a pooler (tenant_dsn), where handlers prepare no statements: execute them as they are")

// beginning is what a transaction on a connection begins with beside its own statements.
func beginning(c *pgx.Conn) (before, within string, pooled bool) {
	begin := tenantconn.Of(c.PgConn()).Begin
	if begin == nil {
		return "", "", false
	}
	before, within = begin()
	return before, within, true
}

// ledElsewhere tells whether a transaction was refused as its pooler leads to another database
// than before.
func ledElsewhere(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeOtherDatabase
}

// mayEndTx finds the words that every statement that ends a transaction begins with. Text
// without them cannot end one, however many statements it is.
var mayEndTx = regexp.MustCompile(`(?i)\b(commit|end|rollback|abort|prepare)\b`)

// single refuses a statement that ends the transaction. With the arguments that it returns,
// Postgres refuses text that is more than this one statement.
func single(sql string, args []any) ([]any, error) {
	if endsTx(sql) {
		return nil, errNotYours
	}
	args = slices.Clone(args)
	for i, a := range args {
		if a == pgx.QueryExecModeSimpleProtocol { // which takes several
			args[i] = pgx.QueryExecModeDescribeExec
		}
	}
	return args, nil
}

// explainSingle says why Postgres has refused a text of several statements.
func explainSingle(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeSyntax {
		return fmt.Errorf("%w (through a pooler, text with the words COMMIT, END, ROLLBACK, ABORT or PREPARE has to be one statement)", err)
	}
	return err
}

// endsTx tells whether the first statement of sql ends the transaction, and not only goes back
// to a savepoint.
func endsTx(sql string) bool {
	word, rest := nextWord(sql)
	switch word {
	case "commit", "end", "abort":
		return true
	case "rollback":
		if word, rest = nextWord(rest); word == "work" || word == "transaction" {
			word, _ = nextWord(rest)
		}
		return word != "to"
	case "prepare":
		word, _ = nextWord(rest)
		return word == "transaction"
	}
	return false
}

// nextWord reads past whitespace, comments and empty statements, as Postgres does, and
// returns the word that follows, in lower case; "": something else does.
func nextWord(sql string) (word, rest string) {
	for {
		sql = strings.TrimLeft(sql, " \t\n\r\f\v;")
		switch {
		case strings.HasPrefix(sql, "--"):
			end := strings.IndexAny(sql, "\n\r")
			if end < 0 {
				return "", ""
			}
			sql = sql[end:]
		case strings.HasPrefix(sql, "/*"):
			sql = skipComment(sql)
		default:
			end := strings.IndexFunc(sql, func(r rune) bool { return r < 'A' || r > 'Z' && r < 'a' && r != '_' || r > 'z' && r < 0x80 })
			if end < 0 {
				end = len(sql)
			}
			return strings.ToLower(sql[:end]), sql[end:]
		}
	}
}

// skipComment returns what follows a comment, which may hold others.
func skipComment(sql string) string {
	for depth := 0; ; {
		at := strings.IndexAny(sql, "/*")
		if at < 0 || at+1 == len(sql) {
			return ""
		}
		switch sql[at : at+2] {
		case "/*":
			depth++
			at++
		case "*/":
			depth--
			at++
		}
		sql = sql[at+1:]
		if depth == 0 {
			return sql
		}
	}
}
