package job

import (
	"errors"
	"fmt"
)

// ErrNotFound is returned when no job has the id, or none in a state the call could act on.
var ErrNotFound = errors.New("no such job")

// KeyTakenError says that an unfinished job has the unique key of the dead one that
// was to be retried.
type KeyTakenError struct {
	By ID // 0: not known
}

func (e *KeyTakenError) Error() string {
	if e.By == 0 {
		return "another job has its unique key"
	}
	return fmt.Sprintf("job %d has its unique key", e.By)
}

// LinkError says that a job was not added, as what it was to be linked to is not there.
type LinkError struct {
	ID    ID
	Batch bool // it was to be added to this batch; else it was to start after this job
}

func (e *LinkError) Error() string {
	if e.Batch {
		return fmt.Sprintf("job %d is not the completion job of an open batch of the tenant: jobs can be added to a batch until all of its jobs have ended", e.ID)
	}
	return fmt.Sprintf("the tenant has no job %d to start after, unfinished, dead or among the finished ones that are kept: "+
		"if that may have ended too long ago, or finished jobs are not kept, enqueue both in one transaction", e.ID)
}

// Is lets errors.Is find [ErrNotFound].
func (e *LinkError) Is(target error) bool { return target == ErrNotFound }

// InputError says what is wrong with what a call was given: options, arguments, a limit, a name, a time;
// and, in most cases, what is allowed. Its text is about that only. It holds no SQL, no DSN and nothing
// that a database said, so it can be shown to those the input is from; what it is wrapped in may
// hold more. tenure.Refused is true of it, too.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong, such as tenure.ErrUnknownPool.
func (e *InputError) Unwrap() error { return e.Err }
