# Everything that people and CI do here. `make demo` and `make test` need a Rust toolchain; what else a bare Debian lacks
# they install themselves (scripts/setup).

BIN := target/release/multirail
# One stamp a set of tools: the second time, nothing is looked for.
READY = target/ready

.DEFAULT_GOAL := build
.PHONY: setup build demo wheel wheels test test-ucx test-torch test-ray regress copies flood bench experiments check fuzz clean

setup: $(READY)/base

$(READY)/%: scripts/setup
	@scripts/setup $*
	@mkdir -p $(@D) && touch $@

build: $(READY)/base
	cargo build --release --locked -p multirail-cli

# A real file over two networks between two hosts, and over one of them.
demo: build
	@scripts/demo $(BIN)

# Ends with a table of skipped tests. FORBID_SKIPS=1: a skipped test that this machine could run is a failure.
test: $(READY)/base $(READY)/wheel
	@scripts/test $(if $(FORBID_SKIPS),--forbid-avoidable-skips)

# Edges over UCX: a cargo feature, so that nothing else needs its libraries.
test-ucx: $(READY)/ucx
	cargo test --locked -p multirail --features ucx --lib -- bench::curve

# The PyTorch backend, and pipelines on Ray: each installs its package (PyTorch: some GB) in an environment of its own.
test-torch test-ray: $(READY)/base $(READY)/wheel
	@scripts/test-wheel $(@:test-%=%)

# The package for Python, with the command in it, in target/wheels/.
wheel: build $(READY)/wheel
	rm -rf target/wheels
	scripts/wheel release

# The same for x86_64 and aarch64. RUSTC: a compiler that has the library of Rust for both, where rustup cannot bring it.
wheels: $(READY)/wheel $(READY)/wheels
	scripts/wheels

# Measures whether anything got slower: ratios to peers, with floors (scripts/regress/floors.toml). Below four minutes.
regress: build $(READY)/regress
	@python3 -B scripts/regress $(BIN)

# Copies of a million files beside rsync, and copies that are killed again and again. Some ten minutes.
copies: build $(READY)/regress
	@python3 -B scripts/copies $(BIN)

# How long a client waits for a server that is flooded with connections. Two minutes.
flood: build $(READY)/regress
	cargo build --release --locked -p multirail-lab --example flood
	@python3 -B scripts/flood $(BIN) target/release/examples/flood

# Every value of docs/benchmarks.md. QUICK=1: fewer sizes and repeats, below three minutes. RESULTS: where the JSON lines go.
RESULTS ?= $(if $(QUICK),target/bench-quick.jsonl,docs/bench/latest.jsonl)
bench: build $(READY)/bench
	cargo build --release --locked -p multirail --example events
	scripts/bench $(if $(QUICK),--quick) $(BIN) $(RESULTS)
	scripts/bench-report $(if $(QUICK),--verdict-only) $(RESULTS)

# Edges by UCX, too, where its headers are; else these lines are skipped and say so.
UCX = $(if $(wildcard /usr/include/ucp/api/ucp.h),--features multirail/ucx)
# The papers' figures drawn again, with other programs' lines in them: experiments/RESULTS.md. peers/messages also draws the
# figure of README.md. QUICK=1: fewer sizes and repeats, below five minutes, results below target/. ONLY: a pattern of
# paper/folder.
experiments: $(READY)/base $(READY)/experiments $(READY)/edges
	cargo build --release --locked $(UCX) -p multirail-cli -p multirail -p multirail-sim -p microscope \
	    --bin multirail --bin microscope --example arrays --example datacutter --example group --example multicast_prediction
	experiments/run $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)')

# The command's doc comments are its help text, so they are no Rust documentation.
check: $(READY)/check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo check --manifest-path fuzz/Cargo.toml --no-default-features --target-dir target --locked
	cargo clippy -p multirail --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude multirail-cli --no-deps --locked
	target/tools/bin/cargo-deny --locked check licenses bans sources
	target/tools/bin/cargo-deny --locked --manifest-path crates/multirail-proto/Cargo.toml --config crates/multirail-proto/deny.toml check bans
	scripts/build-bpf --check
	target/tools/bin/ruff check experiments crates/multirail-py
	target/tools/bin/ruff format --check experiments crates/multirail-py

# Each fuzz target for FUZZ_SECONDS, one after the other, or those that TARGETS names.
FUZZ_SECONDS ?= 60
fuzz: $(READY)/fuzz
	@scripts/fuzz $(FUZZ_SECONDS) $(TARGETS)

clean:
	cargo clean
