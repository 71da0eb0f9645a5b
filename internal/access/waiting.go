package access

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"
)

// ErrChanged is why a context of [WhileGranted] ends.
var ErrChanged = errors.New("the sender of the request may do something else now than when it came")

// askAgain is how often it is looked whether a grant has ended by itself, as tokens and sessions do.
const askAgain = time.Second

type senderKey struct{}

// sender is who sent a request, which the guard is asked again for.
type sender struct {
	guard   *Guard
	request *http.Request
}

// WhileGranted is a request's context for what waits: it ends, by ErrChanged, once the guard gives its sender another
// grant, as after a reload or when a token has expired.
func WhileGranted(request context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(request)
	if s, ok := ctx.Value(senderKey{}).(sender); ok { // else no guard has let it in
		go s.watch(ctx, cancel)
	}
	return ctx, func() { cancel(nil) }
}

func (s sender) watch(ctx context.Context, end context.CancelCauseFunc) {
	every := time.NewTicker(askAgain)
	defer every.Stop()
	for {
		old := s.guard.rules.Load().old // before the guard is asked, or a change in between would be missed
		if !reflect.DeepEqual(s.guard.GrantOf(s.request), From(ctx)) {
			end(ErrChanged)
			return
		}
		select {
		case <-old:
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}
