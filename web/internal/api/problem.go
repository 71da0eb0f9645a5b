package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/web/internal/workers"
)

// hidden is the error for what a grant does not reach: it looks as if it were not there.
var hidden = tenure.ErrNotFound

// problemOf is how an error is answered (RFC 9457). What is wrong with the request is said. Any other error
// that is not one of the domain's may hold SQL or a connection string: it is logged, and the answer
// has an id to find it by.
func problemOf(ctx context.Context, log *zap.Logger, operation string, err error) error {
	var ready huma.StatusError
	var input *job.InputError
	var unanswered *operate.UnansweredError
	var partly *operate.PartlyError
	pool, down := tenure.DownPool(err)
	switch {
	case errors.As(err, new(huma.HeadersError)):
		return err
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &partly):
		log.Warn("not done in all pools", zap.String("operation", operation), zap.Error(err))
		return huma.Error503ServiceUnavailable(partly.Text() + "; send this again once the others answer")
	case errors.As(err, new(*job.KeyTakenError)):
		return huma.Error409Conflict("an unfinished job has the unique key of this one")
	case errors.Is(err, external.ErrLockLost):
		return huma.Error409Conflict("the lock on a job was lost")
	case external.IsBetweenPools(err):
		return huma.Error503ServiceUnavailable("this job's tenant is being moved: try again later")
	case isState(err):
		return huma.Error409Conflict(stateOf(err))
	case errors.As(err, &unanswered):
		return huma.Error503ServiceUnavailable("not every pool answered" + inPools(ctx, unanswered.Pools...) + ", and the others have no such thing: try again later")
	case down:
		log.Warn("a pool's database cannot be used", zap.String("operation", operation), zap.Error(err))
		return huma.Error503ServiceUnavailable("the pool's database cannot be used now" + inPools(ctx, pool))
	case errors.Is(err, workers.ErrNoArgs):
		return huma.Error403Forbidden(err.Error())
	case errors.Is(err, tenure.ErrNotFound):
		return huma.Error404NotFound("there is no such thing, or this token does not reach it")
	case errors.Is(err, tenure.ErrUnknownTenant):
		return huma.Error404NotFound("no routing rule knows this tenant")
	case errors.Is(err, tenure.ErrUnknownPool):
		return huma.Error404NotFound("this pool is not configured")
	case errors.Is(err, operate.ErrNoSchedule):
		return huma.Error404NotFound("there is no schedule of this name")
	case errors.Is(err, tenure.ErrUnknownKind):
		return huma.Error422UnprocessableEntity(tenure.ErrUnknownKind.Error())
	case errors.Is(err, tenure.ErrTenantQuota):
		return huma.Error429TooManyRequests("as many jobs of this tenant wait as may")
	case errors.Is(err, tenure.ErrTenantHeld):
		return huma.Error503ServiceUnavailable("this tenant is being moved: try again later")
	case errors.As(err, &input):
		return huma.Error422UnprocessableEntity(input.Error())
	case errors.Is(err, admin.ErrStopping):
		return huma.Error503ServiceUnavailable("this node is stopping: ask another one")
	case errors.Is(err, access.ErrChanged):
		return huma.Error503ServiceUnavailable("what the sender of this may do has changed while it waited: send it again")
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return huma.Error503ServiceUnavailable("the request was given up") // nobody reads it
	case errors.Is(err, context.DeadlineExceeded):
		log.Warn("this took too long", zap.String("operation", operation), zap.Error(err))
		return huma.NewError(http.StatusGatewayTimeout, "this took too long"+inPools(ctx, pool))
	}
	id := uuid.NewString()
	log.Error("request not answered", zap.String("operation", operation), zap.String("id", id), zap.Error(err))
	if tenure.Refused(err) { // and not what was asked for
		return huma.Error503ServiceUnavailable("the node or a pool is not configured for this; the node's log has the reason under id " + id)
	}
	return huma.Error500InternalServerError("something went wrong; the node's log has the reason under id " + id)
}

// inPools are those of some pools that the grant reaches, in brackets.
func inPools(ctx context.Context, pools ...string) string {
	pools = slices.DeleteFunc(slices.Clone(pools), func(pool string) bool { return pool == "" || !access.From(ctx).SeesPool(pool) })
	if len(pools) == 0 {
		return ""
	}
	return " (" + strings.Join(pools, ", ") + ")"
}

func isState(err error) bool { return errors.As(err, new(*operate.StateError)) }

func stateOf(err error) string {
	var state *operate.StateError
	errors.As(err, &state)
	return state.Error()
}

// isFault says whether an error is about what was asked for, or whom, and not about pools that do not answer.
func isFault(err error) bool {
	var ready huma.StatusError
	return errors.As(err, &ready) || errors.As(err, new(*job.InputError)) || errors.Is(err, hidden) || errors.Is(err, workers.ErrNoArgs) || errors.Is(err, tenure.ErrUnknownPool) ||
		errors.Is(err, tenure.ErrUnknownTenant) || errors.Is(err, context.Canceled) || errors.Is(err, admin.ErrStopping) || errors.Is(err, access.ErrChanged)
}
