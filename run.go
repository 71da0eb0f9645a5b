package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/admin"
)

// Run starts the node, waits until ctx ends, and stops it; nil means that nothing is left
// claimed. Meanwhile it serves [Node.Handler] on node.listen, unless that is off, and, of
// a configuration that [config.Load] read, puts the pools and tenants of the changed file
// into force: on SIGHUP, on POST /-/reload, and when it finds the file changed, which it
// looks for every five seconds. So SIGHUP does not end the process while Run runs. Programs
// that want to serve, or to be signalled, in their own way use Start and Stop.
func (n *Node) Run(ctx context.Context) error {
	web, err := admin.Listen(n.cfg.Node.Address())
	if err != nil {
		return err
	}
	defer web.Stop() // after the node, so that probes see it stop
	file := &configFile{path: n.cfg.File, node: n, log: n.log, known: n.cfg}
	handler := file.handler(n.Handler())
	if !n.cfg.Node.AnyHost() {
		handler = admin.ForHosts(handler, n.cfg.Node.AllowedHosts)
	}
	web.Serve(handler, n.log)
	n.log.Info("starting", zap.String("version", n.cluster.Self().Version), zap.Int64("ledger", LedgerVersion()), zap.String("node", n.cfg.Node.Name),
		zap.Strings("pools", slices.Sorted(maps.Keys(n.cfg.Pools))), zap.Strings("kinds", n.client.registry.Kinds()), zap.String("address", web.Address()))
	// A start that is cut short could not undo itself: ctx is heeded right after it.
	own := context.WithoutCancel(ctx)
	startCtx, cancel := context.WithTimeout(own, startTimeout)
	err = n.Start(startCtx)
	cancel()
	if err == nil {
		n.log.Info("started")
		err = file.watch(ctx, web.Failed())
		n.log.Info("stopping", zap.Duration("finish_within", n.cfg.Execution.FinishWithin))
	}
	stopCtx, cancel := context.WithTimeout(own, StopTimeout(n.cfg)) // stopping begins where ctx ends
	defer cancel()
	if stopErr := n.Stop(stopCtx); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("stop: %w", stopErr))
	}
	if err == nil {
		n.log.Info("stopped, nothing is claimed")
	}
	return err
}

// How a changed configuration file is found and put into force.
const (
	filePoll    = 5 * time.Second  // orchestrators replace files without telling anybody
	reloadLimit = 30 * time.Second // of one reload
	// A configuration that was refused is tried again this late at most: why it was, such as
	// a tenant's jobs in a pool that is to go, may be over on this node later than on others,
	// and the nodes should not stay apart because of it.
	longestAgain = time.Minute
)

// configFile is the file that a node was configured with. A file with faults changes
// nothing; one that was refused is tried again now and then.
type configFile struct {
	path string // "": the configuration was made by the program
	node *Node
	log  *zap.Logger

	mu    sync.Mutex
	known config.Config // guarded by mu; what was put into force, or refused, last
	said  string        // guarded by mu; the fault that was logged last
	again time.Duration // guarded by mu; the last wait before known is tried once more; 0: it is in force
	next  time.Time     // guarded by mu; when it is
}

// watch reloads until ctx ends or failed says why the node must end.
func (f *configFile) watch(ctx context.Context, failed <-chan error) error {
	var hangup chan os.Signal
	var poll <-chan time.Time
	if f.path != "" {
		hangup = make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		ticker := time.NewTicker(filePoll)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-hangup:
			_, _ = f.reload(ctx, true) // it logs what is wrong
		case <-poll:
			_, _ = f.reload(ctx, false)
		}
	}
}

// reload reads the file and puts it into force if it has changed, or in any case when
// asked to.
func (f *configFile) reload(ctx context.Context, asked bool) (Reloaded, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return Reloaded{}, errors.New("this node's program made its configuration itself, without a file: call Node.Reload in it")
	}
	cfg, err := config.Load(f.path)
	if err != nil {
		return Reloaded{}, f.refuse(err, asked)
	}
	changed := !reflect.DeepEqual(cfg, f.known)
	if !asked && !changed && (f.again == 0 || time.Now().Before(f.next)) {
		return Reloaded{}, nil
	}
	if changed {
		f.known, f.again = cfg, 0
	}
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	done, err := f.node.Reload(ctx, cfg)
	if err != nil {
		f.again = min(max(2*f.again, filePoll), longestAgain)
		f.next = time.Now().Add(f.again)
		return done, f.refuse(err, asked || changed)
	}
	f.said, f.again = "", 0
	f.log.Info("configuration reloaded")
	return done, nil
}

// refuse logs what is wrong, unless it is known already and this is no news.
func (f *configFile) refuse(err error, news bool) error {
	if text := err.Error(); news || text != f.said {
		f.said = text
		f.log.Error("configuration is not reloaded; the one in force stays, and it is tried again", zap.Error(err))
	}
	return err
}

// handler serves POST /-/reload beside what the node serves.
func (f *configFile) handler(node http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", node)
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, req *http.Request) {
		done, err := f.reload(req.Context(), true)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		answer := struct {
			Reloaded
			Error string `json:"error,omitempty"`
		}{Reloaded: done}
		if err != nil {
			answer.Error = err.Error()
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_ = json.NewEncoder(w).Encode(answer) // the caller has gone if this fails
	})
	return http.NewCrossOriginProtection().Handler(mux)
}
