# Each target does everything that its help text says. CI runs the same targets:
# see .ci/run.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# Nobody debugs what is built here. Without the data for debuggers, go test -race -run '^$' costs an eighth less
# of a processor. Traces of panics and profiles do not need it.
export GOFLAGS := $(strip $(GOFLAGS) -gcflags=all=-dwarf=false -ldflags=-w)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
VALE := github.com/vale-cli/vale/v3/cmd/vale@v3.22.0

# This module and the nested modules, which have dependencies of their own. The search uses the file
# system, because git does not answer in a release archive, nor in a checkout that belongs to another
# user. No module may be left out silently.
FILES := find . -name '.?*' -prune -o -name
MODULES = $(shell $(FILES) go.mod -print | xargs -n1 dirname | sort)

# Most tests wait for a lease or a poll, and compute little. So at least three packages are compiled or tested at
# the same time. make lint runs go vet, so the tests do not. With GOGC=400, go test -run '^$' ./...
# costs a seventh less of a processor, and more memory. gotestsum prints the
# failures of a module last. In the order of the packages they would stand above everything that passed.
GOTESTSUM := gotest.tools/gotestsum@v1.13.0
PACKAGES = $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n > 3 ? n : 3)))
PARALLEL = 4
GO_TEST = env GOGC=400 go run $(GOTESTSUM) --format=pkgname -- -p $(PACKAGES) -shuffle=on -parallel $(PARALLEL) -timeout 20m -vet=off

# The suite compiles a library that sets the clock of a server.
CHAOS = scripts/servers.sh >/dev/null && scripts/need.sh gcc 'gcc libc6-dev' && \
	REDLATCH_REQUIRE_SERVER=1 go test ./verify/chaos -count=1 -v

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

.PHONY: test
test: ## find or install redis-server and Chromium, then run all tests of all modules; takes six to seven minutes on two processors with an empty build cache
	scripts/servers.sh >/dev/null
	scripts/browser.sh
	@# What all modules need comes first. Two modules at a time would each compile it.
	@GOGC=400 go build . ./internal/test/...; go run $(GOTESTSUM) --version >/dev/null
	@printf '%s\n' $(MODULES) | REDLATCH_REQUIRE_SERVER=1 REDLATCH_REQUIRE_BROWSER=1 scripts/two-folders.sh $(GO_TEST) ./...

# The race detector keeps the processors busy, so fewer tests run at the same time. These packages are left
# out, because no goroutines of the library run in their tests, or because only the goroutines of other
# libraries do (./verify/rivals, ./benchmarks). A new package is in.
NO_RACE := /(lua|lockerr|examples|benchmarks|verify/(mutants|interop|rivals|telemetry)|internal/test/(archtest|check|history|workload))(/|$$)
.PHONY: race
race: PACKAGES = 2
race: PARALLEL = 3
race: export REDLATCH_REQUIRE_SERVER = 1
race: ## run the tests of all packages with goroutines again, with the race detector; takes 16 minutes on two processors, beside other work
	scripts/servers.sh >/dev/null
	scripts/need.sh gcc 'gcc libc6-dev'
	@# This module keeps both processors busy. Those of the others wait.
	@for modules in . "$(filter-out .,$(MODULES))"; do \
		printf '%s\n' $$modules | scripts/two-folders.sh bash -euo pipefail -c \
			'packages=$$(go list ./... | { grep -vE "$(NO_RACE)" || true; }); [ -z "$$packages" ] || "$$@" $$packages' _ $(GO_TEST) -race; \
	done

.PHONY: verify
verify: export REDLATCH_FULL = 1
verify: test ## run all tests of all modules, with all rounds of long tests, as CI does

# Tests of packages that start no server find no differences between servers. Package stage starts servers
# for its callers, so all tests that import it count. Tests wait more than they compute, so the servers are
# tested at the same time.
SERVER_TEST := redistest\.(Start|Shared|Each)|/internal/test/stage"
.PHONY: test-servers
test-servers: PACKAGES = 2
test-servers: PARALLEL = 3
test-servers: ## run the tests on the oldest and the newest server too, which it fetches into .cache
	@servers=$$(scripts/servers.sh --others); \
	packages=$$(for dir in $$(go list -f '{{.Dir}}' ./... | grep -v /interop); do \
		if grep -qsE '$(SERVER_TEST)' "$$dir"/*_test.go; then echo "$$dir"; fi; done); \
	export REDLATCH_REQUIRE_SERVER=1 REDLATCH_REAL_ONLY=1; \
	declare -A logs tests; \
	for server in $$servers; do \
		logs[$$server]=$$(mktemp); \
		REDLATCH_REDIS_SERVER=$$server $(GO_TEST) -count=1 $$packages >$${logs[$$server]} 2>&1 & tests[$$server]=$$!; \
	done; \
	failed=; \
	for server in $$servers; do \
		wait $${tests[$$server]} || failed+=" $$server"; \
		echo "== go test, server $$server"; \
		cat $${logs[$$server]}; rm $${logs[$$server]}; \
	done; \
	if [ -n "$$failed" ]; then echo "failed on$$failed"; exit 1; fi

# The tests of clusters, replicas and sentinels that are in make test too.
TOPOLOGIES := Cluster|Failover|Migrat|Master|Replica|AConnectionToA|Slot
TOPOLOGY_PACKAGES := . ./event ./fair ./lock ./lua ./reentrant ./semaphore
# The tests that make test does not build. They are in the root package.
TAGGED = $$(sed -n 's/^func \(Test[A-Za-z]*\)(.*/^\1$$|/p' $$(grep -l '^//go:build topologies' *_test.go) | tr -d '\n' | sed 's/|$$//')
TEST_TOPOLOGIES = REDLATCH_REQUIRE_SERVER=1 go test -count=1 -parallel 6 -timeout 20m -tags topologies

.PHONY: test-topologies
test-topologies: ## run the tests with clusters, replicas and sentinels, and the whole suite on three masters and behind three sentinels; takes seven minutes
	scripts/servers.sh >/dev/null
	$(TEST_TOPOLOGIES) -run "$(TOPOLOGIES)|$(TAGGED)" $(TOPOLOGY_PACKAGES)

.PHONY: test-topologies-short
test-topologies-short: ## run the tests of test-topologies that are not in make test, with smaller numbers; takes about a minute
	scripts/servers.sh >/dev/null
	$(TEST_TOPOLOGIES) -short -run "$(TAGGED)" .

# The number is for each test and primitive. In a schedule, one goroutine waits for the other. On two
# processors each step wakes up the other processor, which costs a fifth. So there are two processes
# with one processor each. Semaphores have one process, because they cost as much as all the rest.
# (go test ./... uses all processors, so more can happen at the same instant.)
SCHEDULES := 2000
.PHONY: simulation
simulation: ## run 26,000 simulated schedules of each primitive, and 2,000 of all mutexes on one name, without the race detector, which is too slow for that; SCHEDULES=10000 for five times as many
	@mkdir -p .cache
	go test -c -o .cache/simulation.test ./internal/test/simulation
	printf '%s\n' '-test.run /semaphore' '-test.skip /semaphore' | (cd internal/test/simulation && GOMAXPROCS=1 \
		xargs -L1 -P2 ../../../.cache/simulation.test -test.v -test.timeout 80m -rapid.checks=$(SCHEDULES))

# Maven keeps the classes and the jars that it fetched. The file below marks a complete build, so make
# repeats a build that was interrupted.
DRIVER := verify/interop/driver/target/built
$(DRIVER): verify/interop/driver/pom.xml $(shell find verify/interop/driver/src -name '*.java')
	scripts/need.sh javac default-jdk-headless openjdk
	scripts/need.sh mvn maven
	cd verify/interop/driver && mvn --quiet --batch-mode -Dstyle.color=never clean compile
	touch $@

INTEROP := REDLATCH_REQUIRE_SERVER=1 REDLATCH_REQUIRE_INTEROP=1 go test -count=1 -parallel 6 -v ./verify/interop

.PHONY: interop
interop: $(DRIVER) ## run the tests against the real Redisson, which Maven fetches
	scripts/servers.sh >/dev/null
	$(INTEROP)

.PHONY: dialogue
dialogue: $(DRIVER) ## record again what Redisson sends, into verify/interop/dialogue
	scripts/servers.sh >/dev/null
	$(INTEROP) -run TestRedissonSpeaksAsRecorded -update

.PHONY: chaos
chaos: chaos-full chaos-times ## run the whole fault suite with a real server and real processes, first what measures no time

.PHONY: chaos-full
chaos-full: ## run the rows that measure no time; takes 75 minutes on two processors, beside other work
	$(CHAOS) -timeout 2h -scale=full -report=$(CURDIR)/chaos.md

.PHONY: chaos-times
chaos-times: ## run the rows that measure time, one by one, which need a quiet machine; takes 41 minutes
	$(CHAOS) -timeout 2h -scale=times -report=$(CURDIR)/chaos-times.md

.PHONY: chaos-short
chaos-short: ## run the rows that measure no time, with a twenty-fifth of the counts; takes six minutes on two processors
	$(CHAOS) -timeout 10m -scale=short

.PHONY: lint
lint: export GOGC = 400
lint: ## run gofmt, go vet, staticcheck and luacheck on every module, and vale on the docs; installs luacheck where it can
	@unformatted=$$($(FILES) '*.go' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not as gofmt writes it:"; echo "$$unformatted"; exit 1; fi
	@# This module compiles what the others need too.
	@for modules in . "$(filter-out .,$(MODULES))"; do \
		printf '%s\n' $$modules | scripts/two-folders.sh bash -euo pipefail -c \
			'echo "== go vet and staticcheck"; go vet ./...; go run $(STATICCHECK) ./...' _; \
	done
	@go vet -tags topologies .
	@scripts/lint-lua.sh
	@echo "== vale, prose"; scripts/need.sh gcc 'gcc libc6-dev'; go run $(VALE) --output=line README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md CODE_OF_CONDUCT.md docs

.PHONY: cover
cover: ## measure the coverage of all packages by all tests, write coverage.out, and print the total
	scripts/servers.sh >/dev/null
	REDLATCH_REQUIRE_SERVER=1 go test -parallel 4 -timeout 20m -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -n 1

.PHONY: models
models: ## check the models of the protocol with Spin, and check that each model finds the error when a guard is removed
	verify/models/run.sh

.PHONY: mutants
mutants: ## put faults into the library, one at a time, and fail if no test notices one of them
	scripts/servers.sh >/dev/null
	REDLATCH_REQUIRE_SERVER=1 go run ./verify/mutants

# The number is for each package. All generated faults are about 9,000, and take more than a day.
SAMPLE := 10
SEED := 1
.PHONY: mutants-generated
mutants-generated: ## put generated faults into Go and Lua, SAMPLE=10 in each package, and fail if one is neither noticed nor listed
	scripts/servers.sh >/dev/null
	REDLATCH_REQUIRE_SERVER=1 go run ./verify/mutants -generate -sample $(SAMPLE) -seed $(SEED)

# The JVM that measures Redisson finds it in REDLATCH_REDISSON.
BENCH := export REDLATCH_REDIS_SERVER=$$(scripts/servers.sh) REDLATCH_REDISSON=$(CURDIR)/$(dir $(DRIVER)); scripts/servers.sh --etcd; cd benchmarks

.PHONY: bench
bench: $(DRIVER) ## compare redlatch with bare Redis commands and with other libraries; writes benchmarks/results and compares with the last run; takes 20 minutes on a quiet machine
	$(BENCH); mkdir -p results; \
	before=$$(find results -name '*.txt' | sort | tail -n 1); \
	go run . -results results; \
	if [ -n "$$before" ]; then go tool benchstat "before=$$before" "now=$$(find results -name '*.txt' | sort | tail -n 1)"; fi

.PHONY: bench-smoke
bench-smoke: $(DRIVER) ## run every benchmark for an instant, to see that it works
	$(BENCH); go run . -smoke; go run ./scale -smoke

.PHONY: scale
scale: ## measure what each operation costs, and write the tables of docs/scale.md and benchmarks/results; takes under five minutes on a quiet machine
	export REDLATCH_REDIS_SERVER=$$(scripts/servers.sh); cd benchmarks; go run ./scale

.PHONY: recipes
recipes: ## show what goes wrong with the locks of tutorials, and does not go wrong with redlatch
	export REDLATCH_REDIS_SERVER=$$(scripts/servers.sh); cd benchmarks; go run ./recipes

.PHONY: rivals
rivals: ## run redsync, redislock, rueidislock and redlatch under the same faults, and print one table; takes ten minutes
	scripts/servers.sh >/dev/null
	cd verify/rivals && REDLATCH_REQUIRE_SERVER=1 go test -count=1 -timeout 40m -v -run '^TestRivals$$' . -full | grep -v -e '^ *---' -e '^==='

.PHONY: cast
cast: ## record examples/longjob and redlatch top again, into the pictures of the README and docs/command-line.md
	go run ./examples/internal/cast -o examples/longjob/longjob.svg go run ./examples/longjob
	export REDLATCH_REDIS_SERVER=$$(scripts/servers.sh); cd cmd/redlatch; go run ./internal/cast -o ../../docs/images/top.svg

VERSION := v0.1.0
.PHONY: rehearse-release
rehearse-release: ## tag a copy of the last commit as VERSION=v0.1.0, and use it as a new program would; publishes nothing
	scripts/rehearse-release.sh $(VERSION)
