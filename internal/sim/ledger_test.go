package sim

import (
	"math"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurehq/tenure/internal/store"
)

// ledger is one pool's database: the lock's row and the sessions, as the statements
// in internal/store/queries change them. It has no jobs. Its clock can be set.
type ledger struct {
	pool       string
	number     int
	host       *host
	statements map[string]*statement
	judge      *judge
	flaws      flaws

	mu       sync.Mutex
	ahead    time.Duration // guarded by mu; how far its clock is ahead of the true time
	lock     lockRow       // guarded by mu
	sessions map[uuid.UUID]*sessionRow
	looks    int // guarded by mu; whether there is something to do
	backends sync.WaitGroup
}

type lockRow struct {
	epoch                   int64
	holder                  uuid.UUID // zero: nobody
	member, next            string
	taken, renewed, expires time.Time
	reserved                time.Time
	seq                     int64
}

type sessionRow struct {
	member, addr, state string
	beat                int64
	expires             time.Time
}

// flaws are protections of the ledger that a test takes away.
type flaws struct {
	renewExpired   bool // an expired lock can be renewed
	epochIsClock   bool // the epoch is the clock's time, also when that goes back
	noFence        bool // anyone who has held the lock may still claim
	quietSinceTake bool // the time since the last renewal is counted from the take
	noReservation  bool // an offered lock can be taken by anybody
	stealable      bool // anybody may take the lock, held or not
}

func newLedger(w *wires, pool string, number int, addr string, statements map[string]*statement, j *judge, f flaws) *ledger {
	l := &ledger{pool: pool, number: number, statements: statements, judge: j, flaws: f, sessions: map[uuid.UUID]*sessionRow{}}
	l.host = w.plug(addr, func(conn net.Conn, by *host) {
		b := &backend{db: l, by: by}
		l.backends.Go(func() { b.serve(conn) })
	})
	return l
}

// clock is the database's time. mu is held.
func (l *ledger) clock() time.Time { return time.Now().Add(l.ahead) }

// jump sets the clock.
func (l *ledger) jump(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead += by
}

const (
	oidBool, oidInt8, oidInt2, oidInt4, oidText = pgtype.BoolOID, pgtype.Int8OID, pgtype.Int2OID, pgtype.Int4OID, pgtype.TextOID
	oidUUID, oidTexts, oidInts, oidTime         = pgtype.UUIDOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.TimestamptzOID
)

func ms(d time.Duration) int64 { return max(0, d.Milliseconds()) }

func millis(v any) time.Duration { return time.Duration(v.(int64)) * time.Millisecond }

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func id(u uuid.UUID) any {
	if u == uuid.Nil {
		return nil
	}
	return [16]byte(u)
}

func asID(v any) uuid.UUID {
	b, _ := v.([16]byte)
	return uuid.UUID(b)
}

func none(*ledger, *host, []any) [][]any { return nil }

func locked(run func(l *ledger, by *host, args []any) [][]any) func(*ledger, *host, []any) [][]any {
	return func(l *ledger, by *host, args []any) [][]any {
		l.mu.Lock()
		defer l.mu.Unlock()
		return run(l, by, args)
	}
}

// remaining is until the lock expires or, when nobody holds it, its reservation ends.
func (l *ledger) remaining() int64 {
	if l.lock.holder == uuid.Nil {
		return ms(l.lock.reserved.Sub(l.clock()))
	}
	return ms(l.lock.expires.Sub(l.clock()))
}

// holds is the fence.
func (l *ledger) holds(session uuid.UUID, epoch int64) bool {
	return l.lock.holder == session && l.lock.epoch == epoch && l.lock.expires.After(l.clock())
}

var tenantColumns = []column{{"tenant_id", oidText}, {"state", oidText}, {"other_pool", oidText}, {"frozen", oidBool}, {"held", oidBool}}

var ledgerStatements = map[string]*statement{
	"lock_read": {
		columns: []column{{"holder_member", oidText}, {"next_holder", oidText}, {"epoch", oidInt8}, {"renew_seq", oidInt8}, {"remaining_ms", oidInt8},
			{"paused", oidBool}, {"removals", oidInt8}, {"holder", oidUUID}, {"taken_at", oidTime}, {"quiet_ms", oidInt8}, {"beat", oidInt8}, {"ttl_ms", oidInt8}},
		run: locked(func(l *ledger, by *host, _ []any) [][]any {
			l.judge.read(l)
			k := &l.lock
			since := k.renewed
			if l.flaws.quietSinceTake {
				since = k.taken
			}
			beat := int64(0)
			if s := l.sessions[k.holder]; s != nil {
				beat = s.beat
			}
			return [][]any{{text(k.member), text(k.next), k.epoch, k.seq, l.remaining(), false, int64(0), id(k.holder), k.taken, ms(l.clock().Sub(since)), beat, ms(k.expires.Sub(k.renewed))}}
		}),
	},
	"lock_take": {
		params: []uint32{oidUUID, oidText, oidInt8, oidInt8, oidBool},
		columns: []column{{"mine", oidBool}, {"epoch", oidInt8}, {"holder_member", oidText}, {"next_holder", oidText}, {"renew_seq", oidInt8},
			{"remaining_ms", oidInt8}, {"paused", oidBool}, {"removals", oidInt8}, {"incarnation", oidInt4}},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			l.judge.read(l)
			session, member, ttl, seen, gone := asID(a[0]), a[1].(string), millis(a[2]), a[3].(int64), a[4].(bool)
			k, now := &l.lock, l.clock()
			s := l.sessions[session]
			free := k.holder == session ||
				k.holder == uuid.Nil && (k.next == "" || k.next == member || !k.reserved.After(now) || k.seq == seen && gone || l.flaws.noReservation) ||
				k.holder != uuid.Nil && k.seq == seen && (!k.expires.After(now) || gone) || l.flaws.stealable
			if s == nil || s.state != "live" || !free {
				return [][]any{{false, k.epoch, text(k.member), text(k.next), k.seq, l.remaining(), false, int64(0), int32(0)}}
			}
			before := *k
			epoch := max(k.epoch+1, now.UnixMicro())
			if l.flaws.epochIsClock {
				epoch = now.UnixMicro()
			}
			*k = lockRow{epoch: epoch, holder: session, member: member, taken: now, renewed: now, expires: now.Add(ttl), seq: k.seq + 1}
			l.judge.taken(l, by, before, gone)
			return [][]any{{true, epoch, member, nil, int64(0), ttl.Milliseconds(), false, int64(0), int32(1)}}
		}),
	},
	"lock_renew": {
		params:  []uint32{oidUUID, oidInt8, oidInt8},
		columns: []column{{"incarnation", oidInt4}},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			k, now := &l.lock, l.clock()
			if k.holder != asID(a[0]) || k.epoch != a[1].(int64) || !k.expires.After(now) && !l.flaws.renewExpired {
				return nil
			}
			l.judge.renewed(l, by)
			k.seq, k.renewed, k.expires = k.seq+1, now, now.Add(millis(a[2]))
			return [][]any{{int32(1)}}
		}),
	},
	"lock_offer": {
		params: []uint32{oidUUID, oidInt8, oidText, oidInt8},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			k, now := &l.lock, l.clock()
			if k.holder != asID(a[0]) || k.epoch != a[1].(int64) {
				return nil
			}
			before := *k
			k.holder, k.member, k.expires, k.next, k.reserved = uuid.Nil, "", now, "", time.Time{}
			if to, ok := a[2].(string); ok {
				k.next, k.reserved = to, now.Add(millis(a[3]))
			}
			l.judge.released(l, by, before)
			return [][]any{nil}
		}),
	},
	// The database is of one incarnation all the time.
	"incarnation_read": {columns: []column{{"incarnation", oidInt4}}, run: func(*ledger, *host, []any) [][]any { return [][]any{{int32(1)}} }},
	"incarnation_begin": {
		params:  []uint32{oidBool},
		columns: []column{{"turn", oidInt4}, {"mended", oidBool}},
		run:     func(*ledger, *host, []any) [][]any { return [][]any{{int32(1), false}} },
	},
	"session_open": {
		params: []uint32{oidUUID, oidTexts, oidText, oidText, oidText, oidText, oidInt8, oidInt4},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			if l.sessions[asID(a[0])] != nil {
				return nil
			}
			l.sessions[asID(a[0])] = &sessionRow{member: a[3].(string), addr: a[4].(string), state: "live", expires: l.clock().Add(millis(a[6]))}
			l.forget()
			return [][]any{nil}
		}),
	},
	// Whose jobs wait where is nobody's question here.
	"kind_queue_tell": {params: []uint32{oidTexts, oidTexts}, run: func(*ledger, *host, []any) [][]any { return nil }},
	"session_beat": {
		params:  []uint32{oidUUID, oidInt8},
		columns: []column{{"clock_timestamp", oidTime}},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			s := l.sessions[asID(a[0])]
			if s == nil || s.state != "live" {
				return nil
			}
			s.beat, s.expires = s.beat+1, l.clock().Add(millis(a[1]))
			return [][]any{{l.clock()}}
		}),
	},
	"session_idle":      {params: []uint32{oidUUID, oidInt8}, run: none},
	"lock_patience_end": {run: none},
	"lock_patience":     {params: []uint32{oidText, oidBool}, columns: []column{{"set_config", oidText}}, run: none},
	"session_hold":      {params: []uint32{oidUUID}, run: none},
	"claim_decline":     {params: []uint32{oidUUID}, run: none},
	"session_leave": {
		params: []uint32{oidUUID},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			s := l.sessions[asID(a[0])]
			if s == nil {
				return nil
			}
			if s.state == "live" {
				s.state = "left"
			}
			return [][]any{nil}
		}),
	},
	"session_seeds": {
		columns: []column{{"gossip_addr", oidText}},
		run: locked(func(l *ledger, by *host, _ []any) (rows [][]any) {
			for _, s := range l.sessions {
				if s.state == "live" && s.addr != "" && s.expires.After(l.clock()) {
					rows = append(rows, []any{s.addr})
				}
			}
			return rows
		}),
	},
	// A term's fenced statement. There are no timers here: what counts is whether the
	// fence let it through, as it would a claim.
	"timer_fire": {
		params:  []uint32{oidUUID, oidInt8, oidInt8},
		columns: []column{{"queue", oidText}, {"tenant_id", oidText}, {"priority", oidInt2}, {"count", oidInt8}},
		run: locked(func(l *ledger, by *host, a []any) [][]any {
			session, epoch := asID(a[0]), a[1].(int64)
			l.judge.claimed(l, by, session, epoch, l.holds(session, epoch) || l.flaws.noFence)
			return nil
		}),
	},
	"timer_next": {columns: []column{{"ms", oidInt8}}, run: none},
	// Nor are there schedules.
	"schedule_due": {
		params: []uint32{oidInt8},
		columns: []column{{"tenant_id", oidText}, {"name", oidText}, {"spec", oidText}, {"time_zone", oidText}, {"end_at", pgtype.TimestamptzOID}, {"since", pgtype.TimestamptzOID},
			{"missed", oidText}, {"waits", oidBool}, {"jitter_ms", oidInt8}, {"next_at", pgtype.TimestamptzOID}, {"now", pgtype.TimestamptzOID}}, run: none,
	},
	"schedule_origin": {params: []uint32{oidText}, columns: []column{{"tenant_id", oidText}, {"name", oidText}}, run: none},
	"schedule_list":   {params: []uint32{oidText, oidText}, columns: []column{{"tenant_id", oidText}, {"name", oidText}}, run: none},
	"schedule_clock": {
		columns: []column{{"clock_timestamp", oidTime}},
		run:     locked(func(l *ledger, _ *host, _ []any) [][]any { return [][]any{{l.clock()}} }),
	},
	"schedule_later": {columns: []column{{"tenant_id", oidText}, {"name", oidText}, {"spec", oidText}, {"time_zone", oidText}, {"end_at", oidTime}, {"since", oidTime},
		{"jitter_ms", oidInt8}, {"next_at", oidTime}, {"last_at", oidTime}, {"version", oidText}, {"now", oidTime}}, run: none},
	// Now and then something waits, so that terms wake and use their fence.
	"idle_look": {
		columns: []column{{"waiting", oidBool}, {"due_ms", oidInt8}, {"claimed", oidBool}, {"bottom", oidInt8}},
		run: locked(func(l *ledger, _ *host, _ []any) [][]any {
			l.looks++
			return [][]any{{l.looks%8 == 0, nil, l.looks%3 == 0, int64(0)}}
		}),
	},
	"claim_standing": {params: []uint32{oidInts, pgtype.Int4ArrayOID}, columns: []column{{"id", oidInt8}, {"job_ids", oidInts}}, run: none},
	"cancel_forget":  {run: none},
	"cancel_find":    {params: []uint32{oidInt8, oidInt8}, columns: []column{{"id", oidInt8}, {"turn", oidInt4}}, run: none},
	// Nobody enqueues by SQL here.
	"listen":   {run: none},
	"unlisten": {run: none},
	"resume_jobs": {
		params:  []uint32{oidInts, oidInt8},
		columns: []column{{"queue", oidText}, {"tenant_id", oidText}, {"priority", oidInt2}, {"due_in", oidInt8}}, run: none,
	},
	// No job awaits another here. That a lock was lost is no error of this one, so nothing is judged by it.
	"awaited_settle": {
		params:  []uint32{oidUUID, oidInt8, oidInt4, oidBool},
		columns: []column{{"taken", oidInt8}, {"started", oidInt8}, {"cancelled", oidInt8}, {"awaits", oidBool}},
		run:     func(*ledger, *host, []any) [][]any { return [][]any{{int64(0), int64(0), int64(0), false}} },
	},
	"awaited_look": {
		params:  []uint32{oidInt8, oidInt8, oidInt4},
		columns: []column{{"missed", oidInt8}, {"last_job", oidInt8}, {"last_awaiting", oidInt8}},
		run:     func(*ledger, *host, []any) [][]any { return [][]any{{int64(0), int64(0), int64(0)}} },
	},
	"awaiting_look": {
		params: []uint32{oidInt8, oidInt8}, columns: []column{{"last_job", oidInt8}},
		run: func(*ledger, *host, []any) [][]any { return [][]any{{int64(0)}} },
	},
	"awaited_trim": {
		params:  []uint32{oidTime, oidInt8, oidInt8, oidInt8},
		columns: []column{{"removed", oidInt8}, {"last_closed", oidTime}, {"last_job", oidInt8}},
		run:     func(*ledger, *host, []any) [][]any { return [][]any{{int64(0), nil, nil}} },
	},
	"external_sweep": {params: []uint32{oidInt8, oidInt4, oidText}, columns: []column{{"count", oidInt8}}, run: func(*ledger, *host, []any) [][]any { return [][]any{{int64(0)}} }},
	"report_trim":    {params: []uint32{oidInt8}, run: none},
	"tag_trim":       {params: []uint32{oidText, oidText, oidInt8, oidInt8, oidInt8}, columns: []column{{"tenant_id", oidText}, {"tag", oidText}, {"job_id", oidInt8}}, run: none},
	"period_trim": {
		params: []uint32{oidInt8}, columns: []column{{"count", oidInt8}},
		run: func(*ledger, *host, []any) [][]any { return [][]any{{int64(0)}} },
	},
	"claim_made": {params: []uint32{oidUUID}, columns: []column{{"id", oidInt8}}, run: none},
	"claim_list": {columns: []column{{"id", oidInt8}, {"session_id", oidUUID}, {"turn", oidInt4}, {"job_ids", oidInts}}, run: none},
	"lane_list": {params: []uint32{oidInt8, oidInt8, oidText, oidText, oidInt2, oidBool}, columns: []column{{"queue", oidText}, {"tenant_id", oidText}, {"priority", oidInt2}, {"n", oidInt8}, {"listed", oidBool},
		{"lowest", oidInt8}, {"bottom", oidInt8}}, run: func(*ledger, *host, []any) [][]any {
		return [][]any{{"", "", int16(0), int64(0), false, int64(math.MaxInt64), int64(0)}}
	}},
	"bottom_note": {params: []uint32{oidUUID, oidInt8, oidInt4, oidInt8}, run: none},
	"page_state": {
		columns: []column{{"removals", oidInt8}, {"limit_changes", oidInt8}, {"position", oidInt8}, {"xmin", oidInt8}, {"now", oidTime}},
		run: func(l *ledger, _ *host, _ []any) [][]any {
			l.mu.Lock()
			defer l.mu.Unlock()
			return [][]any{{int64(0), int64(0), int64(0), int64(1), l.clock()}}
		},
	},
	// These two are only prepared for: there is nothing to read or to claim.
	"page_read": {
		params:  []uint32{oidTexts, oidTexts, pgtype.Int2ArrayOID, oidInts, pgtype.Int4ArrayOID, oidTexts, oidBool, oidInt8, oidInt8, pgtype.BoolArrayOID, oidTexts, oidInts},
		columns: []column{{"n", oidInt4}, {"position", oidInt8}}, run: none,
	},
	"claim_insert": {
		params:  []uint32{oidUUID, oidInt8, oidInt8, oidInts, pgtype.Int4ArrayOID, pgtype.Int4ArrayOID, pgtype.UUIDArrayOID, oidInt4},
		columns: []column{{"id", oidInt8}, {"session_id", oidUUID}, {"turn", oidInt4}, {"xid", oidInt8}, {"first", oidInt8}}, run: none,
	},
	"lane_behind": {
		params:  []uint32{oidTexts, oidTexts, pgtype.Int2ArrayOID, oidInt8, oidTexts, oidBool, oidInts, pgtype.Int4ArrayOID, oidTexts, oidTexts, oidTexts, oidTexts, oidTexts, oidInt8},
		columns: []column{{"n", oidInt4}, {"position", oidInt8}}, run: none,
	},
	"claim_keys":      {columns: []column{{"id", oidInt8}, {"turn", oidInt4}, {"tenant_id", oidText}, {"exclusive_key", oidText}}, run: none},
	"lane_left":       {columns: tenantColumns, run: none},
	"tenant_forwards": {columns: tenantColumns, run: none},
	"quota_check":     {run: none},
	"operation_due":   {columns: []column{{"due_ms", oidInt8}, {"paced", oidBool}}, run: locked(func(*ledger, *host, []any) [][]any { return [][]any{{nil, false}} })},
	"operation_trim":  {params: []uint32{oidInt8}, run: none},
	"audit_trim": {params: []uint32{oidInt8, oidInt4}, columns: []column{{"trim_audit", oidInt4}},
		run: locked(func(*ledger, *host, []any) [][]any { return [][]any{{int32(0)}} })},
	"limit_list": {columns: []column{{"tenant_id", oidText}, {"scope", oidText}, {"name", oidText}, {"most", oidInt4}, {"rate", oidInt4},
		{"per_ms", oidInt8}, {"burst", oidInt4}}, run: none},
	"limit_forget":    {run: none},
	"tenant_weights":  {columns: []column{{"tenant_id", oidText}, {"weight", oidInt4}}, run: none},
	"limit_flying":    {columns: []column{{"tenant_id", oidText}, {"queue", oidText}, {"kind", oidText}, {"ids", oidInts}, {"turns", pgtype.Int4ArrayOID}}, run: none},
	"limit_buckets":   {columns: []column{{"tenant_id", oidText}, {"scope", oidText}, {"name", oidText}, {"full_in", oidInt8}}, run: none},
	"statistics_role": {columns: []column{{"set_config", oidText}}, run: none},
	"transaction_oldest": {params: []uint32{oidInt8}, columns: []column{{"what", oidText}, {"id", oidText}, {"username", oidText}, {"application", oidText},
		{"state", oidText}, {"xid", oidText}, {"age", oidInt4}, {"seconds", pgtype.Float8OID}, {"hidden", oidText}}, run: none},
	"waiting_pages": {params: []uint32{oidBool}, columns: []column{{"pages", oidInt8}}, run: func(*ledger, *host, []any) [][]any { return [][]any{{int64(0)}} }},
	"dead_count":    {params: []uint32{oidInt8}, columns: []column{{"dead", oidInt8}}, run: func(*ledger, *host, []any) [][]any { return [][]any{{int64(0)}} }},
	"waiting_count": {
		params:  []uint32{pgtype.Float4OID, oidInt8, oidBool},
		columns: []column{{"kind", oidText}, {"tenant_id", oidText}, {"count", oidInt8}, {"oldest", pgtype.Float8OID}}, run: none,
	},
	"retrying_list":       {params: []uint32{oidInt8}, columns: []column{{"kind", oidText}, {"jobs", oidInt8}, {"next", pgtype.TimestamptzOID}}, run: none},
	"transaction_unbound": {columns: []column{{"set_config", oidText}}, run: none},
	"waiting_unhandled":   {columns: []column{{"kind", oidText}, {"count", oidInt8}}, run: none},
	"retention_trim":      {params: []uint32{oidInt8, oidInt8}, columns: []column{{"more", oidBool}}, run: func(*ledger, *host, []any) [][]any { return [][]any{{false}} }},
	"pool_identity": {
		columns: []column{{"version", oidInt4}, {"standby", oidBool}, {"read_only", oidBool}, {"encoding", oidText}, {"standard_strings", oidBool}, {"triggers", oidBool},
			{"identity", oidText}, {"migrated", oidBool}, {"lock_logged", oidBool}, {"lock_keyed", oidBool}, {"citus", oidText}},
		run: func(l *ledger, _ *host, _ []any) [][]any {
			return [][]any{{int32(150009), false, false, "UTF8", true, true, l.pool, true, true, true, ""}}
		},
	},
	"schema_version": {
		columns: []column{{"version", oidInt8}, {"oldest_program", oidInt8}},
		run: func(l *ledger, _ *host, _ []any) [][]any {
			return [][]any{{store.LedgerVersion(), store.LedgerVersion()}}
		},
	},
	"pool_number": {columns: []column{{"number", oidInt4}, {"name", oidText}}, run: func(l *ledger, _ *host, _ []any) [][]any { return [][]any{{int32(l.number), l.pool}} }},
	"server_is": {
		columns: []column{{"server", oidText}, {"timeline", oidInt4}, {"refused", oidText}, {"owner", oidText}, {"database", oidText}, {"installed", oidInt8}},
		run: func(l *ledger, _ *host, _ []any) [][]any {
			return [][]any{{l.pool, int32(1), "", "postgres", l.pool, int64(1)}}
		},
	},
	"grant_missing": {params: []uint32{oidText, oidText}, columns: []column{{"format", oidText}}, run: none},
	"role_learn":    {params: []uint32{oidTexts, oidTexts}, run: none},
	"pool_server": {
		columns: []column{{"server", oidText}, {"connections", oidInt4}},
		run:     func(l *ledger, _ *host, _ []any) [][]any { return [][]any{{l.pool, int32(1000)}} },
	},
	"pool_settings": {columns: []column{{"lock_timeout", oidText}, {"pid", oidInt4}}, run: func(*ledger, *host, []any) [][]any { return [][]any{{"2000", int32(1)}} }},
	"pool_risks": {
		params: []uint32{oidTexts, oidTexts},
		columns: []column{{"version", oidInt4}, {"fsync", oidBool}, {"full_page_writes", oidBool},
			{"mighty", oidBool}, {"no_schema", oidTexts}, {"no_role", oidTexts}, {"mighty_roles", oidTexts}, {"no_usage", oidTexts}},
		run: func(*ledger, *host, []any) [][]any {
			none := []string{}
			return [][]any{{int32(150009), true, true, false, none, none, none, none}}
		},
	},
}

// forget removes sessions that have long expired, which a term would do once it reaps.
func (l *ledger) forget() {
	for id, s := range l.sessions {
		if s.expires.Before(l.clock().Add(-time.Hour)) {
			delete(l.sessions, id)
		}
	}
}
