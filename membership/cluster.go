package membership

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/underlay"
)

var (
	// ErrUnknownMember is returned for a message to a name that is not in the view.
	ErrUnknownMember = errors.New("no such member")
	// ErrTooLarge is returned for a payload above [MaxPayload].
	ErrTooLarge = errors.New("message too large")
	// ErrNotRunning is returned before Start and after Stop.
	ErrNotRunning = errors.New("cluster is not running")

	// errStopping is why contexts of a stopped Cluster ended.
	errStopping = errors.New("membership is stopping")
)

type phase int

const (
	created phase = iota
	running
	stopped // also from the beginning of Stop
)

// Cluster is this process' view of the others and its part in the election. See
// the package documentation for what it promises and what it does not.
type Cluster struct {
	roster

	cfg     Config
	times   timing
	log     *zap.Logger
	metrics *metrics
	single  bool
	network underlay.Network                                                  // nil: this machine's
	holds   func(member string) []string                                      // see LogLocks; nil: nobody is asked
	wrap    func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport // for tests

	mail     mailbox
	exchange exchange
	joiner   joiner
	farewell farewell
	keys     *keys // nil: nothing is encrypted

	settled chan struct{}          // closed by followView
	ml      *memberlist.Memberlist // guarded by mu; nil until Start, and for a single node

	life     sync.Mutex // held by Start, and by Stop while it decides
	cancel   context.CancelCauseFunc
	tasks    sync.WaitGroup // every goroutine of ours but Stop's; added to with mu held
	stopDone chan struct{}  // closed when Stop's work is done
}

// New checks cfg and self and returns a Cluster that is not started. It opens
// nothing. The error names every fault.
func New(cfg Config, self Self, log *zap.Logger, opts ...Option) (*Cluster, error) {
	if err := errors.Join(cfg.Validate(), self.validate()); err != nil {
		return nil, err
	}
	c := newCluster(self, log)
	c.cfg = cfg
	for _, o := range opts {
		o(c)
	}
	var err error
	if c.keys, err = newKeys(cfg.Keys); err != nil {
		return nil, err
	}
	c.times = timingOf(cfg.Profile)
	c.self.Joining = true
	for _, s := range cfg.Join {
		parsed, err := parseSeed(s)
		if err != nil {
			return nil, err // Validate would have said so
		}
		c.joiner.seeds = append(c.joiner.seeds, parsed)
	}
	if _, err := encodeMeta(c.self); err != nil {
		return nil, err
	}
	return c, nil
}

// Option changes what a Cluster stands on.
type Option func(*Cluster)

// OnNetwork has a Cluster gossip over another network than this machine's.
func OnNetwork(n underlay.Network) Option { return func(c *Cluster) { c.network = n } }

// LogLocks has it logged, of a node that fails, for which pools it held the acquire lock, as holds says, which must
// return at once. It is called before Start.
func (c *Cluster) LogLocks(holds func(member string) []string) { c.holds = holds }

// Single returns a Cluster of one, for a node without a cluster section. It opens
// no sockets, has settled from the start, and if its role is RoleNode its rank is
// 0 for every pool until it drains or stops. Start and Stop work as usual.
func Single(self Self) *Cluster {
	c := newCluster(self, zap.NewNop())
	c.single = true
	close(c.settled)
	return c
}

func newCluster(self Self, log *zap.Logger) *Cluster {
	var suffix [4]byte
	rand.Read(suffix[:]) // never fails
	name := self.Node + "-" + hex.EncodeToString(suffix[:])
	log = log.Named("membership").With(zap.String("member", name))
	c := &Cluster{
		roster:   newRoster(Member{Name: name, Node: self.Node, Role: self.Role, Version: self.Version}),
		log:      log,
		settled:  make(chan struct{}),
		stopDone: make(chan struct{}),
	}
	m := newMetrics(c)
	c.metrics, c.roster.metrics = m, m
	c.mail = newMailbox(name, log, m)
	c.exchange = exchange{name: name, log: log, metrics: m}
	c.joiner = joiner{log: log, metrics: m, roster: &c.roster, more: self.Seeds, lookUp: net.DefaultResolver.LookupNetIP, joined: make(chan struct{})}
	c.farewell = farewell{roster: &c.roster, sent: make(chan struct{}, 1)}
	return c
}

// Start opens the gossip sockets and begins to join; it does not wait for the
// join, see [Cluster.Settled]. A seed that does not answer is logged and tried
// again. Errors are about this machine: a port in use, no address to advertise.
// ctx bounds Start only. Start works once; after an error it may be tried again.
func (c *Cluster) Start(ctx context.Context) error {
	c.life.Lock()
	defer c.life.Unlock()
	switch c.currentPhase() {
	case running:
		return errors.New("start membership: already started")
	case stopped:
		return errors.New("start membership: stopped before, and a member that left cannot rejoin; build a new one")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start membership: %w", err)
	}
	runCtx, cancel := context.WithCancelCause(context.Background())
	var ml *memberlist.Memberlist
	if !c.single {
		var err error
		if ml, err = c.createMemberlist(runCtx); err != nil {
			cancel(err)
			return fmt.Errorf("start membership: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel, c.ml, c.phase, c.movedAt = cancel, ml, running, time.Now()
	c.tasks.Go(func() { c.mail.deliverAll(runCtx) })
	if ml != nil {
		c.tasks.Go(func() { c.followView(runCtx) })
		c.tasks.Go(func() { c.announce(runCtx, ml) })
		c.tasks.Go(func() { c.joiner.keepJoining(runCtx, ml, c.times) })
	}
	return nil
}

// createMemberlist opens the sockets and makes this process a cluster of one. ctx ends the
// outgoing streams.
func (c *Cluster) createMemberlist(ctx context.Context) (*memberlist.Memberlist, error) {
	mc := c.times.memberlist()
	mc.Logger = log.New(newBridge(c.log, c.metrics), "", 0)
	mc.Label = c.cfg.Label
	mc.Keyring = c.keys.keyring()
	bind := netip.MustParseAddrPort(c.cfg.Bind)
	var tr *transport
	var err error
	if c.network == nil {
		tr, err = listen(ctx, bind, c.times, mc)
	} else {
		tr, err = listenOn(ctx, c.network, bind, c.times, mc)
	}
	if err != nil {
		return nil, err
	}
	bind = tr.bound
	c.joiner.bound = bind
	advertise, err := systemAdvertiser(os.Getenv).findAddress(c.cfg, bind)
	if err != nil {
		tr.closeUnread()
		return nil, err
	}
	c.joiner.advertised = advertise
	mc.Name = c.name
	mc.BindAddr, mc.BindPort = bind.Addr().String(), int(bind.Port())
	mc.AdvertiseAddr, mc.AdvertisePort = advertise.Addr().String(), int(advertise.Port())
	mc.Delegate, mc.Events, mc.Conflict = delegate{c}, delegate{c}, delegate{c}
	mc.Transport = tr
	if c.wrap != nil {
		mc.Transport = c.wrap(tr)
	}
	ml, err := memberlist.Create(mc)
	if err != nil {
		tr.closeUnread()
		return nil, err
	}
	c.log.Info("gossip started", zap.Stringer("bind", bind), zap.Stringer("advertise", advertise),
		zap.Bool("encrypted", len(c.cfg.Keys) > 0), zap.String("profile", c.cfg.Profile))
	if who, level := c.cfg.trustedWithoutKeys(advertise); who != "" {
		c.log.Log(level, "gossip has no key, so that "+who+" counts as a member and can keep nodes from their pools; set cluster.keys")
	}
	return ml, nil
}

// Stop leaves the cluster, so that the others need not find out, closes the
// sockets and waits for every goroutine, running handlers included. From its
// beginning this process is not eligible and the view is empty. The leave message
// gets 5 s or until ctx ends, whichever comes first; that it did not spread is
// logged and no error, for the others will miss this process then. The error is
// ctx's if it ends first; the rest goes on behind.
//
// One probe of memberlist's may outlive Stop by some probe intervals. It holds no
// socket, and memberlist offers no way to wait for it.
//
// Stop may be called more than once, and without Start.
func (c *Cluster) Stop(ctx context.Context) error {
	c.life.Lock()
	switch c.endPhase() {
	case created:
		close(c.stopDone)
	case running:
		timeout := c.times.leaveWithin
		if deadline, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(deadline))
		}
		go c.leaveCluster(timeout)
	}
	c.life.Unlock()
	select {
	case <-c.stopDone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop membership: %w", context.Cause(ctx))
	}
}

// leaveCluster is Stop's work. The order matters: outgoing streams end first, so that a
// join under way cannot hold it up, and gossip needs none to spread the word; and
// memberlist panics if it is to leave after its shutdown.
func (c *Cluster) leaveCluster(timeout time.Duration) {
	defer close(c.stopDone)
	c.cancel(errStopping)
	if c.ml != nil {
		if !c.farewell.sayFarewell(c.ml, timeout) {
			c.log.Warn("leave message did not spread; the others will find out by themselves")
		}
		if err := c.ml.Shutdown(); err != nil {
			c.log.Warn("gossip did not shut down cleanly", zap.Error(err))
		}
	}
	c.tasks.Wait()
}

// Metrics returns the Cluster's metrics, to be registered by the caller.
func (c *Cluster) Metrics() prometheus.Collector { return c.metrics }

// SetKeys replaces the keys while gossip goes on, and says whether any of them is new, in another
// place, or gone. It changes nothing where there were no keys before or are none now, or where one
// cannot be read, which [Config.Validate] says. A key must be known to all members before it
// comes first anywhere, and first everywhere before the one before it goes. Safe for concurrent
// use.
func (c *Cluster) SetKeys(texts []string) (changed bool) {
	want, err := decodeKeys(texts)
	if err != nil || len(want) == 0 || c.keys == nil {
		return false
	}
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	if slices.EqualFunc(c.keys.ring.GetKeys(), want, bytes.Equal) {
		return false
	}
	if err := c.keys.replace(want); err != nil {
		c.log.Error("the keys of gossip are not changed", zap.Error(err))
		return false
	}
	return true
}
