# Thin: every target is a line to cargo or to a program of this repository. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh

CACHE := $(or $(BERTH_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/berth,$(HOME)/.cache/berth))
# A fresh clone in CI finds the dependencies that earlier runs compiled, and keeps nothing for a second build of what is its own.
ifeq ($(CI),true)
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CARGO_INCREMENTAL ?= 0
endif
CARGO ?= cargo
# A checkout of Kueue with its manager built, for the tests in which it hands a cluster over. They run in a folder of their own.
ifneq ($(KUEUE),)
override KUEUE := $(abspath $(KUEUE))
export KUEUE
endif
# A failed test ends with what failed and not with the stack of whoever called it.
export RUST_LIB_BACKTRACE := 0
BIN := $(or $(CARGO_TARGET_DIR),target)/debug
# Targets are chosen by name and never by package, and examples (there are none) are asked for: so cargo resolves features once,
# for the whole workspace with its tests, and compiles each dependency once instead of five times.
# Nothing is silent for long: see .ci/heartbeat.
BUILD := .ci/heartbeat building $(CARGO) build --locked --workspace --examples
TEST := .ci/heartbeat testing $(CARGO) test --locked --workspace
# Builds a program and is the path to run it by.
program = $(BUILD) --bin $(1) && $(BIN)/$(1)
names = $(addprefix --test ,$(notdir $(patsubst %/main,%,$(basename $(wildcard $(1)/*.rs $(1)/*/main.rs)))))
say = @echo "== $(1)"

.PHONY: help conformance build check test lint tidy unit e2e smoke demo crds controlplane scenario night bench bench-engine laws small-worlds

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the berth binary
	$(call say,building berth)
	$(BUILD) --bin berth

lint: tidy ## Check the house rules and the format, and run clippy on everything
	$(call say,format)
	$(CARGO) fmt --all --check
	$(call say,clippy)
	.ci/heartbeat clippy $(CARGO) clippy --locked --workspace --all-targets -- -D warnings

tidy: ## Check the house rules (crates/xtask/src/tidy)
	$(call say,house rules)
	$(call program,xtask) tidy

unit: ## Unit tests, cases and golden files; no control plane
	$(call say,unit tests and cases)
	$(TEST) --lib --bins $(call names,crates/*/tests)
	$(TEST) --doc
	$(MAKE) --no-print-directory conformance

CASES_OF_KUEUE := ../shared/conformance --known crates/testkit/known-differences.txt
conformance: ## Kueue's decision cases, where they lie beside the repository
	$(call say,decision cases)
	$(call program,berth-testkit) conformance $(CASES_OF_KUEUE)
	$(call say,the same with what Berth does differently on purpose)
	$(BIN)/berth-testkit conformance $(CASES_OF_KUEUE) --known crates/testkit/differences-as-shipped.txt --as-shipped

controlplane: ## Build the test control plane's binaries (5 minutes, once)
	$(call say,control plane binaries)
	$(call program,controlplane)

smoke: build controlplane ## One job through all layers on a real control plane
	$(call say,smoke test on a real control plane)
	$(TEST) --test smoke -- --nocapture

check: lint unit smoke ## The inner loop: format, lints, unit tests, one smoke test

e2e: build controlplane ## All end-to-end tests
	$(call say,end-to-end tests on real control planes)
	$(TEST) $(call names,e2e/tests) -- --nocapture
	$(call say,the demo as a test)
	export DEMO_ONCE=1; $(call program,demo)

test: lint unit e2e ## Everything that a change must pass

scenario: build controlplane ## Some scenarios of one suite: SUITE=admission|crash SCENARIO=part-of-a-name
	@ran=$$(mktemp) && trap 'rm -f "$$ran"' EXIT && \
		SCENARIO="$(SCENARIO)" SCENARIO_RAN="$$ran" $(TEST) --test $(or $(SUITE),admission) -- --nocapture && \
		if [ ! -s "$$ran" ]; then echo "no scenario of $(or $(SUITE),admission) is called like '$(SCENARIO)'"; exit 1; fi

bench: controlplane ## Berth under Kueue's performance shapes (SHAPE=small|large|jobs SCALE=1 PREEMPTION=1 BENCH_KUEUE=path)
	$(call say,building berth as it ships)
	.ci/heartbeat building $(CARGO) build --release --locked -p berth-manager
	$(call say,benchmark on a real control plane)
	@export BERTH_BINARY="$(or $(CARGO_TARGET_DIR),target)/release/berth" SHAPE="$(SHAPE)" SCALE="$(SCALE)" PREEMPTION="$(PREEMPTION)" \
		BENCH_KUEUE="$(BENCH_KUEUE)" BENCH_JSON="$(BENCH_JSON)" IDLE="$(IDLE)"; \
		$(call program,bench)

bench-engine: ## The engine alone (criterion): drains, one event, search for victims, memory
	$(CARGO) bench --locked -p berth-engine --bench engine

small-worlds: ## Engine laws on five million small worlds, in five minutes
	$(call say,engine laws on five million small worlds)
	BERTH_WORLDS=757 BERTH_WORLDS_SECONDS=300 $(TEST) --test small -- --nocapture

LAWS := $(subst --test small,,$(call names,crates/engine/tests)) $(call names,crates/quantity/tests)
laws: ## Engine laws on ten million worlds each, or on a part of them (SHARD=2/8 CASES=10000000)
	$(call say,part $(or $(SHARD),1/1) of engine laws on $(or $(CASES),10000000) worlds each)
	BERTH_CASES=$(or $(CASES),10000000) BERTH_SHARD=$(or $(SHARD),1/1) $(TEST) $(LAWS) -- --nocapture

night: test small-worlds laws ## What is wide and slow (KUEUE=folder: with the real Kueue)
	$(if $(KUEUE),$(call say,the real Kueue hands over and takes back))
	$(if $(KUEUE),KUEUE="$(KUEUE)" $(TEST) --test kueue -- --nocapture)
	$(call say,2000 random stories of tiers and of elastic jobs)
	BERTH_STORIES=2000 $(TEST) --test stories -- random:: swings::nobody --nocapture
	$(call say,every expectation of every decision case changed)
	BERTH_LEAVES=0 $(TEST) --test leaves -- --nocapture
	$(call say,a million objects that nobody meant)
	BERTH_FUZZ=1000000 $(TEST) --test fuzz -- --nocapture
	$(call say,50000 malformed reviews and TLS byte streams)
	BERTH_FLOOD=50000 $(TEST) --test webhook load_and_floods -- --nocapture
	$(call say,PyTorch, JAX, Paddle and Open MPI as processes under what TrainingJobs render)
	BERTH_FRAMEWORKS=1 $(TEST) --test frameworks -- --nocapture
	$(call say,the chart under Helm 3)
	BERTH_HELM=3 $(TEST) --test helm -- --nocapture
	$(call say,end-to-end tests again, five times, with checkpoints in Azurite)
	for i in 1 2 3 4 5; do BERTH_AZURE=1 $(TEST) $(call names,e2e/tests) || exit 1; done

demo: build controlplane ## A cluster of its own with the quickstart, until Ctrl-C (DEMO_KUBECONFIG=path for a real one)
	@export DEMO_KUBECONFIG="$(DEMO_KUBECONFIG)" DEMO_ONCE="$(DEMO_ONCE)"; $(call program,demo)

crds: ## Generate crds/ from the types, the dashboard, and the rights and webhooks of the chart
	$(call program,xtask) crdgen
	$(BIN)/xtask dashboard
