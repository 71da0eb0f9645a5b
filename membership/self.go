package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Self describes this process to the others.
type Self struct {
	// Node is the configured node name: 1 to 63 letters, digits, dots, dashes and
	// underscores, the same after a restart and different on every node.
	Node string
	// Role decides whether this process can be elected.
	Role Role
	// Version is the release, at most 64 bytes. For display only.
	Version string
	// Seeds returns addresses to join at beside Config.Join, as host:port, such as
	// those of the nodes known to a database. It is called before every join
	// attempt with a context of a few seconds, and never concurrently. May be nil.
	Seeds func(ctx context.Context) []string
}

func (s Self) validate() error {
	var errs []error
	if s.Node == "" || len(s.Node) > maxNode || strings.ContainsFunc(s.Node, notInName) {
		errs = append(errs, fmt.Errorf("node name %q: write 1 to %d letters, digits, dots, dashes and underscores", s.Node, maxNode))
	}
	if s.Role != RoleNode && s.Role != RoleClient {
		errs = append(errs, fmt.Errorf("role %q is neither %s nor %s", s.Role, RoleNode, RoleClient))
	}
	if len(s.Version) > maxVersion || strings.ContainsFunc(s.Version, func(r rune) bool { return !unicode.IsPrint(r) }) {
		errs = append(errs, fmt.Errorf("version %q: at most %d printable bytes are announced", s.Version, maxVersion))
	}
	return errors.Join(errs...)
}
