package job

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
)

// kinds is what a registry has at one time. Once the registry is frozen it is replaced, never changed.
type kinds struct {
	known     map[string]*Spec // registered, those that were withdrawn among them
	withdrawn map[string]bool
	paused    bool

	handled map[string]*Spec // what runs here: known, without what was withdrawn, and nothing while paused
	names   []string         // of handled, sorted
	mark    uint32           // of names
}

// with is what becomes of k by a change.
func (k *kinds) with(change func(*kinds)) *kinds {
	next := &kinds{known: maps.Clone(k.known), withdrawn: maps.Clone(k.withdrawn), paused: k.paused, handled: map[string]*Spec{}}
	if next.withdrawn == nil {
		next.withdrawn = map[string]bool{}
	}
	change(next)
	for name, s := range next.known {
		if !next.paused && !next.withdrawn[name] {
			next.handled[name] = s
		}
	}
	next.names = slices.Sorted(maps.Keys(next.handled))
	h := fnv.New32a()
	for _, name := range next.names {
		_, _ = io.WriteString(h, name+"\n"+next.handled[name].Queue+"\n") // it never fails
	}
	next.mark = h.Sum32()
	return next
}

// replace changes what a frozen registry has; with an error it stays as it is.
func (r *Registry) replace(change func(*kinds) error) error {
	r.Freeze()
	r.changing.Lock()
	defer r.changing.Unlock()
	var err error
	next := r.kinds.Load().with(func(k *kinds) { err = change(k) })
	if err == nil {
		r.kinds.Store(next)
	}
	return err
}

// Lookup returns the spec of a kind that is handled; it must not be changed.
func (r *Registry) Lookup(kind string) (*Spec, bool) {
	s, ok := r.kinds.Load().handled[kind]
	return s, ok
}

// Find is Lookup for kinds that are registered, also those that are not handled now: they were
// withdrawn, or the node is paused.
func (r *Registry) Find(kind string) (*Spec, bool) {
	if r == nil {
		return nil, false
	}
	s, ok := r.kinds.Load().known[kind]
	return s, ok
}

// Kinds lists what is handled, sorted. It is not to be changed.
func (r *Registry) Kinds() []string {
	names, _ := r.Handled()
	return names
}

// Handled is Kinds, with a number that tells one such list, and the kinds' queues, from another. Safe for concurrent use
// once the registry is frozen.
func (r *Registry) Handled() (names []string, mark uint32) {
	k := r.kinds.Load()
	if !r.frozen.Load() {
		k = k.with(func(*kinds) {})
	}
	return k.names, k.mark
}

// Queues are the default queues of kinds, in their order.
func (r *Registry) Queues(kinds []string) []string {
	queues := make([]string, len(kinds))
	for i, kind := range kinds {
		queues[i] = DefaultQueue
		if s, known := r.Find(kind); known {
			queues[i] = s.Queue
		}
	}
	return queues
}

// ErrKindExists is returned when a kind is registered that is registered already.
var ErrKindExists = errors.New("the kind is registered already")

// ErrKindUnknown is returned when a kind is withdrawn that is not registered, or was withdrawn before.
var ErrKindUnknown = errors.New("the kind is not registered")

// Join adds the kinds of another registry, within the middleware of both: all of them or, with
// [ErrKindExists], none. One that was withdrawn is replaced. A node calls it, see Node.Register.
// Safe for concurrent use; other is not to be used any more.
func (r *Registry) Join(other *Registry) error {
	other.Freeze()
	return r.replace(func(k *kinds) error {
		var errs []error
		for name, s := range other.kinds.Load().known {
			if k.known[name] != nil && !k.withdrawn[name] {
				errs = append(errs, fmt.Errorf("kind %q: %w: withdraw it first", name, ErrKindExists))
				continue
			}
			r.wrapSpec(s)
			k.known[name] = s
			delete(k.withdrawn, name)
		}
		return errors.Join(errs...)
	})
}

// Withdraw has kinds not be handled any more: all of them or, with [ErrKindUnknown], none. A node
// calls it, see Node.Withdraw. Safe for concurrent use.
func (r *Registry) Withdraw(names ...string) error {
	return r.replace(func(k *kinds) error {
		var errs []error
		for _, name := range names {
			if k.known[name] == nil || k.withdrawn[name] {
				errs = append(errs, fmt.Errorf("kind %q: %w", name, ErrKindUnknown))
			}
		}
		for _, name := range names {
			k.withdrawn[name] = true
		}
		return errors.Join(errs...)
	})
}

// SetPaused has no kind be handled, or all that were not withdrawn, and tells whether that is
// news. A node calls it, see Node.Pause. Safe for concurrent use.
func (r *Registry) SetPaused(paused bool) (news bool) {
	_ = r.replace(func(k *kinds) error { // nothing in it fails
		news, k.paused = k.paused != paused, paused
		return nil
	})
	return news
}
