package tenure_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// startMailing starts a node that mails invoices, and logs by log/slog what is wrong.
func startMailing(cfg config.Config) (mailing *Invoices, jobs *tenure.Client, stop func()) {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	mailing = &Invoices{mailed: make(chan int64, 1)}
	registry := job.NewRegistry()
	mailing.Register(registry)
	node, err := tenure.New(cfg, registry, tenure.WithSlog(log))
	check(err)
	check(node.Start(context.Background()))
	return mailing, node.Client(), func() { check(node.Stop(context.Background())) }
}

// A web request of a tenant that adds an invoice, and the job that is to follow, in one transaction.
func Example_netHTTP() {
	cfg, stop := exampleConfig()
	defer stop()
	mailing, jobs, stopNode := startMailing(cfg)
	defer stopNode()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /{tenant}/invoices", func(w http.ResponseWriter, r *http.Request) {
		ctx := tenancy.For(r.Context(), tenancy.ID(r.PathValue("tenant")))
		err := jobs.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO invoice (id) VALUES (7)"); err != nil {
				return err
			}
			_, err := jobs.EnqueueTx(ctx, tx, MailInvoice{7})
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	answer, err := http.Post(server.URL+"/acme/invoices", "", nil)
	check(err)
	check(answer.Body.Close())
	fmt.Println(answer.Status)
	<-mailing.mailed
	// Unordered output:
	// 201 Created
	// mail invoice 7 of acme
}

// A program that uses database/sql: the job is added in its own transaction.
func Example_databaseSQL() {
	cfg, stop := exampleConfig()
	defer stop()
	mailing, jobs, stopNode := startMailing(cfg)
	defer stopNode()

	db, err := sql.Open("pgx", cfg.Pools["main"].DSN)
	check(err)
	defer db.Close()
	ctx := tenancy.For(context.Background(), "acme")
	tx, err := db.BeginTx(ctx, nil)
	check(err)
	_, err = tx.ExecContext(ctx, "INSERT INTO acme.invoice (id) VALUES (8)")
	check(err)
	_, err = jobs.EnqueueSQLTx(ctx, tx, MailInvoice{8})
	check(err)
	check(tx.Commit())
	<-mailing.mailed
	// Output: mail invoice 8 of acme
}

// A trigger that adds a job for each invoice, by whom and in whichever language that is added.
func Example_trigger() {
	cfg, stop := exampleConfig()
	defer stop()
	mailing, _, stopNode := startMailing(cfg)
	defer stopNode()

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, cfg.Pools["main"].DSN)
	check(err)
	_, err = conn.Exec(ctx, `
		CREATE FUNCTION acme.mail_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM tenure.enqueue(tenant => 'acme', kind => 'invoice.mail', payload => jsonb_build_object('invoice', NEW.id));
			RETURN NULL;
		END $$;
		CREATE TRIGGER mail_invoice AFTER INSERT ON acme.invoice FOR EACH ROW EXECUTE FUNCTION acme.mail_invoice();
		INSERT INTO acme.invoice (id) VALUES (9)`)
	check(err)
	check(conn.Close(ctx))
	<-mailing.mailed
	// Output: mail invoice 9 of acme
}
