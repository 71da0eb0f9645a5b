package membership

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
)

const (
	// lookupTimeout bounds all name lookups of one attempt, and the call of Self.Seeds.
	lookupTimeout = 2 * time.Second
	// joinWorkers addresses are tried at a time, so that a dead one does not hold up the others.
	joinWorkers = 4
	// joinTargets bounds one attempt. One answer is enough to learn of everybody
	// the answering member knows, and what is left over has its turn later.
	joinTargets = 16
)

// joiner looks for members that are not in the view.
type joiner struct {
	log     *zap.Logger
	metrics *metrics
	roster  *roster
	seeds   []seed
	more    func(ctx context.Context) []string // Self.Seeds
	lookUp  lookup
	joined  chan struct{} // closed by keepJoining when it has tried once
	alone   bool          // written before that: there are seeds, and none answered

	bound      netip.AddrPort // set before keepJoining
	advertised netip.AddrPort // set before keepJoining
	oneWay     bool           // used by keepJoining only: that seeds cannot answer was said
}

// keepJoining goes on for as long as this process lives. memberlist alone does not: once it
// has declared a member dead it probes it no more, and forgets it a minute later, so the two
// sides of a longer partition would stay apart for ever.
func (j *joiner) keepJoining(ctx context.Context, ml *memberlist.Memberlist, times timing) {
	var (
		first  = true
		warned bool
		retry  = backoff.Backoff{Policy: backoff.Policy{First: times.retryFirst, Longest: times.rejoinEvery}}
	)
	for {
		missing, reached, err := j.joinMissing(ctx, ml)
		if ctx.Err() != nil {
			return
		}
		if first {
			j.alone = missing > 0 && reached == 0
			close(j.joined)
			first = false
		}
		wait := addJitter(times.rejoinEvery)
		switch alone := len(j.roster.currentView().members) == 1; {
		case reached > 0 || !alone || missing == 0:
			retry.Reset()
			warned = false
		default:
			if !warned {
				warned = true
				j.log.Warn("no seed answered; alone until one does or somebody joins", zap.Int("seeds", missing), zap.Error(err))
			}
			wait = retry.Next()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// addJitter spreads d by ± 20 %, lest all members look for one another at once.
func addJitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// joinMissing tries to reach who is not in the view: how many there may be, how many
// answered, and one reason for the others.
func (j *joiner) joinMissing(ctx context.Context, ml *memberlist.Memberlist) (missing, reached int, err error) {
	targets, unresolved, err := j.findTargets(ctx)
	missing = len(targets) + unresolved
	rand.Shuffle(len(targets), func(a, b int) { targets[a], targets[b] = targets[b], targets[a] })
	if len(targets) > joinTargets {
		targets = targets[:joinTargets]
	}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next = make(chan target)
	)
	for range min(joinWorkers, len(targets)) {
		wg.Go(func() {
			for t := range next {
				// An earlier answer may have brought it into the view.
				if ctx.Err() != nil || j.isKnown(t) {
					continue
				}
				joinErr := joinAt(ctx, ml, t)
				mu.Lock()
				if joinErr == nil {
					reached++
					j.metrics.joins.WithLabelValues("reached").Inc()
				} else {
					err = joinErr
					j.metrics.joins.WithLabelValues("failed").Inc()
					j.log.Debug("seed did not answer", zap.Error(joinErr))
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range targets {
		next <- t
	}
	close(next)
	wg.Wait()
	return missing, reached, err
}

// joinAt joins at the first of t's addresses that answers. Each takes at most the
// transport's dial timeout and a stream timeout, and ends with ctx.
func joinAt(ctx context.Context, ml *memberlist.Memberlist, t target) error {
	var errs []error
	for _, addr := range t {
		if ctx.Err() != nil {
			break
		}
		_, err := ml.Join([]string{addr.String()})
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// findTargets resolves every seed and leaves out this process and its members.
// unresolved counts seeds without an address; err is the last reason.
func (j *joiner) findTargets(ctx context.Context) (targets []target, unresolved int, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	seeds := slices.Clone(j.seeds)
	if j.more != nil {
		for _, s := range j.more(ctx) {
			parsed, err := parseSeed(s)
			if err != nil {
				j.log.Debug("seed ignored", zap.String("seed", s), zap.Error(err))
				continue
			}
			seeds = append(seeds, parsed)
		}
	}
	seen := map[seed]bool{}
	for _, s := range seeds {
		if seen[s] {
			continue
		}
		seen[s] = true
		found, lookErr := s.resolveTargets(ctx, j.addressFamily(), j.lookUp)
		if lookErr != nil || len(found) == 0 {
			unresolved++
			if lookErr != nil {
				err = lookErr
			}
			continue
		}
		for _, t := range found {
			if j.isKnown(t) {
				continue
			}
			if t = j.dropOneWay(t); len(t) == 0 {
				unresolved++
				err = errOneWay
				continue
			}
			targets = append(targets, t)
		}
	}
	return targets, unresolved, err
}

var errOneWay = errors.New("it is on another machine, from where this node cannot be reached")

// dropOneWay leaves out of t, while this process advertises loopback, what is on another
// machine. A join there would succeed, but its members would learn an address at which
// they find themselves or nobody, and declare this one dead, again and again.
func (j *joiner) dropOneWay(t target) target {
	if !j.advertised.Addr().IsLoopback() {
		return t
	}
	here := slices.DeleteFunc(slices.Clone(t), func(addr netip.AddrPort) bool { return !isLocal(addr.Addr()) })
	if len(here) == 0 && !j.oneWay {
		j.oneWay = true
		j.log.Error("a seed is on another machine and is not joined: this node advertises loopback, at which nobody there would reach it; "+
			"set cluster.bind to 0.0.0.0 or to an address of this machine, and cluster.advertise, if it is set, to the address at which others reach this node",
			zap.Stringer("seed", t[0]), zap.Stringer("advertise", j.advertised))
	}
	return here
}

// isKnown reports whether t is this process or in the view.
func (j *joiner) isKnown(t target) bool {
	for _, m := range j.roster.currentView().members {
		if addr, err := netip.ParseAddrPort(m.Addr); err == nil && slices.Contains(t, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())) {
			return true
		}
	}
	return slices.ContainsFunc(t, j.isSelf)
}

// isSelf reports whether this process listens at addr, under whatever address it
// advertises: one list of seeds usually serves all nodes.
func (j *joiner) isSelf(addr netip.AddrPort) bool {
	return addr == j.bound || j.bound.Addr().IsUnspecified() && addr.Port() == j.bound.Port() && isLocal(addr.Addr())
}

// addressFamily is the address family that can be reached from the bound address.
func (j *joiner) addressFamily() string {
	switch ip := j.bound.Addr(); {
	case ip.IsUnspecified():
		return "ip" // Linux takes both on a wildcard, also on 0.0.0.0
	case ip.Is4():
		return "ip4"
	default:
		return "ip6"
	}
}

// isLocal reports whether ip is one of this machine's addresses.
func isLocal(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	here, err := interfaceAddrs()
	return err == nil && slices.Contains(here, ip.Unmap())
}
