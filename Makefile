# Every target does the whole of what its line says, and CI runs these very
# targets: see .ci/run.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# This module and those nested in it, which have dependencies of their own. Asked
# of the file system: git does not answer in a release archive, nor in a checkout
# that belongs to another user, and modules must not be left out in silence.
FILES := find . -name '.?*' -prune -o -name
MODULES = $(shell $(FILES) go.mod -print | xargs -n1 dirname | sort)

# Most tests wait, for a lease or a poll, and do not compute: more of them at once
# than there are cores is what they need.
GO_TEST := go test -race -shuffle=on -parallel 6

.PHONY: help
help: ## say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

.PHONY: test
test: ## find or install redis-server, then run every test of every module and leave nothing out
	scripts/servers.sh >/dev/null
	@export REDLATCH_REQUIRE_SERVER=1; \
	for module in $(MODULES); do \
		echo "== go test, module $$module"; \
		(cd $$module && $(GO_TEST) ./...); \
	done

.PHONY: test-servers
test-servers: ## run the tests on the oldest, the usual and the newest server, fetched into .cache
	@servers=$$(scripts/servers.sh --all); \
	export REDLATCH_REQUIRE_SERVER=1; \
	failed=; \
	for server in $$servers; do \
		echo "== go test, server $$server"; \
		REDLATCH_REDIS_SERVER=$$server $(GO_TEST) -count=1 ./... || failed+=" $$server"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed on$$failed"; exit 1; fi

.PHONY: lint
lint: ## gofmt, go vet, staticcheck and luacheck over every module
	@unformatted=$$($(FILES) '*.go' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not as gofmt writes it:"; echo "$$unformatted"; exit 1; fi
	@for module in $(MODULES); do \
		echo "== go vet and staticcheck, module $$module"; \
		(cd $$module && go vet ./... && go run $(STATICCHECK) ./...); \
	done
	@scripts/lint-lua.sh

.PHONY: cover
cover: ## write coverage.out, each package covered by the tests of all, and print the sum
	scripts/servers.sh >/dev/null
	REDLATCH_REQUIRE_SERVER=1 go test -parallel 6 -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -n 1
