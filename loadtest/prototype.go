package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurehq/tenure/loadtest/internal/bed"
)

// claimedJob is a job of a claim; ids are as they are on the wire.
type claimedJob struct {
	id, turn, tenant string
	args             order
	claim            *claimed
}

type claimed struct {
	id   string
	left atomic.Int64 // jobs that have not ended
}

// prototype is the least program on the wire that keeps what Tenure promises of a job without features: its claim
// outlives the program, its end is written once, and what it left on a session no other job finds. It knows no
// lanes, limits, retries, workers or other nodes. One connection claims pages of jobs, others work off calls.
type prototype struct {
	jobs, page, conns int
	settings          string                    // of the connections for calls
	together          func(j claimedJob) string // a call has jobs that are the same in this
	most              int                       // jobs of a call
	statements        map[string]string         // that calls find prepared, by name
	call              func(p *pgconn.Pipeline, jobs []claimedJob) error

	over chan string // claims whose jobs have all ended
}

const (
	// claimPage claims the jobs behind $1, $2 at most, and forgets the claims $3.
	claimPage = `WITH page AS MATERIALIZED (
			SELECT id, turn, tenant_id, payload, queue, kind, attempt, max_attempts, timeout_ms, meta FROM tenure.job WHERE id > $1 ORDER BY id LIMIT $2),
		made AS (
			INSERT INTO tenure.claim (session_id, turn, job_ids, started_at)
			SELECT gen_random_uuid(), turn, array_agg(id), clock_timestamp() FROM page GROUP BY turn RETURNING id, turn),
		over AS (DELETE FROM tenure.claim WHERE id = ANY ($3::bigint[]))
		SELECT made.id, page.* FROM made JOIN page USING (turn) ORDER BY page.id`

	// endJobs ends and keeps a turn's jobs that $1 names, as Tenure's statements do.
	endJobs = `WITH gone AS (DELETE FROM tenure.job WHERE id = %s AND turn = $2 RETURNING *)
		INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
			tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
		SELECT id, created_at, statement_timestamp(), turn, priority, attempt + 1, losses,
			tenant_id, queue, kind, 'done', payload, meta, unique_key, correlation_id, statement_timestamp() - interval '1 ms', 'prototype' FROM gone`

	// generic are settings by which the ledger's statements are planned once, to walk indexes.
	generic = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off"
)

// run works off the whole backlog.
func (r prototype) run(ctx context.Context, b *bed.Bed) error {
	r.over = make(chan string, r.jobs)
	ledger, err := connectPrototype(ctx, b, generic, map[string]string{"claim": claimPage})
	if err != nil {
		return err
	}
	defer ledger.Close(ctx)
	together, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	calls := make(chan []claimedJob, r.page/r.most+1)
	var callers sync.WaitGroup
	for range r.conns {
		callers.Go(func() {
			if err := r.work(together, b, calls); err != nil {
				fail(err)
			}
		})
	}
	err = r.read(together, ledger, calls)
	close(calls)
	callers.Wait()
	if err = cmp.Or(context.Cause(together), err); err != nil {
		return err
	}
	_, err = r.claim(ctx, ledger, "9223372036854775807") // none: the last claims are over
	return err
}

// read claims the backlog.
func (r prototype) read(ctx context.Context, ledger *pgconn.PgConn, calls chan<- []claimedJob) error {
	for after := "0"; ; {
		page, err := r.claim(ctx, ledger, after)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].id
		of := map[string][]claimedJob{}
		for _, j := range page {
			of[r.together(j)] = append(of[r.together(j)], j)
		}
		for _, all := range of {
			for jobs := range slices.Chunk(all, r.most) {
				select {
				case calls <- jobs:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	}
}

// work works off calls, on a connection of its own.
func (r prototype) work(ctx context.Context, b *bed.Bed, calls <-chan []claimedJob) error {
	conn, err := connectPrototype(ctx, b, r.settings, r.statements)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	p := conn.StartPipeline(ctx)
	for jobs := range calls {
		if err := r.call(p, jobs); err != nil {
			return err
		}
		for _, j := range jobs {
			if j.claim.left.Add(-1) == 0 {
				r.over <- j.claim.id
			}
		}
	}
	return p.Close()
}

// connectPrototype opens a connection on which plans stay valid: each statement begins with the same path.
func connectPrototype(ctx context.Context, b *bed.Bed, settings string, statements map[string]string) (*pgconn.PgConn, error) {
	config, err := pgx.ParseConfig(b.Config.Pools[b.Pools[0]].DSN)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["search_path"] = "pg_catalog, pg_temp"
	config.RuntimeParams["options"] = settings
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return nil, err
	}
	for name, sql := range statements {
		if _, err := conn.Prepare(ctx, name, sql, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", sql, err), conn.Close(ctx))
		}
	}
	return conn, nil
}

// claim claims the next page and forgets claims that are over.
func (r prototype) claim(ctx context.Context, conn *pgconn.PgConn, after string) (page []claimedJob, err error) {
	var over []string
	for len(r.over) > 0 {
		over = append(over, <-r.over)
	}
	rows := conn.ExecPrepared(ctx, "claim", [][]byte{[]byte(after), fmt.Append(nil, r.page), arrayOf(over)}, nil, nil)
	made := map[string]*claimed{} // mostly one; jobs of several turns have a claim each
	for rows.NextRow() {
		v := rows.Values()
		claim := made[string(v[0])]
		if claim == nil {
			claim = &claimed{id: string(v[0])}
			made[claim.id] = claim
		}
		claim.left.Add(1)
		j := claimedJob{id: string(v[1]), turn: string(v[2]), tenant: string(v[3]), claim: claim}
		if err := json.Unmarshal(v[4], &j.args); err != nil {
			return nil, err
		}
		page = append(page, j)
	}
	_, err = rows.Close()
	return page, err
}

// arrayOf is a bigint[].
func arrayOf(ids []string) []byte { return []byte("{" + strings.Join(ids, ",") + "}") }

func idsOf(jobs []claimedJob) []byte {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.id
	}
	return arrayOf(ids)
}

// trip sends what is queued and reads the answers, in which so many rows were to be inserted. last is the
// first column of the last row.
func trip(p *pgconn.Pipeline, rows int) (last string, err error) {
	if err := p.Sync(); err != nil {
		return "", err
	}
	for inserted := 0; ; {
		answer, err := p.GetResults()
		if err != nil {
			return "", err
		}
		r, ok := answer.(*pgconn.ResultReader)
		if !ok { // the Sync's
			if inserted != rows {
				err = fmt.Errorf("%d rows were inserted for %d jobs", inserted, rows)
			}
			return last, err
		}
		for r.NextRow() {
			last = string(r.Values()[0])
		}
		tag, err := r.Close()
		if err != nil {
			return "", err
		}
		if tag.Insert() {
			inserted += int(tag.RowsAffected())
		}
	}
}

// prototypeDrain ends whole pages, on one connection beside the one that reads them.
func prototypeDrain(jobs, page int) prototype {
	return prototype{jobs: jobs, page: page, conns: 1, settings: generic, statements: map[string]string{"end": fmt.Sprintf(endJobs, "ANY ($1::bigint[])")},
		most: page, together: func(j claimedJob) string { return j.turn },
		call: func(p *pgconn.Pipeline, jobs []claimedJob) error {
			p.SendQueryPrepared("end", [][]byte{idsOf(jobs), []byte(jobs[0].turn)}, nil, nil)
			_, err := trip(p, len(jobs))
			return err
		}}
}

// txConns is how many connections a node has for tenants' transactions, of the 24 that a
// bed's pool has.
const txConns = 17

// bounded is how long tenants' statements may take and wait, as on a node's connections.
const bounded = "-c lock_timeout=10s -c statement_timeout=15min -c idle_in_transaction_session_timeout=15min"

// scrub is what Tenure sends behind COMMIT, but for DEALLOCATE ALL, by which our own plans would go, too: it is looked
// instead whether a handler has prepared any.
var scrub = []string{"SET SESSION AUTHORIZATION DEFAULT", "RESET ALL", "CLOSE ALL", "UNLISTEN *", "DISCARD TEMP", "DISCARD SEQUENCES"}

// prototypeTx gives up to batch jobs of a tenant a transaction of the tenant's. It takes two trips: it begins by the message
// that has the handler's statement, and ends by one, as Tenure's.
func prototypeTx(jobs, batch, tenants int) prototype {
	before := []string{"SET CONSTRAINTS ALL IMMEDIATE", "SET LOCAL search_path = pg_catalog, pg_temp", "SET LOCAL role = none"}
	statements := map[string]string{
		"begin": "BEGIN ISOLATION LEVEL READ COMMITTED",
		"enter": "SELECT tenure.begin_tenant($1, $2, $3)",
		"again": "SELECT CASE WHEN pg_relation_size('tenure.awaited') > 0 THEN tenure.note_ends($1, 'done') END, set_config('role', $2, true), set_config('search_path', $3, true)",
		"left": `SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql) OR EXISTS (SELECT FROM pg_extension WHERE extname = 'dblink'),
			pg_advisory_unlock_all(), setseed($1)`,
	}
	for _, sql := range slices.Concat(before, scrub, []string{"COMMIT"}) {
		statements[sql] = sql
	}
	page, which, insert, oid := 30, "$1", "INSERT INTO effect (job_id) VALUES ($1)", uint32(pgtype.Int8OID)
	if batch > 1 {
		page, which, insert, oid = batch*tenants, "ANY ($1::bigint[])", "INSERT INTO effect (job_id) SELECT unnest($1::bigint[])", pgtype.Int8ArrayOID
	}
	statements["end"] = fmt.Sprintf(endJobs, which)
	return prototype{jobs: jobs, page: page, conns: txConns, settings: bounded, statements: statements,
		most: batch, together: func(j claimedJob) string { return j.tenant + j.turn },
		call: func(p *pgconn.Pipeline, jobs []claimedJob) error {
			prepared := func(name string, args ...[]byte) { p.SendQueryPrepared(name, args, nil, nil) }
			tenant, ids := []byte(jobs[0].tenant), idsOf(jobs)
			which := ids
			if batch == 1 {
				which = []byte(jobs[0].id)
			}
			prepared("begin")
			prepared("enter", tenant, []byte{}, tenant)
			p.SendQueryParams(insert, [][]byte{which}, []uint32{oid}, nil, nil)
			if _, err := trip(p, len(jobs)); err != nil {
				return err
			}
			for _, sql := range before {
				prepared(sql)
			}
			prepared("end", which, []byte(jobs[0].turn))
			prepared("again", ids, []byte("none"), fmt.Appendf(nil, "%s, pg_temp", tenant))
			prepared("COMMIT")
			for _, sql := range scrub {
				prepared(sql)
			}
			prepared("left", fmt.Append(nil, rand.Float64()))
			left, err := trip(p, len(jobs))
			if err == nil && left != "f" {
				err = errors.New("the session is to be closed: a statement or a connection of dblink may be left on it")
			}
			return err
		}}
}
