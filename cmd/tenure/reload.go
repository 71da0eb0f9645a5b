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

// reloadLimit bounds one reload.
const reloadLimit = 30 * time.Second

// reloader puts a changed configuration into force: on SIGHUP, on POST /-/reload, and
// when it finds the file changed. A file with faults changes nothing.
type reloader struct {
	load func() (config.Config, error)
	node *tenure.Node
	log  *zap.Logger

	mu    sync.Mutex
	known config.Config // guarded by mu; what was put into force, or refused, last
	said  string        // guarded by mu; the fault that was logged last
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
	if !asked && reflect.DeepEqual(cfg, r.known) {
		return tenure.Reloaded{}, nil
	}
	r.known = cfg // also if it is refused: it is tried again when it changes, or when somebody asks
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	done, err := r.node.Reload(ctx, cfg)
	if err != nil {
		return done, r.refuse(err, true)
	}
	r.said = ""
	r.log.Info("configuration reloaded")
	return done, nil
}

// refuse logs what is wrong, once unless somebody asked.
func (r *reloader) refuse(err error, asked bool) error {
	if text := err.Error(); asked || text != r.said {
		r.said = text
		r.log.Error("configuration is not reloaded; the one in force stays", zap.Error(err))
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
