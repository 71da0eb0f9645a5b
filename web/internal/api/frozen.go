package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
)

type frozenOut struct {
	Kind  string    `json:"kind"`
	Pool  string    `json:"pool"`
	Since time.Time `json:"since"`
}

// listFrozenKinds is for grants that are not bound to tenants: what is frozen is of all.
func listFrozenKinds(ctx context.Context, s *server, _ *none) (*list[frozenOut], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Frozen(ctx)
	var out []frozenOut
	for _, f := range all {
		if f.Kind != "" && g.SeesPool(f.Pool) {
			out = append(out, frozenOut{f.Kind, f.Pool, f.Since})
		}
	}
	return listOf(out, err)
}

type queueIn struct {
	Queue string `path:"queue"`
}

type kindIn struct {
	Kind string `path:"kind"`
}

// onQueue is a route that does something to a queue in all pools.
func onQueue(do func(*operate.Queues, context.Context, string) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *queueIn) (*none, error) {
		return nil, inAllPools(ctx, s.operator.Queues(), do, in.Queue)
	})
}

// onKind is a route that does something to a kind in all pools.
func onKind(do func(*operate.Kinds, context.Context, string) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *kindIn) (*none, error) {
		return nil, inAllPools(ctx, s.operator.Kinds(), do, in.Kind)
	})
}

func inAllPools[T any](ctx context.Context, of T, do func(T, context.Context, string) error, name string) error {
	if err := forEveryone(ctx); err != nil {
		return err
	}
	return do(of, ctx, name)
}
