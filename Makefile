SHELL := /bin/bash
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo install uninstall deb musl test test-long ready fmt lint deny bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## See Vellum at work: installs what is missing, builds, and shows it
	@scripts/install demo
	@scripts/demo

PREFIX ?= /usr/local
install: ## Install programs, library and header, and all that belongs to them: make install PREFIX=/usr DESTDIR=/tmp/package
	@scripts/install demo
	@DESTDIR="$(DESTDIR)" scripts/install-programs "$(PREFIX)"

uninstall: ## Remove what `make install` with the same PREFIX and DESTDIR installed
	@DESTDIR="$(DESTDIR)" scripts/install-programs "$(PREFIX)" uninstall

deb: ## Make a Debian package in target/debian
	@scripts/install deb
	@scripts/make-deb

musl: ## Build the programs linked statically, in target/x86_64-unknown-linux-musl/release
	@scripts/install musl
	cargo build --release --target x86_64-unknown-linux-musl --bin vellum --bin vellum-bench --bin vellum-crash

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
