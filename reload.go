package tenure

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// Reloaded says what [Node.Reload] or [Client.Reload] did.
type Reloaded struct {
	Added   []string `json:"pools_added,omitempty"`   // pools that came into service, or will when their database answers
	Removed []string `json:"pools_removed,omitempty"` // pools that are being left; one whose settings changed is in both lists
	Later   []string `json:"after_restart,omitempty"` // sections that differ and take effect when the node is started again
}

// reloader puts configurations into force, one at a time.
type reloader struct {
	started config.Config // what the process was started with
	router  *routing.Router
	cluster *membership.Cluster
	log     *zap.Logger

	mu sync.Mutex // held during reload
}

// reload calls then with the change that it has made, before another one is made.
func (r *reloader) reload(ctx context.Context, cfg config.Config, then func(routing.Change)) (Reloaded, error) {
	if err := cfg.Validate(); err != nil {
		return Reloaded{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	change, err := r.router.Apply(ctx, cfg.Routing())
	if err != nil {
		return Reloaded{}, fmt.Errorf("reload: %w", err)
	}
	var done Reloaded
	for _, p := range change.Added {
		done.Added = append(done.Added, p.Name)
	}
	for _, p := range change.Removed {
		done.Removed = append(done.Removed, p.Name)
	}
	old := r.started
	for _, section := range []struct {
		name     string
		old, new any
	}{
		{"node", old.Node, cfg.Node}, {"cluster", old.Cluster, cfg.Cluster}, {"connections", old.Connections, cfg.Connections},
		{"acquire", old.Acquire, cfg.Acquire}, {"execution", old.Execution, cfg.Execution}, {"handlers", old.Handlers, cfg.Handlers},
	} {
		if !reflect.DeepEqual(section.old, section.new) {
			done.Later = append(done.Later, section.name)
		}
	}
	r.cluster.SetPools(poolNames(r.router))
	then(change)
	if len(done.Added)+len(done.Removed) > 0 {
		r.log.Info("pools changed", zap.Strings("added", done.Added), zap.Strings("removed", done.Removed))
	}
	if len(done.Later) > 0 {
		r.log.Warn("some changes of the configuration take effect when the node is started again", zap.Strings("sections", done.Later))
	}
	return done, nil
}

// Reload puts another configuration's pools and tenants into force while the node
// runs: all of it or, with an error, nothing. Where a pool is left, its lock goes to
// another node, its jobs finish as on a stop, and its connections are closed, while the
// others go on. It is refused when cfg is not valid, when a database that is to be
// added answers and cannot be used, when a pool would lead to another database than
// before, with [routing.ErrInUse] when a tenant would lose its pool, and with
// [routing.ErrHasJobs] when one would leave its jobs behind. Other sections are compared
// and left alone; with connections as they are, what is added must fit into its server.
// Safe for concurrent use.
func (n *Node) Reload(ctx context.Context, cfg config.Config) (Reloaded, error) {
	return n.reloader.reload(ctx, cfg, func(routing.Change) { n.manager.Apply(n.router.Pools()) })
}

// Reload puts another configuration's pools and tenants into force while the client is
// used, as [Node.Reload] does on a node. Connections to pools that are left are closed as
// they are given back. A node's client is reloaded with its node. Safe for concurrent use.
func (c *Client) Reload(ctx context.Context, cfg config.Config) (Reloaded, error) {
	if c.reloader == nil {
		return Reloaded{}, errors.New("this client belongs to a node: reload that")
	}
	return c.reloader.reload(ctx, cfg, func(change routing.Change) {
		for _, p := range change.Removed {
			c.leaving.Go(func() { c.router.Close(p) })
		}
	})
}
