# Every target says after ## what it does; `make` alone lists them.
GO ?= go

.PHONY: help demo test build lint race bench mutants fuzz sim notices deps

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: deps ## Run a cluster here, kill a node, prove that nothing was lost (ARGS="--stay")
	@$(GO) run ./cmd/tenure demo $(ARGS)

test: deps ## Run every test on a throwaway Postgres
	$(GO) test ./...

build: ## Compile the tenure command into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/tenure ./cmd/tenure

lint: ## Check formatting, vet, module tidiness, staticcheck and third-party notices
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "gofmt -w these files"; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) run ./internal/notices -check

race: deps ## Run every test under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m ./...

bench: deps ## Run every benchmark once, and a small drain and replay
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...
	$(GO) run ./loadtest drain --jobs 100000 --json

mutants: deps ## Break each promise on purpose and see its test fail (SINCE=COMMIT)
	$(GO) run ./internal/mutants $(if $(SINCE),-since $(SINCE))

fuzz: ## Fuzz every decoder for a while (FUZZTIME=30s)
	@for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),30s) $$pkg || exit 1; \
	  done; done

sim: deps ## Simulate clusters and what befalls them, for a while (SIMTIME=10m)
	$(GO) test ./internal/sim -run TestSimulation -v -timeout 0 -seed $$(date +%s) -seeds 1000000 -hours 3 -within $(or $(SIMTIME),10m)

notices: ## Write THIRD_PARTY_NOTICES.md anew, from the modules that users inherit
	$(GO) run ./internal/notices

# Postgres' binaries are all that is needed beside Go; its service is not used.
deps:
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 \
	   || [ -n "$$TENURE_PG_BIN" ] || [ -n "$$TEST_DATABASE_URL" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing PostgreSQL, for its binaries"; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends postgresql; \
	fi >&2
