SHELL := /bin/bash
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo install test test-long ready fmt lint deny bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## See Vellum at work: installs what is missing, builds, and shows it
	@scripts/install demo
	@scripts/demo

PREFIX ?= /usr/local
install: ## Install the programs, their manual pages and completions, and the helpers of mount(8): make install PREFIX=/usr
	@scripts/install demo
	@scripts/install-programs "$(PREFIX)"

test: ## Run every test, those through a mount too
	@scripts/install test
	@scripts/test

test-long: ## Run the long tests; stopped, it goes on where it was
	@scripts/install test
	@scripts/test-long

ready: ## Before handing over: format, lints, cargo deny, the quicker tests
	@scripts/install test
	@scripts/test ready

fmt: ## Format the code
	cargo fmt --all

lint: ## Run clippy; warnings are errors
	cargo clippy --workspace --all-targets -- -D warnings

deny: ## Check the dependencies' licences, sources, versions and advisories
	@scripts/install test
	cargo deny check

bench: ## Measure: counters first, then times
	cargo run --release --bin vellum-bench -- ops

docs: ## Build the API's documentation in target/doc; warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

clean: ## Remove what was built
	cargo clean
