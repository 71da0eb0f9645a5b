package tenancy

import (
	"errors"
	"fmt"
)

// MovedError says that a tenant has left the pool that somebody turned to.
type MovedError struct {
	Tenant ID
	To     string // the pool it has moved to
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("tenant %q has moved to pool %s", e.Tenant, e.To)
}

// ErrHeld is what a [HeldError] is, for errors.Is.
var ErrHeld = errors.New("the tenant is held while its data is copied to another pool")

// HeldError says that nothing can be written for a tenant, as its data is being copied.
type HeldError struct {
	Tenant ID
	To     string // the pool that its data is copied to
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("tenant %q is held while its data is copied to pool %s, "+
		"and nothing can be written for it until that is done: try again later", e.Tenant, e.To)
}

// Is makes it an [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
