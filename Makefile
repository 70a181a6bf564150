# What people and CI run. `make help` lists it.
#
# One feature set nearly everywhere, --all-features: another one builds the AWS SDK a second time. `make check` does, for the
# library alone and the command without the embedded engine are what is deployed, and must compile without a warning.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo dev test page check lint-tools simulate bench fuzz soak coverage mutants localstack-up localstack-down

CARGO := cargo
FEATURES := --locked --all-features
LINT := target/lint

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Run the demo; ARGS="--messages 2000 --crash" are its options, ARGS=--help lists them
	$(CARGO) run $(FEATURES) --quiet --bin leasehold -- demo $(ARGS)

dev: ## Run your handler on embedded queues; ARGS="payments --key /id --handler http://127.0.0.1:5000/", ARGS=--help
	$(CARGO) run $(FEATURES) --quiet --bin leasehold -- dev $(ARGS)

test: ## Run every test; starts LocalStack where it can; LEASEHOLD_REQUIRE_LOCALSTACK=1 fails where it cannot
	$(CARGO) test $(FEATURES) --no-fail-fast 2>&1 | .ci/totals

# Installed beside the build: nothing of it is a source. The lock file says which bytes, and not where from.
target/page/node_modules: tests/page/package.json tests/page/package-lock.json
	@command -v npm >/dev/null || { echo "no npm: apt-get install npm nodejs"; exit 1; }
	@mkdir -p target/page && cp $^ target/page
	cd target/page && npm ci --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

page: target/page/node_modules ## Test the status page in Chromium; UPDATE=1 draws its pictures in docs/ anew
	@command -v $${CHROMIUM:-chromium} >/dev/null || { echo "no chromium: apt-get install chromium, or CHROMIUM=<its path>"; exit 1; }
	$(CARGO) build $(FEATURES) --bin leasehold
	node --test tests/page/*.test.mjs

check: ## Check format, lints, shell scripts, templates, alert rules, documentation and licences
	$(CARGO) fmt --check
	@if command -v shellcheck >/dev/null; then echo shellcheck; git ls-files -z .ci localstack | \
		xargs -0 grep -lZ '^#!.*sh$$\|^# shellcheck shell=' | xargs -0 shellcheck; \
		else echo "shellcheck is not installed: scripts were not checked"; fi
	@if [ -e $(LINT)/installed ]; then echo cfn-lint, hadolint; $(LINT)/bin/cfn-lint infra/*.yaml; $(LINT)/bin/hadolint Dockerfile; \
		else echo "cfn-lint and hadolint are not installed: templates and Dockerfile were not checked; make lint-tools"; fi
	@if command -v promtool >/dev/null; then echo promtool; promtool check rules infra/dashboards/alerts.yaml; \
		promtool test rules infra/dashboards/alerts.test.yaml; \
		else echo "promtool is not installed: alert rules were not checked"; fi
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --all-features check bans licenses sources; \
		else echo "cargo-deny is not installed: CI will run it; make test looks at licences and sources without it"; fi
	$(CARGO) clippy $(FEATURES) --all-targets -- -D warnings
	$(CARGO) clippy --locked --lib -- -D warnings
	$(CARGO) clippy --locked --features cli -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(FEATURES) --no-deps

lint-tools: $(LINT)/installed ## Install what make check reads templates and Dockerfile with, into target/lint; needs Python 3.10

$(LINT)/installed: .ci/lint.txt
	rm -rf $(LINT)
	python3 -m venv $(LINT)
	$(LINT)/bin/pip install --quiet --no-input --disable-pip-version-check --no-compile --no-deps -r $<
	touch $@

simulate: ## Simulate SEEDS=N runs of workers under faults (20000 unless set), from seed SEED_START=N (0)
	SEEDS=$(or $(SEEDS),20000) $(CARGO) test $(FEATURES) --test worker simulation::some_thousand_seeds -- --nocapture

bench: ## Measure beside a bare loop; ARGS="--rounds 3 --only guarded"; first builds everything in release, which takes minutes
	$(CARGO) bench $(FEATURES) --bench throughput -- $(ARGS)

FUZZ_SECONDS := 30
fuzz: ## Fuzz what decodes, FUZZ_SECONDS=N for each target (30); needs nightly Rust and cargo-fuzz
	@$(CARGO) +nightly --version >/dev/null 2>&1 || { echo "no nightly Rust: rustup toolchain install nightly"; exit 1; }
	@command -v cargo-fuzz >/dev/null || { echo "no cargo-fuzz: cargo install --locked cargo-fuzz"; exit 1; }
	@cp Cargo.lock fuzz/ # the dependencies that are tested, and libFuzzer
	@for target in $$(ls fuzz/seeds); do mkdir -p target/fuzz/corpus/$$target; \
		$(CARGO) +nightly fuzz run --dev --sanitizer none --target-dir target/fuzz $$target target/fuzz/corpus/$$target \
		fuzz/seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=8192; done

soak: ## Soak a worker in mixed load and kills, SOAK_SECONDS=N (600); plot and samples go to target/soak
	$(CARGO) bench $(FEATURES) --profile dev --bench soak

coverage: ## Count the lines that tests reach; needs cargo-tarpaulin
	@command -v cargo-tarpaulin >/dev/null || { echo "no cargo-tarpaulin: cargo install --locked cargo-tarpaulin"; exit 1; }
	$(CARGO) tarpaulin $(FEATURES) --lib --test worker --test contract --engine ptrace --target-dir target/tarpaulin \
		--include-files 'src/*' --exclude-files 'src/bin/*' --timeout 300 --out Stdout $(ARGS)

mutants: ## Change the modules that decide, in place, and see tests go red; needs cargo-mutants; ARGS="--shard 0/8"
	@command -v cargo-mutants >/dev/null || { echo "no cargo-mutants: cargo install --locked cargo-mutants"; exit 1; }
	@git diff --quiet || { echo "commit first: mutants are made in place, where all is built already"; exit 1; }
	$(CARGO) mutants --in-place --output target $(ARGS)

localstack-up: ## Start LocalStack and deploy infra/queue.yaml into it; prints the environment for a worker
	@localstack/up

localstack-down: ## Stop it
	@localstack/down
