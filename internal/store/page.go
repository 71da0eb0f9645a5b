package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/job"
)

// Lane is where jobs wait in order: one queue, tenant and priority.
type Lane struct {
	Queue    string
	Tenant   string
	Priority int16
}

// PageRequest says how far to read on in each lane; the slices go together.
type PageRequest struct {
	Queues     []string
	Tenants    []string
	Priorities []int16
	After      []int64
	Quotas     []int32
	Heads      []bool   // the lane is read for one job, whose turn it is under its exclusive key
	Kinds      []string // the lane is read for jobs of one kind; "": of all
	UpTo       []int64  // the lane is read up to this position
	Apart      bool     // print payloads one by one, the smallest first: what is printed at once was slow lately
	Room       int64    // bytes of payloads that the page may have, MaxJobBytes to MaxPageBytes; 0: MaxPageBytes
}

// Add asks for up to quota jobs of a lane after a position. Those with an exclusive key come
// without payload.
func (p *PageRequest) Add(l Lane, after int64, quota int) {
	p.add(l, after, quota, false, "", math.MaxInt64)
}

// AddKind is Add for jobs of one kind that stand no further than at a position.
func (p *PageRequest) AddKind(l Lane, kind string, after, upTo int64, quota int) {
	p.add(l, after, quota, false, kind, upTo)
}

// AddHead asks for the job of a lane at a position, whose turn it is under its exclusive key.
func (p *PageRequest) AddHead(l Lane, position int64) {
	p.add(l, position-1, 1, true, "", math.MaxInt64)
}

func (p *PageRequest) add(l Lane, after int64, quota int, head bool, kind string, upTo int64) {
	p.Queues = append(p.Queues, l.Queue)
	p.Tenants = append(p.Tenants, l.Tenant)
	p.Priorities = append(p.Priorities, l.Priority)
	p.After = append(p.After, after)
	p.Quotas = append(p.Quotas, int32(quota))
	p.Heads = append(p.Heads, head)
	p.Kinds = append(p.Kinds, kind)
	p.UpTo = append(p.UpTo, upTo)
}

// Waiting is a job as a page shows it.
type Waiting struct {
	Lane     int // index into the request
	Position int64
	Foreign  bool      // of a kind that was not asked for: without payload
	TooLarge bool      // more than MaxJobBytes: without payload
	Damage   string    // why it cannot be read, and is not to be claimed: without payload; "": it can
	Left     bool      // the page had no room for it: without payload
	Keyed    bool      // it has an exclusive key, and the lane is not read for it: without payload
	Unwanted bool      // somebody wants it cancelled; see CancelWaiting
	Bytes    int64     // of payload and meta; if TooLarge, what is known of them
	Ready    time.Time // since when it could start, by the clock of this process
	Record   job.Record
}

// Page is what ReadPage saw.
type Page struct {
	PageState
	Jobs []Waiting // lane by lane, each in order of position
	Slow bool      // to print it at once took too long, or failed; or there was no time for some of it apart
}

// PageState is the ledger's state just before a page was read.
type PageState struct {
	Removals int64 // to be named by the claim that is made from the page
	Limits   int64 // how often limits had been changed
	Position int64 // the last position given out
	XMin     int64 // every transaction before it has ended
	Now      time.Time
}

// Kinds is a set of kinds. Its strings are used for the records of a page, so that
// reading one does not allocate a string per job.
type Kinds struct {
	list []string
	own  map[string]string // each to itself
}

// KindsOf returns the set of a list's kinds.
func KindsOf(list []string) Kinds {
	k := Kinds{list: append([]string{}, slices.Compact(slices.Sorted(slices.Values(list)))...), own: make(map[string]string, len(list))}
	for _, s := range k.list {
		k.own[s] = s
	}
	return k
}

// Has tells whether kind is in k.
func (k Kinds) Has(kind string) bool {
	_, ok := k.own[kind]
	return ok
}

// List is what is in k, in order. It is not to be changed.
func (k Kinds) List() []string { return k.list }

func (s *PageState) scan(row pgx.Row) error {
	return row.Scan(&s.Removals, &s.Limits, &s.Position, &s.XMin, &s.Now)
}

// Bounds on what is read of jobs, so that no tenant's payloads, which somebody may have
// added by SQL, take a node's memory, or the others' time.
const (
	MaxJobBytes  = 2 * job.MaxPrinted // of payload and meta of one job, as Postgres prints them
	MaxPageBytes = 16 << 20           // of all jobs of a page
)

// ReadPage reads waiting jobs of the given kinds, and with foreign also others,
// without their payload; in one round trip, without a lock. lanes of p give the
// records their queue, tenant and priority. A page that cannot be printed, or not soon, or in which
// something is damaged, is read without payloads, which are printed apart then.
func ReadPage(ctx context.Context, db DB, p *PageRequest, kinds Kinds, foreign bool) (Page, error) {
	apart := func(ctx context.Context) (Page, error) { return readApart(ctx, db, p, kinds, foreign) }
	var page Page
	var err error
	if p.Apart {
		page, err = apart(ctx)
	} else {
		page, err = readPrinted(ctx, func(ctx context.Context) (Page, error) {
			return readPage(ctx, db, p, kinds, foreign, MaxJobBytes)
		}, apart)
	}
	return page, explain(err, "read waiting jobs")
}

// readPage reads a page with the payload and meta of jobs that are stored, and printed, as
// no more than most bytes.
func readPage(ctx context.Context, db DB, p *PageRequest, kinds Kinds, foreign bool, most int) (Page, error) {
	var b pgx.Batch
	b.Queue(sqlPageState)
	b.Queue(sqlPageRead, p.Queues, p.Tenants, p.Priorities, p.After, p.Quotas, kinds.List(), foreign, most, cmp.Or(p.Room, MaxPageBytes), p.Heads, p.Kinds, p.UpTo)
	r := db.SendBatch(ctx, &b)
	defer r.Close()
	page, err := scanPage(r, p, kinds.own)
	if err != nil {
		return Page{}, err
	}
	return page, r.Close()
}

// Survey is what a term begins with.
type Survey struct {
	Made   []int64 // claims of the session
	Claims []Claim // of all sessions, in flight
	State  PageState
	Lanes  LanesFound
	Held   []HeldKey // by the jobs of the claims
}

// ReadSurvey reads what a term of a session begins with in one round trip.
func ReadSurvey(ctx context.Context, db DB, session uuid.UUID, look LaneLook) (s Survey, err error) {
	var b pgx.Batch
	var lanes []foundLane
	queueSurvey(&b, session, look)
	collectInto(b.QueuedQueries[0], &s.Made, pgx.RowTo[int64])
	collectInto(b.QueuedQueries[1], &s.Claims, pgx.RowToStructByPos[Claim])
	b.QueuedQueries[2].QueryRow(s.State.scan)
	collectInto(b.QueuedQueries[3], &lanes, pgx.RowToStructByPos[foundLane])
	collectInto(b.QueuedQueries[4], &s.Held, pgx.RowToStructByPos[HeldKey])
	err = explain(db.SendBatch(ctx, &b).Close(), "read what a term begins with")
	s.Lanes = look.found(lanes)
	return s, err
}

func queueSurvey(b *pgx.Batch, session uuid.UUID, look LaneLook) {
	b.Queue(sqlClaimMade, session)
	b.Queue(sqlClaimList)
	b.Queue(sqlPageState)
	b.Queue(sqlLaneList, look.args()...)
	b.Queue(sqlClaimKeys)
}

// Warm readies a connection of db for a term: everything that one begins with is
// prepared, planned and run once, without an effect. On a fresh connection that takes
// Postgres longer than the term's first claim does otherwise.
func Warm(ctx context.Context, db DB) error {
	var b pgx.Batch
	queueSurvey(&b, uuid.Nil, LaneLook{Most: 1, EachTenant: 1})
	b.Queue(sqlPageRead, []string{}, []string{}, []int16{}, []int64{}, []int32{}, []string{}, false, 0, 0, []bool{}, []string{}, []int64{})
	b.Queue(sqlClaimInsert, uuid.Nil, 0, 0, []int64{}, []int32{}, []int32{}, []uuid.UUID{}, 0) // nobody holds such a lock
	return explain(db.SendBatch(ctx, &b).Close(), "ready a connection")
}

// WarmTx readies a connection for tenants' transactions: what one begins with is done, and
// what it ends with is done to no job, or planned, without an effect.
func WarmTx(ctx context.Context, db DB) error {
	var b pgx.Batch
	b.Queue("SELECT tenure.begin_tenant('tenure', '', '')") // until the batch ends
	b.Queue("DO $$ BEGIN PERFORM tenure.finish_in_tx(0, 0, false, 0, ''); EXCEPTION WHEN SQLSTATE '" + codeClaimLost + "' THEN NULL; END $$")
	b.Queue("EXPLAIN INSERT INTO tenure.completed_job DEFAULT VALUES")
	return explain(db.SendBatch(ctx, &b).Close(), "ready a connection for tenants")
}

// BackRequest says where jobs are to be looked for that cursors have gone by.
type BackRequest struct {
	Lanes   []Lane
	Behind  int64 // this position
	UpTo    int64 // and no further than this one
	Kinds   Kinds
	Foreign bool    // jobs of other kinds count, too
	Known   []int64 // jobs that do not
	Turns   []int32 // theirs
	Waited  []Key   // whose jobs do not, either
	// Apart are kinds that are read by themselves in a lane, where jobs of theirs do not count.
	Apart map[Lane][]KindEnd
}

// KindEnd is behind which position, and up to which, a lane is still to be read for the jobs of a kind. One that
// is committed late beyond that was gone by like any other.
type KindEnd struct {
	Kind        string
	After, UpTo int64
}

// LookBack finds the position of the first job of each lane between two positions that nobody
// has claimed, and the state just before; in one round trip, without a lock. Lanes that
// have none are left out.
func LookBack(ctx context.Context, db DB, r BackRequest) (s PageState, first map[Lane]int64, err error) {
	var p PageRequest
	for _, l := range r.Lanes {
		p.Add(l, r.Behind, 1)
	}
	tenants, keys := splitKeys(r.Waited)
	kinds, afters, upTos := make([]*string, len(r.Lanes)), make([]*string, len(r.Lanes)), make([]*string, len(r.Lanes)) // arrays, as they are written
	for i, l := range r.Lanes {
		if apart := r.Apart[l]; len(apart) > 0 {
			k, a, u := make([]string, len(apart)), make([]string, len(apart)), make([]string, len(apart))
			for n, e := range apart {
				k[n], a[n], u[n] = `"`+arrayEscapes.Replace(e.Kind)+`"`, strconv.FormatInt(e.After, 10), strconv.FormatInt(e.UpTo, 10)
			}
			kinds[i], afters[i], upTos[i] = new("{"+strings.Join(k, ",")+"}"), new("{"+strings.Join(a, ",")+"}"), new("{"+strings.Join(u, ",")+"}")
		}
	}
	var b pgx.Batch
	b.Queue(sqlPageState).QueryRow(s.scan)
	b.Queue(sqlLaneBehind, p.Queues, p.Tenants, p.Priorities, r.Behind, r.Kinds.List(), r.Foreign, r.Known, r.Turns, tenants, keys, kinds, afters, upTos, r.UpTo).Query(func(rows pgx.Rows) error {
		first = map[Lane]int64{}
		var n int
		var position int64
		_, err := pgx.ForEachRow(rows, []any{&n, &position}, func() error {
			first[r.Lanes[n-1]] = position
			return nil
		})
		return err
	})
	err = db.SendBatch(ctx, &b).Close()
	return s, first, explain(err, "look for jobs behind the cursors")
}

// arrayEscapes is how an element of an array is written within quotes.
var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func scanPage(r pgx.BatchResults, p *PageRequest, kinds map[string]string) (Page, error) {
	var page Page
	s := &page.PageState
	if err := s.scan(r.QueryRow()); err != nil {
		return page, err
	}
	rows, err := r.Query()
	if err != nil {
		return page, err
	}
	defer rows.Close()
	total := 0
	for _, q := range p.Quotas {
		total += int(q)
	}
	page.Jobs = make([]Waiting, 0, min(total, 4096))
	d := rowDecoder{ahead: time.Since(s.Now), more: min(max(total*usualBytes, ownArray), arenaSize)}
	for rows.Next() {
		if d.fields == nil {
			d.fields = rows.FieldDescriptions()
		}
		page.Jobs = append(page.Jobs, Waiting{})
		d.decode(rows.RawValues(), &page.Jobs[len(page.Jobs)-1], p, kinds)
		if d.err != nil {
			return page, d.err
		}
	}
	return page, rows.Err()
}

// rowDecoder reads rows of page_read.sql from the wire format: at 100,000 jobs a
// second, scanning through reflection was a fifth of all the time.
type rowDecoder struct {
	fields []pgconn.FieldDescription
	ahead  time.Duration // of the database's clock is that of this process
	arena  []byte        // where small values are copied to
	more   int           // bytes of the next arena
	err    error
}

// pageColumns is how many columns page_read.sql returns.
const pageColumns = 18

// decode reads a row into w. It sets d.err when the row is not one of page_read.sql.
func (d *rowDecoder) decode(v [][]byte, w *Waiting, p *PageRequest, kinds map[string]string) {
	if len(v) != pageColumns || len(d.fields) != pageColumns {
		d.err = fmt.Errorf("row of %d values in %d columns, not %d", len(v), len(d.fields), pageColumns)
		return
	}
	rec := &w.Record
	w.Lane = int(d.int(v, 0)) - 1
	w.Position = d.int(v, 1)
	rec.ID = job.ID(d.int(v, 2))
	rec.Turn = int32(d.int(v, 3))
	kind, ok := kinds[string(v[4])]
	if !ok {
		kind = string(v[4])
		if v[4] == nil {
			d.null(4)
		}
	}
	rec.Kind, w.Foreign = kind, !ok
	rec.Attempt = int(d.int(v, 5)) + 1
	if v[6] != nil {
		rec.MaxAttempts = int(d.int(v, 6))
	}
	rec.Losses = int(d.int(v, 7))
	if v[8] != nil {
		rec.Timeout = time.Duration(d.int(v, 8)) * time.Millisecond
	}
	rec.CreatedAt = time.UnixMicro(d.int(v, 9) + postgresEpoch)
	w.Bytes = d.int(v, 15)
	w.Ready = time.UnixMicro(d.int(v, 17) + postgresEpoch).Add(d.ahead)
	if v[16] != nil {
		rec.ExclusiveKey = string(v[16])
		w.Keyed = w.Lane >= 0 && w.Lane < len(p.Heads) && !p.Heads[w.Lane]
	}
	w.TooLarge = !w.Foreign && w.Bytes > MaxJobBytes
	w.Left = !w.Foreign && !w.Keyed && !w.TooLarge && v[10] == nil
	rec.Payload = d.text(v[10])
	rec.Meta = d.text(v[11])
	if v[12] != nil {
		rec.UniqueKey = string(v[12])
	}
	if v[13] != nil {
		rec.CorrelationID = string(v[13])
	}
	w.Unwanted = d.bool(v, 14)
	if w.Lane < 0 || w.Lane >= len(p.Queues) {
		if d.err == nil {
			d.err = fmt.Errorf("row of lane %d among %d", w.Lane+1, len(p.Queues))
		}
		return
	}
	rec.Queue, rec.Tenant, rec.Priority = p.Queues[w.Lane], p.Tenants[w.Lane], p.Priorities[w.Lane]
}

// postgresEpoch is 2000-01-01 in µs after 1970.
const postgresEpoch = 946_684_800_000_000

func (d *rowDecoder) null(i int) { d.err = fmt.Errorf("column %s is NULL", d.fields[i].Name) }

// int reads a smallint, integer, bigint or timestamptz.
func (d *rowDecoder) int(v [][]byte, i int) int64 {
	b := v[i]
	if d.fields[i].Format != pgx.BinaryFormatCode {
		d.err = fmt.Errorf("column %s is not in binary format", d.fields[i].Name)
		return 0
	}
	switch len(b) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	}
	if b == nil {
		d.null(i)
	} else {
		d.err = fmt.Errorf("column %s has %d bytes", d.fields[i].Name, len(b))
	}
	return 0
}

// bool reads a boolean.
func (d *rowDecoder) bool(v [][]byte, i int) bool {
	b := v[i]
	switch {
	case b == nil:
		d.null(i)
	case d.fields[i].Format != pgx.BinaryFormatCode || len(b) != 1:
		d.err = fmt.Errorf("column %s is not a boolean in binary format", d.fields[i].Name)
	default:
		return b[0] != 0
	}
	return false
}

const (
	usualBytes = 256      // of a job's values in an arena: what most have is less
	arenaSize  = 64 << 10 // holds the payloads of some hundred jobs per allocation
)

// ownArray is from when on a value has an array of its own, so that it does not outlive its
// job together with others.
const ownArray = 1 << 10

// text copies a value out of the read buffer; nil stays nil.
func (d *rowDecoder) text(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) > ownArray:
		return slices.Clone(b)
	case cap(d.arena)-len(d.arena) < len(b):
		d.arena = make([]byte, 0, d.more)
	}
	start := len(d.arena)
	d.arena = append(d.arena, b...)
	return d.arena[start:len(d.arena):len(d.arena)]
}

// LaneLook says which lanes to look for.
type LaneLook struct {
	Most       int  // lanes to go through
	EachTenant int  // as many of them are listed of a tenant at most
	Behind     Lane // where to begin; zero: with the first one
	Whole      bool // look also at what is below the bottom, where nothing ought to stand
	// Bottom is a position up to which no job stands, or can appear, to be noted for who holds
	// the lock after Fence; 0: there is nothing to be noted.
	Bottom int64
	Fence  Fence
}

// LanesFound is what a look for lanes has found.
type LanesFound struct {
	Lanes []Lane
	Next  Lane // what the next look is to begin behind; zero: this one came to the last lane
	// Lowest is the first position in any lane that was gone through, if there was none before it.
	Lowest int64
	Bottom int64 // as it was noted; 0 after a look at the whole
}

// foundLane is a row of a look.
type foundLane struct {
	Lane
	N              int64
	Listed         bool
	Lowest, Bottom int64
}

func (l LaneLook) args() []any {
	return []any{l.Most, l.EachTenant, l.Behind.Queue, l.Behind.Tenant, l.Behind.Priority, l.Whole}
}

// BottomOf is the position up to which no job stands, or can appear, by what a look has found, if nothing could
// appear any more up to a position before that; 0: it is not known, as the look did not go through all lanes.
func (l LaneLook) BottomOf(f LanesFound, final int64) int64 {
	if (l.Behind != Lane{}) || (f.Next != Lane{}) {
		return 0
	}
	return min(final, f.Lowest-1)
}

func (l LaneLook) found(rows []foundLane) LanesFound {
	f := LanesFound{Lowest: math.MaxInt64}
	for _, r := range rows {
		if r.Listed {
			f.Lanes = append(f.Lanes, r.Lane)
		}
		if r.N == int64(l.Most) {
			f.Next = r.Lane
		}
		f.Lowest, f.Bottom = r.Lowest, r.Bottom
	}
	return f
}

// LookForLanes lists lanes that have a row, in one round trip.
func LookForLanes(ctx context.Context, db DB, l LaneLook) (LanesFound, error) {
	var rows []foundLane
	var b pgx.Batch
	b.Queue(sqlLaneList, l.args()...)
	collectInto(b.QueuedQueries[0], &rows, pgx.RowToStructByPos[foundLane])
	if l.Bottom > 0 { // at last, as it locks the lock's row
		b.Queue(sqlBottomNote, l.Fence.Session, l.Fence.Epoch, l.Fence.Incarnation, l.Bottom)
	}
	err := db.SendBatch(ctx, &b).Close()
	return l.found(rows), explain(err, "list lanes")
}

// Lanes lists every lane that has a row, at most max of them.
func Lanes(ctx context.Context, db DB, max int) ([]Lane, error) {
	f, err := LookForLanes(ctx, db, LaneLook{Most: max, EachTenant: max})
	return f.Lanes, err
}
