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

# Most tests wait, for a lease or a poll, and do not compute; but each on a server of
# its own, and two packages at once: with six tests at a time two cores are always
# busy, and what takes a millisecond took a second. What failed is told last: in the order of
# the packages it would stand above all that went well.
GOTESTSUM := gotest.tools/gotestsum@v1.13.0
PARALLEL = 3
GO_TEST = go run $(GOTESTSUM) --format=pkgname -- -shuffle=on -parallel $(PARALLEL) -timeout 20m

# Races are looked for in all that is ours. In ./rivals other people's libraries have
# their connections killed, and a race in one of them is no fault of this repository:
# rueidis v1.0.79, rarely, hands a command out again that its writer still reads. What
# is ours in it, but for the rows themselves, is raced by the tests of this module.
RACE = $(if $(filter ./rivals,$(1)),,-race)

# The clock of a server is set by a library that is compiled for it.
CHAOS = scripts/servers.sh >/dev/null && scripts/need.sh gcc 'gcc libc6-dev' && \
	REDLATCH_REQUIRE_SERVER=1 go test ./chaos -count=1 -v

.PHONY: help
help: ## say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

.PHONY: test
test: ## find or install redis-server, then run every test of every module, ours with the race detector
	scripts/servers.sh >/dev/null
	@export REDLATCH_REQUIRE_SERVER=1; \
	$(foreach module,$(MODULES),echo "== go test, module $(module)"; (cd $(module) && $(GO_TEST) $(call RACE,$(module)) ./...);)

# What differs between servers is neither a race nor found where no server is. Without
# the detector, which is what kept the cores busy, more tests wait at one time.
.PHONY: test-servers
test-servers: PARALLEL = 6
test-servers: ## run the tests on the oldest and the newest server too, fetched into .cache; without the race detector
	@servers=$$(scripts/servers.sh --others); \
	packages=$$(go list ./... | grep -v -e /simulation -e /mutants -e /watchdog -e /interop); \
	export REDLATCH_REQUIRE_SERVER=1; \
	failed=; \
	for server in $$servers; do \
		echo "== go test, server $$server"; \
		REDLATCH_REDIS_SERVER=$$server $(GO_TEST) -count=1 $$packages || failed+=" $$server"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed on$$failed"; exit 1; fi

# Of each test and primitive. In a schedule one goroutine waits for the other; on two
# processors each step wakes the other one up, which costs a fifth. So there are two processes
# with a processor each: semaphores cost as much as all the rest. (go test ./... plays
# with all the processors that there are, where more can happen in one instant.)
SCHEDULES := 2000
.PHONY: simulation
simulation: ## play 20,000 simulated schedules of each primitive, and 2,000 of all mutexes on one name, for which the race detector is too slow; SCHEDULES=10000 for five times as many
	@mkdir -p .cache
	go test -c -o .cache/simulation.test ./internal/simulation
	printf '%s\n' '-test.run /semaphore' '-test.skip /semaphore' | (cd internal/simulation && GOMAXPROCS=1 \
		xargs -L1 -P2 ../../.cache/simulation.test -test.v -test.timeout 40m -rapid.checks=$(SCHEDULES))

# Maven leaves the classes and the jars it fetched; what a build was interrupted in
# is not taken for whole.
DRIVER := interop/driver/target/built
$(DRIVER): interop/driver/pom.xml $(shell find interop/driver/src -name '*.java')
	scripts/need.sh javac default-jdk-headless openjdk
	scripts/need.sh mvn maven
	cd interop/driver && mvn --quiet --batch-mode -Dstyle.color=never clean compile
	touch $@

INTEROP := REDLATCH_REQUIRE_SERVER=1 REDLATCH_REQUIRE_INTEROP=1 go test -count=1 -parallel 6 -v ./interop

.PHONY: interop
interop: $(DRIVER) ## run the tests against the real Redisson, which Maven fetches
	scripts/servers.sh >/dev/null
	$(INTEROP)

.PHONY: dialogue
dialogue: $(DRIVER) ## write anew what Redisson sends, into interop/dialogue
	scripts/servers.sh >/dev/null
	$(INTEROP) -run TestRedissonSpeaksAsRecorded -update

.PHONY: chaos
chaos: ## hold the promises against a real server and real processes in trouble, just under an hour on a quiet machine
	$(CHAOS) -timeout 2h -scale=full -report=$(CURDIR)/chaos.md

.PHONY: chaos-short
chaos-short: ## the rows that measure no time, with a twenty-fifth of the counts, under five minutes
	$(CHAOS) -timeout 10m -scale=short

.PHONY: lint
lint: ## gofmt, go vet, staticcheck and luacheck over every module; installs luacheck where it can
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
	REDLATCH_REQUIRE_SERVER=1 go test -parallel 6 -timeout 20m -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -n 1

.PHONY: models
models: ## check the protocol's models with Spin, and that each finds the error when a guard is taken out
	models/run.sh

.PHONY: mutants
mutants: ## plant faults into the library, one at a time, and fail when no test notices one
	scripts/servers.sh >/dev/null
	REDLATCH_REQUIRE_SERVER=1 go run ./mutants

# Of each package. All of them are some 6,000, and take a day.
SAMPLE := 10
SEED := 1
.PHONY: mutants-generated
mutants-generated: ## plant generated faults into Go and Lua, SAMPLE=10 of each package, and fail when one is neither noticed nor listed
	scripts/servers.sh >/dev/null
	REDLATCH_REQUIRE_SERVER=1 go run ./mutants -generate -sample $(SAMPLE) -seed $(SEED)

# Where the JVM that measures Redisson finds it.
BENCH := export REDLATCH_REDIS_SERVER=$$(scripts/servers.sh) REDLATCH_REDISSON=$(CURDIR)/$(dir $(DRIVER)); scripts/servers.sh --etcd; cd benchmarks

.PHONY: bench
bench: $(DRIVER) ## measure redlatch beside the floor and its rivals, 20 minutes on a quiet machine; writes benchmarks/results and compares with the run before
	$(BENCH); mkdir -p results; \
	before=$$(ls results/*.txt 2>/dev/null | tail -n 1); \
	go run . -results results; \
	if [ -n "$$before" ]; then go tool benchstat "before=$$before" "now=$$(ls results/*.txt | tail -n 1)"; fi

.PHONY: bench-smoke
bench-smoke: $(DRIVER) ## measure everything for an instant, to see that it works
	$(BENCH); go run . -smoke

.PHONY: recipes
recipes: ## show what goes wrong with the locks that tutorials teach, and not with redlatch
	export REDLATCH_REDIS_SERVER=$$(scripts/servers.sh); cd benchmarks; go run ./recipes

.PHONY: rivals
rivals: ## redsync, redislock, rueidislock and redlatch under the same faults, as one table; takes ten minutes
	scripts/servers.sh >/dev/null
	cd rivals && REDLATCH_REQUIRE_SERVER=1 go test -count=1 -timeout 40m -v -run '^TestRivals$$' . -full | grep -v -e '^ *---' -e '^==='
