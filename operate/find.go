package operate

import (
	"context"
	"errors"
	"slices"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/routing"
)

// UnansweredError says which pools did not answer: what the others do not have may be there.
type UnansweredError struct {
	Pools []string // their names, in order
	err   error
}

func (e *UnansweredError) Error() string {
	return "not every pool answered, and the others do not have it: " + e.err.Error()
}

// Unwrap returns why they did not answer.
func (e *UnansweredError) Unwrap() error { return e.err }

// inspectFirst asks the ledgers of pools at the same time, each for process.AnswerWithin at most, and
// returns the first thing that one has. It waits for no other one then, as one that hangs would keep
// what was found from those who ask. nil: none of those that answered has it; the error is an
// UnansweredError if some did not.
func inspectFirst[T any](ctx context.Context, c *process.Process, pools []*routing.Pool, ask process.Question[*T]) (*T, error) {
	type answer struct {
		from  int
		found *T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the questions that nobody waits for any more
	answers := make(chan answer, len(pools))
	failures := make([]error, len(pools)) // of those that have not answered yet: that they have not
	for i, p := range pools {
		failures[i] = errUnanswered
		c.Asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
			defer cancel()
			found, err := process.Inspect(ctx, p, ask)
			answers <- answer{i, found, err}
		})
	}
	for left := len(pools); left > 0; left-- {
		select {
		case a := <-answers:
			if a.found != nil {
				return a.found, nil
			}
			failures[a.from] = a.err
		case <-ctx.Done():
			left = 1
		}
	}
	return nil, unanswered(ctx, pools, failures)
}

// errUnanswered stands for an answer that has not come.
var errUnanswered = errors.New("it has not answered")

// unanswered is the error of the pools that failed to answer; nil: none has.
func unanswered(ctx context.Context, pools []*routing.Pool, failures []error) error {
	out := &UnansweredError{}
	var why []error
	for i, err := range failures {
		if err == nil {
			continue
		}
		if errors.Is(err, errUnanswered) {
			err = context.Cause(ctx)
		}
		out.Pools = append(out.Pools, pools[i].Name)
		why = append(why, routing.NameFailure(pools[i], err))
	}
	if len(why) == 0 {
		return nil
	}
	slices.Sort(out.Pools)
	out.err = errors.Join(why...)
	return out
}
