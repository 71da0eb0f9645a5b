package tenancy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrUnknownTenant is returned when no routing rule knows a tenant.
var ErrUnknownTenant = errors.New("unknown tenant")

// ErrNoTenant is returned by calls that need a tenant when the context carries
// none; [For] puts one there.
var ErrNoTenant = errors.New("no tenant in the context: use tenancy.For(ctx, id)")

// MaxIDLength is the longest tenant id, in bytes.
const MaxIDLength = 128

// ID names a tenant across the whole cluster.
type ID string

// Validate refuses ids that could not be told apart by a person or would break
// a log line: empty, over [MaxIDLength] bytes, not UTF-8, with control or other
// unprintable characters, or with white space at either end.
func (id ID) Validate() error {
	s := string(id)
	switch {
	case s == "":
		return errors.New("tenant id is empty")
	case len(s) > MaxIDLength:
		return fmt.Errorf("tenant id %.32q… has %d bytes: %d are allowed", s, len(s), MaxIDLength)
	case !utf8.ValidString(s):
		return fmt.Errorf("tenant id %q is not UTF-8", s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("tenant id %q begins or ends with white space", s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("tenant id %q has the unprintable character %U", s, r)
		}
		// A combining mark spells the same letter in a second way, so two ids
		// could look alike and differ. Composed (NFC) text has none after a letter.
		if unicode.Is(unicode.Mn, r) {
			return fmt.Errorf("tenant id %q has the combining character %U: write it in composed form (NFC)", s, r)
		}
	}
	return nil
}

// Tenant says where a tenant lives. It is a value; copies are independent.
type Tenant struct {
	ID     ID
	Pool   string // the pool (database) that holds its schema and its jobs
	Schema string // first entry of search_path
	Shared string // those behind it, quoted as in SQL, but for pg_temp, which is last; "": none
	Role   string // role taken for the tenant's transactions; "" keeps the pool's own user
}

type contextKey struct{}

// For returns a context that names a tenant, for enqueueing on its behalf.
// Only the ID is set; routing finds the rest.
func For(ctx context.Context, id ID) context.Context {
	return NewContext(ctx, Tenant{ID: id})
}

// NewContext returns a context that carries t.
func NewContext(ctx context.Context, t Tenant) context.Context {
	return context.WithValue(ctx, contextKey{}, &t)
}

// FromContext returns the tenant that ctx carries. In a handler all fields are set.
func FromContext(ctx context.Context) (Tenant, bool) {
	t, ok := ctx.Value(contextKey{}).(*Tenant)
	if !ok {
		return Tenant{}, false
	}
	return *t, true
}

// Must is FromContext for code that only ever runs in a handler. It panics with
// [ErrNoTenant] when ctx carries no tenant, which is a programmer's mistake.
func Must(ctx context.Context) Tenant {
	t, ok := FromContext(ctx)
	if !ok {
		panic(ErrNoTenant)
	}
	return t
}
