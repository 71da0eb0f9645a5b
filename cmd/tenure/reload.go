package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

// reloadPoll is how often the configuration is read to see whether it has changed:
// orchestrators replace files without telling anybody.
const reloadPoll = 5 * time.Second

// longestAgain is how long at most a configuration that was refused is left alone: why it
// was, such as a tenant's jobs in a pool that is to go, may be over on this node later than
// on others, and the nodes should not stay apart because of it.
const longestAgain = time.Minute

// reloadLimit bounds one reload.
const reloadLimit = 30 * time.Second

// reloader puts a changed configuration into force: on SIGHUP, on POST /-/reload, and
// when it finds the file changed. A file with faults changes nothing; one that was refused
// is tried again now and then.
type reloader struct {
	load func() (config.Config, error)
	node *tenure.Node
	log  *zap.Logger

	mu    sync.Mutex
	known config.Config // guarded by mu; what was put into force, or refused, last
	said  string        // guarded by mu; the fault that was logged last
	again time.Duration // guarded by mu; the last wait before known is tried once more; 0: it is in force
	next  time.Time     // guarded by mu; when it is
}

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	poll := time.NewTicker(reloadPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			_, _ = r.reload(ctx, true) // it logs what is wrong
		case <-poll.C:
			_, _ = r.reload(ctx, false)
		}
	}
}

// reload reads the configuration and puts it into force if it has changed, or in any
// case when asked to.
func (r *reloader) reload(ctx context.Context, asked bool) (tenure.Reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg, err := r.load()
	if err != nil {
		return tenure.Reloaded{}, r.refuse(err, asked)
	}
	changed := !reflect.DeepEqual(cfg, r.known)
	if !asked && !changed && (r.again == 0 || time.Now().Before(r.next)) {
		return tenure.Reloaded{}, nil
	}
	if changed {
		r.known, r.again = cfg, 0
	}
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	done, err := r.node.Reload(ctx, cfg)
	if err != nil {
		r.again = min(max(2*r.again, reloadPoll), longestAgain)
		r.next = time.Now().Add(r.again)
		return done, r.refuse(err, asked || changed)
	}
	r.said, r.again = "", 0
	r.log.Info("configuration reloaded")
	return done, nil
}

// refuse logs what is wrong, unless it is known already and this is no news.
func (r *reloader) refuse(err error, news bool) error {
	if text := err.Error(); news || text != r.said {
		r.said = text
		r.log.Error("configuration is not reloaded; the one in force stays, and it is tried again", zap.Error(err))
	}
	return err
}

// handler serves POST /-/reload beside what the node serves.
func (r *reloader) handler(node http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", node)
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, req *http.Request) {
		done, err := r.reload(req.Context(), true)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		answer := reloadAnswer{Added: done.Added, Removed: done.Removed, Later: done.Later}
		if err != nil {
			answer.Error = err.Error()
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_ = json.NewEncoder(w).Encode(answer) // the caller has gone if this fails
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

type reloadAnswer struct {
	Added   []string `json:"pools_added,omitempty"`
	Removed []string `json:"pools_removed,omitempty"`
	Later   []string `json:"after_restart,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func newReload(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make the node on this machine read its configuration again, now",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if cfg.Node.Address() == "" {
				return usagef("node.listen is off, so the node cannot be asked: send SIGHUP to its process")
			}
			answer, err := askReload(cmd.Context(), cfg.Node.Address())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, answer.summary())
			return err
		},
	}
}

func askReload(ctx context.Context, address string) (reloadAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, reloadLimit+time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/-/reload", nil)
	if err != nil {
		return reloadAnswer{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reloadAnswer{}, &advised{fmt.Errorf("ask the node at %s: %w", address, err), "is it running here? it reads a changed file by itself within seconds"}
	}
	defer resp.Body.Close()
	var answer reloadAnswer
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 1<<20)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("the node at %s answered %s, and nothing that can be read: %w", address, resp.Status, err)
	}
	if answer.Error != "" {
		return answer, &configError{errors.New(answer.Error)}
	}
	return answer, nil
}

func (r reloadAnswer) summary() string {
	var parts []string
	if len(r.Added) > 0 {
		parts = append(parts, "pools added: "+strings.Join(r.Added, ", "))
	}
	if len(r.Removed) > 0 {
		parts = append(parts, "pools left: "+strings.Join(r.Removed, ", "))
	}
	if len(parts) == 0 {
		parts = append(parts, "pools unchanged")
	}
	if len(r.Later) > 0 {
		parts = append(parts, "after a restart: "+strings.Join(r.Later, ", "))
	}
	return strings.Join(parts, "; ")
}
