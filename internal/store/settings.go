package store

import (
	"context"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// everySetting holds on each connection of this program, whatever its server, database, role or DSN
// says, also in tenants' transactions. What else these have is the application's to say.
var everySetting = map[string]string{
	"client_encoding":             "UTF8", // Go's text; the server would take it for something else, and store that
	"standard_conforming_strings": "on",   // pgx relies on it, and statements with patterns do
	// The ledger's statements wait for one another and then have to see what has become of
	// what they waited for.
	"default_transaction_isolation": "read committed",
	"idle_session_timeout":          "0",   // connections are kept open for as long as they are needed
	"exit_on_error":                 "off", // an error is an answer
}

// ledgerSettings hold, too, on each connection for the ledger's own statements.
var ledgerSettings = map[string]string{
	"search_path": "",
	// What values are written as and read by, where they are text.
	"DateStyle":          "ISO, MDY",
	"IntervalStyle":      "postgres",
	"TimeZone":           "UTC",
	"bytea_output":       "hex",
	"extra_float_digits": "1",
	"array_nulls":        "on",
	// Patterns compare what is quoted only where it has to be.
	"quote_all_identifiers": "off",
	// Functions may read the first of several rows.
	"plpgsql.extra_errors": "none",
	// Statements take less time than compiling one would.
	"jit": "off",
	// How long something may take is said by those who ask for it.
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
	// Other tables may not have what the ledger's need, such as unique indexes, and their owner need not
	// have a right to another place.
	"default_table_access_method": "heap",
	"default_tablespace":          "",
}

// FixSettings has a connection be opened with what this program relies on in every session.
func FixSettings(c *pgx.ConnConfig) { Fix(c, everySetting) }

// FixLedgerSettings has a connection be opened with what the ledger's statements rely on.
func FixLedgerSettings(c *pgx.ConnConfig) {
	FixSettings(c)
	Fix(c, ledgerSettings)
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // by others arguments lose their types
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = statementsKept, 0
	c.AfterConnect = unboundTransactions
}

// statementsKept is twice what a term and those who enqueue send. Those of operators may take the place of others: pgx
// makes room for all when it connects, for 140 bytes each.
const statementsKept = 128

// Fix has a connection be opened with settings, however a DSN spells their names.
func Fix(c *pgx.ConnConfig, settings map[string]string) {
	for name, value := range settings {
		maps.DeleteFunc(c.RuntimeParams, func(other, _ string) bool { return strings.EqualFold(other, name) })
		c.RuntimeParams[name] = value
	}
}

// unboundTransactions takes a bound off transactions that servers before 17 do not know, so that it cannot
// be among the parameters that a connection is opened with.
func unboundTransactions(ctx context.Context, c *pgconn.PgConn) error {
	if major, _, _ := strings.Cut(c.ParameterStatus("server_version"), "."); len(major) == 2 && major < "17" {
		return nil
	}
	_, err := c.Exec(ctx, sqlTransactionUnbound).ReadAll()
	return err
}
