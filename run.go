package tenure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// Run starts the node, waits until ctx ends, and stops it; nil means that nothing is left
// claimed. Meanwhile it serves [Node.Handler], and what [WithHandler] adds, on node.listen, if
// that is set, or by default with WithHandler: the metrics, and the reload, to programs on this machine and to tokens that reach all
// tenants and pools. And, of
// a configuration that [config.Load] read, puts the pools and tenants of the changed file
// into force: on SIGHUP, on POST /-/reload, and when it finds the file changed, which it
// looks for every five seconds. So SIGHUP does not end the process while Run runs: one that
// comes during the start is heeded after it, one that comes during the stop is not. Programs
// that want to serve, or to be signalled, in their own way use Start and Stop. The node of
// an Fx application is run by that, and Run refuses it.
func (n *Node) Run(ctx context.Context) error {
	if n.app == nil {
		return errOfFx
	}
	file := n.configFile()
	defer file.catchHangups()() // after the stop
	address := n.cfg.Node.Address()
	if n.cfg.Node.Listen == "" && n.beside == nil {
		address = "" // a program of which several may run on a host was not asked to serve
	}
	web, err := admin.Listen(address, n.cfg.Node.TLSCert, n.cfg.Node.TLSKey)
	if err != nil {
		return err
	}
	defer web.Stop() // after the node, so that probes see it stop
	running, stopping := context.WithCancelCause(ctx)
	defer stopping(errStopping)
	web.Serve(running, n.forCallers(file.serveReload(running, n.withBeside())), n.log)
	n.log.Info("starting", zap.String("version", n.cluster.Self().Version), zap.Int64("ledger", operate.LedgerVersion()), zap.String("node", n.cfg.Node.Name),
		zap.Strings("pools", slices.Sorted(maps.Keys(n.cfg.Pools))), zap.Strings("kinds", n.client.proc.Registry.Kinds()), zap.String("address", web.Address()))
	// A start that is cut short could not undo itself: ctx is heeded right after it.
	own := context.WithoutCancel(ctx)
	startCtx, cancel := context.WithTimeout(own, startTimeout)
	err = n.Start(startCtx)
	cancel()
	if err == nil {
		n.log.Info("started")
		if n.started != nil {
			n.started()
		}
		err = file.watchFile(ctx, web.Failed())
		stopping(errStopping) // the stop waits for no reload
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

// withBeside is what the node serves, and what the program serves beside it.
func (n *Node) withBeside() http.Handler {
	mux := http.NewServeMux()
	own := n.Handler()
	mux.Handle("/healthz", own) // for orchestrators, which have no token
	mux.Handle("/readyz", own)
	mux.Handle("/metrics", n.protect(access.Read, own))
	mux.Handle("GET /-/jobs/{id}/stack", n.guard.Require(access.Operate, http.HandlerFunc(n.showStack)))
	if n.beside != nil {
		beside := n.beside(n)
		if told, ok := beside.(interface{ Reloaded(config.Config) error }); ok {
			n.onReload = append(n.onReload, told.Reloaded)
		}
		mux.Handle("/", beside)
	}
	return mux
}

// showStack answers with where the handler is of a job that runs here.
func (n *Node) showStack(w http.ResponseWriter, req *http.Request) {
	id, err := job.ParseID(req.PathValue("id"))
	stack, running := n.workers.Stack(id)
	if err != nil || !running {
		admin.Answer(w, http.StatusNotFound, map[string]string{"error": "no handler of this job runs on this node"})
		return
	}
	admin.Answer(w, http.StatusOK, map[string]string{"stack": stack})
}

// protect keeps what is the node's own from strangers, unless the configuration lets in anybody.
func (n *Node) protect(role access.Role, next http.Handler) http.Handler {
	if n.cfg.Node.InsecureListen {
		return next
	}
	return n.guard.Require(role, next)
}

// forCallers answers those who may reach this node at all: by a name that it has, and through a
// proxy where others could read what they send. The health is told to all.
func (n *Node) forCallers(next http.Handler) http.Handler {
	handler := next
	if n.cfg.Node.OnlyProxies() {
		proxied := n.guard.ThroughProxies(next)
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
				next.ServeHTTP(w, r)
				return
			}
			proxied.ServeHTTP(w, r)
		})
	}
	if !n.cfg.Node.AnyHost() {
		handler = access.ForHosts(handler, n.cfg.Node.AllowedHosts)
	}
	return access.Problems(handler)
}

// How a changed configuration file is found and put into force.
const (
	filePoll    = 5 * time.Second  // orchestrators replace files without telling anybody
	reloadLimit = 30 * time.Second // of one reload
)

// reloadRetry says when a configuration that was refused is tried again: why it was, such as
// a tenant's jobs in a pool that is to go, may be over on this node later than on others,
// and the nodes should not stay apart because of it.
var reloadRetry = backoff.Policy{First: filePoll, Longest: time.Minute}

// configFile is the file that a node was configured with. A file with faults changes
// nothing; one that was refused is tried again now and then.
type configFile struct {
	path string // "": the configuration was made by the program
	node *Node
	log  *zap.Logger

	hangup chan os.Signal // of size one; nil: SIGHUP is not caught

	lock  reloadLock    // held during a reload
	known config.Config // guarded by lock; what was put into force, or refused, last
	said  string        // guarded by lock; the fault that was logged last
	tries int           // guarded by lock; of known in a row that were refused; 0: it is in force
	next  time.Time     // guarded by lock; when it is
}

func (n *Node) configFile() *configFile {
	return &configFile{path: n.cfg.File, node: n, log: n.log, lock: newReloadLock(), known: n.cfg}
}

// errStopping ends a reload that the stop would have to wait for.
var errStopping = errors.New("the node is stopping")

// catchHangups has SIGHUP ask for a reload, rather than end the process, until the returned
// function is called.
func (f *configFile) catchHangups() (stop func()) {
	if f.path == "" {
		return func() {}
	}
	f.hangup = make(chan os.Signal, 1)
	signal.Notify(f.hangup, syscall.SIGHUP)
	return func() { signal.Stop(f.hangup) }
}

// watchFile reloads until ctx ends or failed says why the node must end.
func (f *configFile) watchFile(ctx context.Context, failed <-chan error) error {
	var poll <-chan time.Time
	if f.path != "" {
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
		case <-f.hangup:
			_, _ = f.reloadFile(ctx, true) // it logs what is wrong
		case <-poll:
			_, _ = f.reloadFile(ctx, false)
		}
	}
}

// reloadFile reads the file and puts it into force if it has changed, or in any case when
// asked to.
func (f *configFile) reloadFile(ctx context.Context, asked bool) (Reloaded, error) {
	if err := f.lock.lock(ctx); err != nil {
		return Reloaded{}, err
	}
	defer f.lock.unlock()
	if f.path == "" {
		return Reloaded{}, errors.New("this node's program made its configuration itself, without a file: call Node.Reload in it")
	}
	cfg, err := config.Load(f.path)
	if err != nil {
		return Reloaded{}, f.logRefusal(err, asked)
	}
	changed := !reflect.DeepEqual(cfg, f.known)
	if !asked && !changed && (f.tries == 0 || time.Now().Before(f.next)) {
		if f.tries == 0 { // what could not be read has been mended
			f.noteAccepted()
		}
		return Reloaded{}, nil
	}
	if changed {
		f.known, f.tries = cfg, 0
	}
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	done, err := f.node.Reload(ctx, cfg)
	if err != nil {
		f.tries++
		f.next = time.Now().Add(reloadRetry.Exactly(f.tries))
		return done, f.logRefusal(err, asked || changed)
	}
	f.noteAccepted()
	f.log.Info("configuration reloaded")
	if len(done.Unknown) > 0 {
		f.log.Warn("no routing rule knows tenants of schedules, which add no jobs for them", zap.Any("tenants", done.Unknown))
	}
	return done, nil
}

// noteAccepted notes that what the file says is in force.
func (f *configFile) noteAccepted() {
	f.said, f.tries = "", 0
	f.node.refused.Set(0)
}

// logRefusal logs what is wrong, unless it is known already and this is no news.
func (f *configFile) logRefusal(err error, news bool) error {
	f.node.refused.Set(1)
	if text := err.Error(); news || text != f.said {
		f.said = text
		if errors.Is(err, errPartly) {
			f.log.Error("configuration is reloaded but for a part, which is tried again", zap.Error(err))
			return err
		}
		f.log.Error("configuration is not reloaded; the one in force stays, and it is tried again. Do not restart a node with this file: a start does not ask what jobs a change leaves behind", zap.Error(err))
	}
	return err
}

// serveReload serves POST /-/reload, until running ends, beside what the node serves.
func (f *configFile) serveReload(running context.Context, node http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", node)
	mux.Handle("POST /-/reload", f.node.protect(access.Admin, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithCancelCause(req.Context())
		defer cancel(nil)
		defer context.AfterFunc(running, func() { cancel(errStopping) })()
		done, err := f.reloadFile(ctx, true)
		answer := struct {
			Reloaded
			Error string `json:"error,omitempty"`
		}{Reloaded: done}
		status := http.StatusOK
		if err != nil {
			status, answer.Error = refusal(err), err.Error()
		}
		admin.Answer(w, status, answer)
	})))
	return http.NewCrossOriginProtection().Handler(mux)
}

// refusal is the HTTP status for a reload that failed.
func refusal(err error) int {
	switch {
	case errors.Is(err, errNotStarted), errors.Is(err, errStopping):
		return http.StatusServiceUnavailable
	case errors.Is(err, errPartly):
		return http.StatusInternalServerError
	default:
		return http.StatusUnprocessableEntity
	}
}
