# The few commands that build, show and test weir. `make` alone lists them.
# Each target calls one script or cargo: nothing is built by make itself.

TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help
help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

.PHONY: run
run: setup ## install what is missing, build, and show weir working on real traffic
	@# The development profile, with the features of scripts/test: `make test` goes on from this build.
	cargo build -p weir-cli $$([ ! -e /usr/include/pcap/pcap.h ] || echo --features weir-cli/libpcap)
	@echo
	@$(TARGET)/debug/weir lab demo

.PHONY: release
release: setup ## build the programs as they are shipped, stripped, with debug files beside them; in target/dist
	@scripts/release

.PHONY: packages
packages: setup ## build static programs and pack them as .deb (and .rpm, where rpmbuild is); in target/packages
	@scripts/package

.PHONY: test-packages
test-packages: setup ## install, upgrade and remove the packages in clean chroots, and build them twice (root)
	@scripts/setup packages
	@scripts/test-packages --all

.PHONY: test
test: setup ## install what is missing and run every test (as root: on the kernel, too)
	@scripts/test

.PHONY: test-long
test-long: setup ## the same with more generated cases, longer fuzzing and older kernels
	@scripts/setup kernels
	@scripts/setup packages
	@scripts/test --long

.PHONY: test-kernels
test-kernels: setup ## load every eBPF object on Linux 6.1 and 6.12, and run AF_XDP there and on 6.18, in an emulator
	@scripts/setup kernels
	@scripts/test-kernels

.PHONY: test-aarch64
test-aarch64: setup ## build the crates that need no kernel for AArch64, and run their tests in an emulator
	@scripts/setup aarch64
	@scripts/test-aarch64

.PHONY: fuzz
fuzz: setup ## fuzz each parser and loader for five minutes
	@scripts/fuzz --seconds 300

.PHONY: bench
bench: ## measure weir beside its peers, and print all targets in one table (root, half an hour); results in bench-results/
	@scripts/setup bench
	cargo build --release -p weir-cli
	$(TARGET)/release/weir bench all --output bench-results

.PHONY: docs
docs: ## build the documentation as a book in target/book/html (installs mdbook if it is missing)
	@scripts/book build

.PHONY: deny
deny: ## check licences, advisories, duplicates and sources of dependencies (cargo install cargo-deny)
	cargo deny check

.PHONY: setup
setup: ## install what the other commands need (Debian 12, Ubuntu)
	@scripts/setup

.PHONY: fmt
fmt: ## format all Rust sources
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
