package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type batchOut struct {
	ID         string     `json:"id" doc:"of its completion job, too"`
	Tenant     string     `json:"tenant"`
	Pool       string     `json:"pool"`
	State      string     `json:"state" doc:"open, or closed: its completion job was let start, or cancelled"`
	OnFailure  string     `json:"on_failure"`
	Jobs       int        `json:"jobs" doc:"that were added so far"`
	Unfinished int        `json:"unfinished"`
	Done       int        `json:"done"`
	Dead       int        `json:"dead"`
	Cancelled  int        `json:"cancelled"`
	Unknown    int        `json:"unknown" doc:"how they ended was not kept"`
	CreatedAt  time.Time  `json:"created_at"`
	ClosedAt   *time.Time `json:"closed_at,omitempty"`
	Open       []string   `json:"open,omitempty" doc:"of a single batch: up to 20 of the jobs that it still waits for"`
}

func newBatch(b *operate.BatchStatus) batchOut {
	out := batchOut{b.ID.String(), b.Tenant, b.Pool, "open", b.OnFailure, b.Jobs, b.Unfinished(), b.Done, b.Dead, b.Cancelled, b.Unknown, b.CreatedAt, timeOrNone(b.ClosedAt), nil}
	if out.ClosedAt != nil {
		out.State = "closed"
	}
	for _, id := range b.Open {
		out.Open = append(out.Open, id.String())
	}
	return out
}

type batchesIn struct {
	Tenant string `query:"tenant"`
	Pool   string `query:"pool"`
	After  string `query:"after" doc:"the next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func listBatches(ctx context.Context, s *server, in *batchesIn) (*list[batchOut], error) {
	found, err := gather(ctx, in.Tenant, in.Pool, s.limits.look, func(ctx context.Context, of scope) ([]operate.BatchStatus, error) {
		return s.operator.Batches().List(ctx, operate.BatchFilter{Tenant: tenancy.ID(of.tenant), Pool: of.pool, After: in.After, Limit: in.Limit + 1})
	})
	return pageOf(found, err, in.Limit, operate.CompareBatches, newBatch)
}

// NewBatch is a batch that is to be added, exported for huma as [JobOut] is.
type NewBatch struct {
	Tenant string    `json:"tenant" minLength:"1"`
	Then   JobSpec   `json:"then" doc:"the completion job, which starts when all others have ended. Its on_failure says what becomes of it when one of them fails"`
	Jobs   []JobSpec `json:"jobs" maxItems:"10000" nullable:"false" doc:"a request may have 1 MiB; a job of the batch may be added by batch later"`
}

type enqueueBatchIn struct {
	Key  string `header:"Idempotency-Key" doc:"for a day the answer to all requests of a tenant with it is the same batch; it takes the place of unique_key and unique_for of its completion job"`
	Body NewBatch
}

// enqueueBatch adds a batch, all of it or nothing.
func enqueueBatch(ctx context.Context, s *server, in *enqueueBatchIn) (*object[enqueueOut], error) {
	tenant := tenancy.ID(in.Body.Tenant)
	specs := []*JobSpec{&in.Body.Then}
	for i := range in.Body.Jobs {
		specs = append(specs, &in.Body.Jobs[i])
	}
	hash := s.hashOf("batch", &in.Body, specs...)
	batch, err := in.Body.batch(in.Key, hash)
	if err = errors.Join(tenant.Validate(), err); err != nil {
		return nil, huma.Error422UnprocessableEntity("nothing was enqueued: " + err.Error())
	}
	if err := s.seeTenant(ctx, tenant); err != nil {
		return nil, err
	}
	added, err := s.client.EnqueueBatch(tenancy.For(ctx, tenant), batch)
	err = s.refuseOther(ctx, in.Key, hash, added, s.explainLink(ctx, err))
	return &object[enqueueOut]{enqueueOut{added.ID.String(), added.Duplicate}}, err
}

func (b *NewBatch) batch(key, hash string) (out tenure.Batch, err error) {
	out.Then = b.Then.args()
	if out.Options, err = b.Then.options(true); err == nil && key != "" {
		out.Options, err = b.Then.withKey(key, hash, out.Options)
	}
	if err != nil {
		return out, fmt.Errorf("then: %w", err)
	}
	for i := range b.Jobs {
		options, err := b.Jobs[i].options(false)
		if err != nil {
			return out, fmt.Errorf("job %d: %w", i, err)
		}
		out.Jobs = append(out.Jobs, tenure.Entry{Args: b.Jobs[i].args(), Options: options})
	}
	return out, nil
}

func getBatch(ctx context.Context, s *server, in *JobIn) (*object[batchOut], error) {
	b, err := s.findBatch(ctx, job.ID(in.ID))
	if err != nil {
		return nil, err
	}
	return &object[batchOut]{newBatch(&b)}, nil
}

type cancelBatchOut struct {
	Jobs int `json:"jobs" doc:"that had not ended, and are cancelled"`
}

func cancelBatch(ctx context.Context, s *server, in *JobIn) (*object[cancelBatchOut], error) {
	b, err := s.findBatch(ctx, job.ID(in.ID))
	if err != nil {
		return nil, err
	}
	n, err := s.operator.Batches().Cancel(ctx, b.ID)
	return &object[cancelBatchOut]{cancelBatchOut{n}}, err
}
