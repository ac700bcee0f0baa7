# Every target sets up its own virtual environment first. ARGS="..." goes to the command of a target.

PYTHON ?= $$(sh packaging/python.sh)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# All that `make run` needs; the tests' kit comes with the first target that needs it.
BUILDS := $(VENV)/.builds
# The package as pip installs it: its hot path compiled, where there is a C compiler. Everything that
# starts a broker by itself takes it from there; `make test` runs the sources as they are.
BUILT := .built
SERVED := $(BUILT)/.ready
# In place of the shell, which would not hand on the signal that ends make.
FROM_BUILT := exec env PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/$(BUILT):$(CURDIR)"
SERVES := import sys; sys.version_info < (3, 11) and sys.exit("Ottla needs Python 3.11: make ... PYTHON=python3.11")
# An environment keeps the Python that it was made of.
ifneq ($(if $(filter file,$(origin PYTHON)),,$(wildcard $(BIN)/python)),)
WHICH := -c 'import sys; print(sys.base_prefix, sys.version)'
ASKED := $(shell $(PYTHON) $(WHICH))
ifeq ($(ASKED),)
$(error $(PYTHON) does not run here)
endif
ifneq ($(ASKED),$(shell $(BIN)/python $(WHICH)))
$(error $(VENV) was made of another Python than $(PYTHON): rm -r $(VENV) first)
endif
endif
# How the crash sweep of `make crash` goes; CI takes fewer seeds.
SWEEP ?= --nested

.DEFAULT_GOAL := help
.PHONY: help run test compiled check conformance suite groups transactions files crash model text golden traces differences carried quotas bench

$(BUILDS): pyproject.toml
	@echo "Setting up $(VENV): half a minute, once."
	@test -x $(BIN)/python || { python="$(PYTHON)" && $$python -c '$(SERVES)' && $$python -m venv $(VENV); }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -c '$(SERVES)' || { echo "rm -r $(VENV) first" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --editable '.[build]'
	@$(BIN)/python -m compileall -q ottla
	@touch $@

$(READY): $(BUILDS)
	@echo "Installing what the tests need: half a minute, once."
	@$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

# Built beside and then put in place: a broker may be running from the last one. A source that is not
# compiled where it could be is an error here, and not one for who installs the package.
$(SERVED): $(BUILDS) hatch_build.py $(shell find ottla -name '*.py' -o -type d ! -name __pycache__)
	@rm -rf $(BUILT).new $(BUILT).old
	@compile=$${OTTLA_COMPILE:-$$($(BIN)/python packaging/compiler.py)} && export OTTLA_COMPILE=$$compile && \
		{ test $$compile = no || echo "Compiling what every request runs through: a minute, and again when a source has changed."; } && \
		$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target $(BUILT).new .
	@$(BIN)/python -m compileall -q $(BUILT).new
	@if test -e $(BUILT); then mv $(BUILT) $(BUILT).old; fi && mv $(BUILT).new $(BUILT)
	@rm -rf $(BUILT).old
	@$(FROM_BUILT) $(BIN)/python -m ottla --version
	@touch $@

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(SERVED) ## start a broker on localhost:9092, data in ./ottla-data
	$(FROM_BUILT) $(BIN)/ottla serve $(ARGS)

test: $(READY) ## run the tests
	$(BIN)/python -m pytest $(ARGS)

compiled: $(SERVED) $(READY) ## run the tests on the compiled package
	@$(FROM_BUILT) $(BIN)/python -m ottla --version | grep -q compiled || { echo "$(BUILT) is not compiled: rm -r $(BUILT)" >&2; exit 1; }
	$(FROM_BUILT) $(BIN)/python -m pytest $(ARGS)

check: $(READY) ## format, lint, types, import contracts and the rules of the house
	$(BIN)/ruff format --check ottla tests hatch_build.py
	$(BIN)/ruff check ottla tests hatch_build.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house $(ARGS)

conformance: $(SERVED) $(READY) ## unmodified clients of five languages, Apache Kafka's own tools, Kafka Streams, Kafka Connect
	$(FROM_BUILT) $(BIN)/python -m tests.conformance $(ARGS)

suite: $(SERVED) $(READY) ## kafka-python's own integration tests, against Apache Kafka and against Ottla
	$(FROM_BUILT) $(BIN)/python -m tests.conformance.kafka_python_suite $(ARGS)

groups: $(SERVED) $(READY) ## 1,000 seeds of members that pause, crash and come back, of each group protocol
	$(FROM_BUILT) $(BIN)/python -m tests.coordinator.simulation $(ARGS)
	$(FROM_BUILT) $(BIN)/python -m tests.coordinator.consumer_simulation $(ARGS)
	$(FROM_BUILT) $(BIN)/python -m tests.coordinator.mixed_simulation $(ARGS)

transactions: $(SERVED) $(READY) ## 1,000 seeds of producers with faults, and a loss of power at each call to the disk
	$(FROM_BUILT) $(BIN)/python -m tests.transactions.simulation --seeds 1000 $(ARGS)
	$(FROM_BUILT) $(BIN)/python -m tests.transactions.crashes

files: $(SERVED) $(READY) ## directories of Apache Kafka opened by Ottla, and the other way, record by record
	$(FROM_BUILT) $(BIN)/python -m tests.conformance.both_ways $(ARGS)

crash: $(SERVED) $(READY) ## kill -9 while producers write, 50 times; a crash at every call on a simulated disk
	$(FROM_BUILT) $(BIN)/python -m tests.log.crash_sweep $(SWEEP)
	$(FROM_BUILT) $(BIN)/python -m tests.crash $(ARGS)

model: $(SERVED) $(READY) ## 100,000 random operations on a log beside a model of it, by seed
	$(FROM_BUILT) $(BIN)/python -m tests.log.random_ops $(ARGS)

text: $(SERVED) $(READY) ## 100 MB of this machine's text in and out with kcat, over a kill -9
	$(FROM_BUILT) $(BIN)/python -m tests.text $(ARGS)

golden: $(READY) ## golden bytes anew from Apache Kafka's own classes, ours against them
	tests/golden/java/regenerate
	$(BIN)/python -m pytest tests/protocol $(ARGS)

quotas: $(SERVED) $(READY) ## 30 s of each client quota: what a greedy client gets, what its neighbour notices
	$(FROM_BUILT) $(BIN)/python -m tests.bench.quotas $(ARGS)

traces: $(READY) ## conversations about groups anew with Apache Kafka, as tests hold them with Ottla
	$(BIN)/python -m tests.coordinator.wire $(ARGS)

differences: $(SERVED) $(READY) ## random sequences of requests to Apache Kafka and to Ottla, and where the answers differ
	$(FROM_BUILT) $(BIN)/python -m tests.differences $(ARGS)

carried: $(SERVED) $(READY) ## what random sequences left on the disk of one broker, opened by both
	$(FROM_BUILT) $(BIN)/python -m tests.differences.carried $(ARGS)

bench: $(SERVED) $(READY) ## Ottla beside Apache Kafka: figures, ratios, aims
	$(FROM_BUILT) $(BIN)/python -m tests.bench $(ARGS)
