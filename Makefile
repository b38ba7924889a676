# Thin: every target is a line to cargo or to a program of this repository. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# CI builds once: it keeps nothing for a second build of what is its own.
ifeq ($(CI),true)
export CARGO_INCREMENTAL ?= 0
endif
CARGO ?= cargo
# The real Kueue, for tests in which it hands a cluster over and benchmarks beside it: 1 builds the version of e2e/kueue/go.mod, a folder is a
# checkout with its programs in bin/. Tests run in a folder of their own.
ifneq ($(KUEUE),)
ifneq ($(KUEUE),1)
override KUEUE := $(abspath $(KUEUE))
endif
export KUEUE
endif
# A failed test ends with the failure and not with a stack.
export RUST_LIB_BACKTRACE := 0
BIN := $(or $(CARGO_TARGET_DIR),target)/debug
# Features are resolved once, for the whole workspace with its tests: crates/testrun/src/cargo.rs.
BUILD := $(CARGO) build --locked --workspace --examples
# Runs the steps of a target, measures each and ends with a table (crates/testrun).
RUN := @.ci/testrun
# Builds a program and is the path to run it by.
program = $(BUILD) --bin $(1) && $(BIN)/$(1)
say = @echo "== $(1)"

.PHONY: help build check test lint tidy house unit scenario demo decide conformance crds controlplane image night bench bench-engine inventory

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## A cluster of its own with the quickstart, until Ctrl-C (DEMO_KUBECONFIG=path for a real one)
	@export DEMO_KUBECONFIG="$(DEMO_KUBECONFIG)" DEMO_ONCE="$(DEMO_ONCE)"; .ci/testrun demo

decide: ## Decisions about the quickstart without any cluster
	$(RUN) decide

test: ## Everything that a change must pass
	$(RUN) test

check: ## Format, lints, unit tests, laws on few seeds, one test on a real control plane
	$(RUN) check

unit: ## Unit tests of one crate's library: OF=control|engine|...
	$(RUN) unit "$(or $(OF),control)"

scenario: ## Some scenarios of one suite: SUITE=admission|crash SCENARIO=part-of-a-name
	$(RUN) scenario "$(or $(SUITE),admission)" "$(SCENARIO)"

night: ## What is wide and slow: PART=name, or the part that was not run for longest (docs/testing.md)
	$(RUN) night $(PART)

image: ## The image as an archive for kind, container engines and registries, made without one (IMAGE=name:tag)
	$(RUN) image "$(IMAGE)"

inventory: ## Count tests, scenarios, cases, and the seeds of laws
	$(RUN) inventory

build: ## Build the berth binary
	$(BUILD) --bin berth

lint: tidy ## Check the house rules and the format, and run clippy on everything
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

tidy: ## Check the house rules (crates/xtask/src/tidy)
	$(call program,xtask) tidy

house: ## Measures: import circles, sentences, names (SHOW="--files", "--sentences control"; crates/xtask/src/house)
	$(call program,xtask) house $(SHOW)

CASES_OF_KUEUE := crates/testkit/cases --known crates/testkit/known-differences.txt
conformance: ## Kueue's decision cases (crates/testkit/cases)
	$(call say,decision cases)
	$(call program,berth-testkit) conformance $(CASES_OF_KUEUE)
	$(call say,the same with what Berth does differently on purpose)
	$(BIN)/berth-testkit conformance $(CASES_OF_KUEUE) --known crates/testkit/differences-as-shipped.txt --as-shipped

controlplane: ## Build the programs of the test control plane
	$(RUN) controlplane

bench: controlplane ## Berth under Kueue's performance shapes (SHAPE=small|large|jobs SCALE=1 PREEMPTION=1 KUEUE=1 BENCH_BEFORE=berth)
	$(call say,building berth as it ships)
	$(CARGO) build --release --locked -p berth
	$(call say,benchmark on a real control plane)
	@export BERTH_BINARY="$(or $(CARGO_TARGET_DIR),target)/release/berth" SHAPE="$(SHAPE)" SCALE="$(SCALE)" PREEMPTION="$(PREEMPTION)" \
		BENCH_BEFORE="$(BENCH_BEFORE)" BENCH_JSON="$(BENCH_JSON)" IDLE="$(IDLE)"; \
		$(call program,bench)

bench-engine: ## The engine alone (criterion): drains, one event, search for victims, memory
	$(CARGO) bench --locked -p berth-engine --bench engine

crds: ## Generate crds/ from the types, the dashboard, docs/testing.md, and the rights and webhooks of the chart
	$(call program,xtask) crdgen
	$(BIN)/xtask dashboard
	$(RUN) page
