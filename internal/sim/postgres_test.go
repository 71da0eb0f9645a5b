package sim

import (
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurehq/tenure/internal/store"
)

// A database speaks the Postgres protocol and knows the ledger's statements by their
// text, no other. So all that is above the wire is what runs in production: pgx, the
// pools of connections, internal/store.

// statement is one that the database understands.
type statement struct {
	name    string
	params  []uint32
	columns []column
	run     func(l *ledger, by *host, args []any) (rows [][]any)
}

type column struct {
	name string
	oid  uint32
}

// loadStatements finds statements by their text.
func loadStatements() map[string]*statement {
	byText := map[string]*statement{}
	for name, s := range ledgerStatements {
		s.name = name
		byText[store.Statement(name)] = s
	}
	return byText
}

// ping is how pgx asks whether a connection is still good.
const ping = "-- ping"

// types encodes and decodes values.
var (
	typesMu sync.Mutex
	types   = pgtype.NewMap() // guarded by typesMu: it remembers how
)

// backend serves one connection.
type backend struct {
	db       *ledger
	by       *host // who has connected
	wire     *pgproto3.Backend
	prepared map[string]*statement

	bound   *statement
	args    []any
	formats []int16
	failed  bool // until the next Sync
}

func (b *backend) serve(conn net.Conn) {
	defer conn.Close()
	b.wire, b.prepared = pgproto3.NewBackend(conn, conn), map[string]*statement{}
	first, err := b.wire.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if _, ok := first.(*pgproto3.StartupMessage); !ok { // a request to cancel: no statement here takes any time
		return
	}
	b.wire.Send(&pgproto3.AuthenticationOk{})
	for name, value := range map[string]string{"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"} {
		b.wire.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	b.wire.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{1, 2, 3, 4}})
	b.wire.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.wire.Flush() == nil {
		for flush := false; !flush; {
			m, err := b.wire.Receive()
			if err != nil {
				return
			}
			if _, ok := m.(*pgproto3.Terminate); ok {
				return
			}
			flush = b.answer(m)
		}
	}
}

// answer answers a message; it reports whether the client waits for the answers.
func (b *backend) answer(m pgproto3.FrontendMessage) (flush bool) {
	switch m := m.(type) {
	case *pgproto3.Sync:
		b.failed = false
		b.wire.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		return true
	case *pgproto3.Flush:
		return true
	case *pgproto3.Query:
		if m.String == ping {
			b.wire.Send(&pgproto3.EmptyQueryResponse{})
		} else if s := b.find(m.String); s != nil {
			b.send(s, s.run(b.db, b.by, nil), nil)
		}
		b.failed = false
		b.wire.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		return true
	}
	if b.failed {
		return false
	}
	switch m := m.(type) {
	case *pgproto3.Parse:
		if s := b.find(m.Query); s != nil {
			b.prepared[m.Name] = s
			b.wire.Send(&pgproto3.ParseComplete{})
		}
	case *pgproto3.Describe:
		if m.ObjectType == 'P' {
			b.describe(b.bound, b.formats)
			break
		}
		s := b.prepared[m.Name]
		b.wire.Send(&pgproto3.ParameterDescription{ParameterOIDs: s.params})
		b.describe(s, nil)
	case *pgproto3.Bind:
		b.bound, b.formats = b.prepared[m.PreparedStatement], append([]int16(nil), m.ResultFormatCodes...)
		b.args = b.args[:0]
		for i, raw := range m.Parameters {
			b.args = append(b.args, decode(b.bound.params[i], format(m.ParameterFormatCodes, i), raw))
		}
		b.wire.Send(&pgproto3.BindComplete{})
	case *pgproto3.Execute:
		b.rows(b.bound, b.bound.run(b.db, b.by, b.args), b.formats)
	case *pgproto3.Close:
		b.wire.Send(&pgproto3.CloseComplete{})
	default:
		panic(fmt.Sprintf("sim: the database cannot answer %T", m))
	}
	return false
}

// find is a statement by its text. One that is not known is a mistake of this package.
func (b *backend) find(text string) *statement {
	s := b.db.statements[text]
	if s == nil {
		b.db.judge.fault("a statement that the simulation does not know, add it to ledgerStatements: %s", text)
		b.wire.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "0A000", Message: "not simulated"})
		b.failed = true
	}
	return s
}

func (b *backend) describe(s *statement, formats []int16) {
	if len(s.columns) == 0 {
		b.wire.Send(&pgproto3.NoData{})
		return
	}
	var d pgproto3.RowDescription
	for i, c := range s.columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte(c.name), DataTypeOID: c.oid, DataTypeSize: -1, TypeModifier: -1, Format: format(formats, i)})
	}
	b.wire.Send(&d)
}

func (b *backend) send(s *statement, rows [][]any, formats []int16) {
	if len(s.columns) > 0 {
		b.describe(s, formats)
	}
	b.rows(s, rows, formats)
}

func (b *backend) rows(s *statement, rows [][]any, formats []int16) {
	for _, row := range rows {
		if len(s.columns) == 0 {
			break // it only counts
		}
		var d pgproto3.DataRow
		for i, v := range row {
			d.Values = append(d.Values, encode(s.columns[i].oid, format(formats, i), v))
		}
		b.wire.Send(&d)
	}
	b.wire.Send(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "UPDATE %d", len(rows))})
}

// format is that of column or parameter i.
func format(codes []int16, i int) int16 {
	switch len(codes) {
	case 0:
		return pgtype.TextFormatCode
	case 1:
		return codes[0]
	}
	return codes[i]
}

func decode(oid uint32, format int16, raw []byte) any {
	if raw == nil {
		return nil
	}
	typesMu.Lock()
	defer typesMu.Unlock()
	t, _ := types.TypeForOID(oid)
	v, err := t.Codec.DecodeValue(types, oid, format, raw)
	if err != nil {
		panic(err)
	}
	return v
}

func encode(oid uint32, format int16, v any) []byte {
	if v == nil {
		return nil
	}
	typesMu.Lock()
	defer typesMu.Unlock()
	raw, err := types.Encode(oid, format, v, []byte{}) // not nil, which an empty text would be, too
	if err != nil {
		panic(err)
	}
	return raw
}
