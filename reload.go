package tenure

import (
	"context"
	"fmt"
	"reflect"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
)

// Reloaded says what [Node.Reload] did.
type Reloaded struct {
	Added   []string // pools that came into service, or will when their database answers
	Removed []string // pools that are being left; one whose settings changed is in both lists
	Later   []string // sections that differ and take effect when the node is started again
}

// Reload puts another configuration's pools and tenants into force while the node
// runs: all of it or, with an error, nothing. Where a pool is left, its lock goes to
// another node, its jobs finish as on a stop, and its connections are closed, while the
// others go on. It is refused when cfg is not valid, when a database that is to be
// added answers and cannot be used, when a pool would lead to another database than
// before, and, with [routing.ErrInUse], when a tenant would lose its pool. Other sections
// are compared and left alone. Safe for concurrent use.
func (n *Node) Reload(ctx context.Context, cfg config.Config) (Reloaded, error) {
	if err := cfg.Validate(); err != nil {
		return Reloaded{}, err
	}
	n.reloading.Lock()
	defer n.reloading.Unlock()
	change, err := n.router.Apply(ctx, cfg.Routing())
	if err != nil {
		return Reloaded{}, fmt.Errorf("reload: %w", err)
	}
	var r Reloaded
	for _, p := range change.Added {
		r.Added = append(r.Added, p.Name)
	}
	for _, p := range change.Removed {
		r.Removed = append(r.Removed, p.Name)
	}
	for _, section := range []struct {
		name     string
		old, new any
	}{
		{"node", n.cfg.Node, cfg.Node}, {"cluster", n.cfg.Cluster, cfg.Cluster}, {"acquire", n.cfg.Acquire, cfg.Acquire},
		{"execution", n.cfg.Execution, cfg.Execution}, {"handlers", n.cfg.Handlers, cfg.Handlers},
	} {
		if !reflect.DeepEqual(section.old, section.new) {
			r.Later = append(r.Later, section.name)
		}
	}
	n.cluster.SetPools(poolNames(n.router))
	n.manager.Apply(n.router.Pools())
	if len(r.Added)+len(r.Removed) > 0 {
		n.log.Info("pools changed", zap.Strings("added", r.Added), zap.Strings("removed", r.Removed))
	}
	if len(r.Later) > 0 {
		n.log.Warn("some changes of the configuration take effect when the node is started again", zap.Strings("sections", r.Later))
	}
	return r, nil
}
