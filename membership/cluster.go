package membership

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/underlay"
)

var (
	// ErrUnknownMember is returned for a message to a name that is not in the view.
	ErrUnknownMember = errors.New("no such member")
	// ErrTooLarge is returned for a payload above the limit of the method.
	ErrTooLarge = errors.New("message too large")
	// ErrBusy is returned by SendReliable when too many of its calls are under way.
	ErrBusy = errors.New("too many reliable messages under way")
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

const (
	// inboxSize is how many messages may wait for their handler. A reader that is
	// this far behind is better off with the newest.
	inboxSize = 1024
	// reliableLimit is how many SendReliable may be under way at once.
	reliableLimit = 64
)

// Cluster is this process' view of the others and its part in the election. See
// the package documentation for what it promises and what it does not.
type Cluster struct {
	cfg     Config
	seeds   []seed
	more    func(ctx context.Context) []string
	times   timing
	log     *zap.Logger
	metrics *metrics
	single  bool

	// For tests.
	wrap  func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
	look  lookup
	under underlay.Network // nil: this machine's

	name       string                                           // Self().Name, which never changes
	handlers   map[byte]func(from string, payload []byte) error // written before Start only
	exchanged  exchanged                                        // written before Start only
	inbox      *inbox
	reliable   chan struct{}        // a slot per SendReliable under way
	cached     atomic.Pointer[view] // nil after a change; set with mu held
	settled    chan struct{}        // closed by run
	joined     chan struct{}        // closed by runJoin: a seed answered, or there is none
	wake       chan struct{}        // one slot, read by run: look at the view
	announcing chan struct{}        // one slot, read by run: send our metadata
	bound      netip.AddrPort       // set by Start, before its goroutines
	advertised netip.AddrPort       // set by Start, before its goroutines
	oneWay     bool                 // used by runJoin only: that seeds cannot answer was said
	cancel     context.CancelCauseFunc
	unsent     atomic.Int32   // while leaving: packets the leave message has yet to travel in
	gone       chan struct{}  // one slot, read by spread: unsent is zero, or nobody is left
	stopDone   chan struct{}  // closed when Stop's work is done
	tasks      sync.WaitGroup // every goroutine of ours but Stop's; added to with mu held

	life sync.Mutex // held by Start, and by Stop while it decides

	// The rest is guarded by mu, which is never held while memberlist is called:
	// memberlist calls delegate with its own lock held.
	mu        sync.Mutex
	phase     phase
	self      Member
	others    map[string]peer
	pools     []string        // ascending; replaced, never written
	lacking   map[string]bool // pools this process does not reach
	movedAt   time.Time       // last change that concerns a node
	watchers  map[chan struct{}]struct{}
	conflicts map[string][2]string   // member name to its two addresses
	ml        *memberlist.Memberlist // nil until Start, and for a single node
}

// New checks cfg and self and returns a Cluster that is not started. It opens
// nothing. The error names every fault.
func New(cfg Config, self Self, log *zap.Logger) (*Cluster, error) {
	if err := errors.Join(cfg.Validate(), self.validate()); err != nil {
		return nil, err
	}
	c := newCluster(self, log)
	c.cfg = cfg
	c.times = timingOf(cfg.Profile)
	c.self.Joining = true
	for _, s := range cfg.Join {
		parsed, err := parseSeed(s)
		if err != nil {
			return nil, err // Validate would have said so
		}
		c.seeds = append(c.seeds, parsed)
	}
	if _, err := encodeMeta(c.self); err != nil {
		return nil, err
	}
	return c, nil
}

func init() {
	underlay.Put.Cluster = func(c any, n underlay.Network) { c.(*Cluster).under = n }
}

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
	c := &Cluster{
		more:       self.Seeds,
		look:       net.DefaultResolver.LookupNetIP,
		name:       name,
		self:       Member{Name: name, Node: self.Node, Role: self.Role, Version: self.Version},
		inbox:      newInbox(inboxSize),
		handlers:   map[byte]func(string, []byte) error{},
		reliable:   make(chan struct{}, reliableLimit),
		settled:    make(chan struct{}),
		wake:       make(chan struct{}, 1),
		announcing: make(chan struct{}, 1),
		joined:     make(chan struct{}),
		gone:       make(chan struct{}, 1),
		stopDone:   make(chan struct{}),
		others:     map[string]peer{},
		watchers:   map[chan struct{}]struct{}{},
		conflicts:  map[string][2]string{},
		lacking:    map[string]bool{},
		movedAt:    time.Now(),
	}
	c.log = log.Named("membership").With(zap.String("member", name))
	c.metrics = newMetrics(c)
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
		if ml, err = c.create(runCtx); err != nil {
			cancel(err)
			return fmt.Errorf("start membership: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel, c.ml, c.phase, c.movedAt = cancel, ml, running, time.Now()
	c.tasks.Go(func() { c.deliver(runCtx) })
	if ml != nil {
		c.tasks.Go(func() { c.run(runCtx, ml) })
		c.tasks.Go(func() { c.runJoin(runCtx, ml) })
	}
	return nil
}

// create opens the sockets and makes this process a cluster of one. ctx ends the
// outgoing streams.
func (c *Cluster) create(ctx context.Context) (*memberlist.Memberlist, error) {
	mc := c.times.memberlist()
	mc.Logger = log.New(newBridge(c.log, c.metrics), "", 0)
	mc.Label = c.cfg.Label
	var err error
	if mc.Keyring, err = keyring(c.cfg.Keys); err != nil {
		return nil, err
	}
	bind := netip.MustParseAddrPort(c.cfg.Bind)
	var tr *transport
	if c.under == nil {
		tr, err = listen(ctx, bind, c.times, mc)
	} else {
		tr, err = listenOn(ctx, c.under, bind, c.times, mc)
	}
	if err != nil {
		return nil, err
	}
	bind = tr.bound
	c.bound = bind
	advertise, err := systemAdvertiser(os.Getenv).find(c.cfg, bind)
	if err != nil {
		tr.abandon()
		return nil, err
	}
	c.advertised = advertise
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
		tr.abandon()
		return nil, err
	}
	c.log.Info("gossip started", zap.Stringer("bind", bind), zap.Stringer("advertise", advertise),
		zap.Bool("encrypted", len(c.cfg.Keys) > 0), zap.String("profile", c.cfg.Profile))
	if who, level := c.cfg.trusted(advertise); who != "" {
		c.log.Log(level, "gossip has no key, so that "+who+" counts as a member and can keep nodes from their pools; set cluster.keys")
	}
	return ml, nil
}

// keyring is nil without keys. Of several, the first encrypts.
func keyring(keys []string) (*memberlist.Keyring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	raw := make([][]byte, len(keys))
	for i, k := range keys {
		var err error
		if raw[i], err = base64.StdEncoding.DecodeString(k); err != nil {
			return nil, fmt.Errorf("cluster.keys[%d] is not base64", i) // without the key
		}
	}
	return memberlist.NewKeyring(raw, raw[0])
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
	switch c.end() {
	case created:
		close(c.stopDone)
	case running:
		timeout := c.times.leave
		if deadline, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(deadline))
		}
		go c.leave(timeout)
	}
	c.life.Unlock()
	select {
	case <-c.stopDone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop membership: %w", context.Cause(ctx))
	}
}

// end makes the phase stopped and returns what it was before.
func (c *Cluster) end() (before phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.phase = c.phase, stopped
	if before != stopped {
		c.changed(true)
	}
	return before
}

func (c *Cluster) currentPhase() phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase
}
