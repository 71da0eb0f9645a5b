package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/doctor"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Severity says how bad a finding is.
type Severity string

const (
	// SeverityError is something that keeps jobs from running, or may lose them.
	SeverityError Severity = "error"
	// SeverityWarning is something that will hurt if nobody mends it.
	SeverityWarning Severity = "warning"
	// SeverityNote is something that may be meant.
	SeverityNote Severity = "note"
)

// Finding is something that is wrong: what, where, why it matters, and what mends it.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check is what was looked at: configuration, connections, ledger, privileges, tenants, clock,
	// server, vacuum, transactions, replication, nodes, lock or jobs.
	Check string `json:"check"`
	// Pools are where it is; none: in the configuration.
	Pools []string `json:"pools"`
	// What is wrong, and with which table, transaction, node or job.
	What string `json:"what"`
	// Said is what a database said of it, which may name addresses and users; often nothing.
	Said string `json:"said,omitempty"`
	// Why it matters.
	Why string `json:"why"`
	// Mend is what to do about it: a command, SQL, or a key of the configuration.
	Mend string `json:"mend"`

	// About is what it is about, for who wants to see more; What names it, too.
	About About `json:"-"`
}

// About is a job, or what jobs are of; empty: it is about nothing of the kind.
type About struct{ Job, Tenant, Queue, Kind, State string }

// Where names the pools, or says that it is in the configuration.
func (f Finding) Where() string { return cmp.Or(strings.Join(f.Pools, ", "), "configuration") }

// Text is what is wrong, with what a database said of it.
func (f Finding) Text() string {
	if f.Said == "" {
		return f.What
	}
	return f.What + ": " + f.Said
}

// Examination is what [Examine] found.
type Examination struct {
	Findings []Finding `json:"findings"` // the worst first
	Examined []string  `json:"examined"` // the pools that everything was asked of
	Partly   []string  `json:"partly"`   // those that did not answer, or not all
}

// Healthy tells whether there is nothing to mend.
func (e Examination) Healthy() bool {
	return !slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Severity != SeverityNote })
}

// Discreet is the examination without what databases said, for those who may not know where these are.
func (e Examination) Discreet() Examination {
	e.Findings = slices.Clone(e.Findings)
	for i := range e.Findings {
		e.Findings[i].Said = ""
	}
	return e
}

// Summary says how many findings there are, and what was looked at.
func (e Examination) Summary() string {
	text := plural.Count(len(e.Findings), "finding", "findings") + "; " + plural.Count(len(e.Examined), "pool was", "pools were") + " examined"
	if len(e.Partly) > 0 {
		text += ", and not, or not wholly: " + strings.Join(e.Partly, ", ")
	}
	return text
}

func newFindings(all []doctor.Finding) []Finding {
	out := make([]Finding, len(all))
	for i, f := range all {
		out[i] = Finding{Severity(f.Severity), f.Check, f.Pools, f.What, f.Said, f.Why, f.Mend, About(f.About)}
	}
	return out
}

// Examine looks for what is wrong with the databases of a configuration and with the nodes that
// work on them: connections, ledgers, privileges, clocks, vacuum, old transactions, jobs that are
// stuck, locks without a holder. It asks all configured pools, or those named, at the same time, each
// for within at most (0: five seconds), and changes nothing. A pool that does not answer, or not in
// time, is a finding. The error is about the configuration or a pool that it does not name.
func Examine(ctx context.Context, cfg config.Config, within time.Duration, pools ...string) (Examination, error) {
	return examine(ctx, cfg, doctor.Options{Pools: pools, Within: within})
}

func examine(ctx context.Context, cfg config.Config, o doctor.Options) (Examination, error) {
	if err := cfg.Validate(); err != nil {
		return Examination{}, err
	}
	for _, name := range o.Pools {
		if _, ok := cfg.Pools[name]; !ok {
			return Examination{}, fmt.Errorf("pool %q is not under pools", name)
		}
	}
	e := doctor.Examine(ctx, cfg, o)
	return Examination{newFindings(e.Findings), e.Examined, e.Partly}, nil
}

// PoolFindings is what is wrong with the work of a pool; see [MergeFindings].
type PoolFindings struct{ work doctor.Work }

// ExamineWork makes those checks of [Operator.Examine] that are about a pool's work: its nodes, its lock and its jobs. It
// is cheap enough to be done every few seconds while somebody looks.
func (o *Operator) ExamineWork(ctx context.Context, pool string) (found PoolFindings, err error) {
	p, err := o.proc.FindPool(pool)
	if err != nil {
		return found, err
	}
	err = process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) (err error) {
		found.work, err = doctor.ExamineWork(ctx, db, *o.proc.Cfg.Load(), pool, o.resolve)
		return err
	})
	return found, routing.NamePool(pool, err)
}

func (o *Operator) resolve(ctx context.Context, id tenancy.ID) (string, error) {
	_, pool, err := o.proc.Router.Resolve(ctx, id)
	if err != nil {
		return "", err
	}
	return pool.Name, nil
}

// MergeFindings is what is wrong with the work of several pools, the worst first.
func MergeFindings(pools []PoolFindings) []Finding {
	works := make([]doctor.Work, len(pools))
	for i, p := range pools {
		works[i] = p.work
	}
	return newFindings(doctor.Merge(works))
}

// Examine is [Examine] for the configuration that the operator's process was started with, or has
// loaded since, its pools as they are.
func (o *Operator) Examine(ctx context.Context, within time.Duration, pools ...string) (Examination, error) {
	options := doctor.Options{Pools: pools, Within: within}
	if o.proc.Router.Started() {
		options.Resolve = o.resolve
	}
	return examine(ctx, *o.proc.Cfg.Load(), options)
}
