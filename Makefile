# One task file. Each target sets up what it needs by itself, from a Python, git and the package registry alone;
# set-up runs again only when pyproject.toml or uv.lock has changed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# The lock holds the version of uv too, so what installs the rest is pinned like the rest.
UV_PIN := $(shell sed -n 's/^uv = \["\(uv==[0-9.]*\)"\]$$/\1/p' pyproject.toml)

# Tests that build an environment of their own find uv here.
export UV := $(CURDIR)/$(BIN)/uv
export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_PYTHON_DOWNLOADS := never
# Installed code is compiled at once, and ours at its first run: start-up times are honest ones.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
# Another environment being active, or another path for imports, must not change what runs here.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- what there is to do ----------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.synced-demo ## Watch three tasks get killed and carry on (under a minute)
	@$(BIN)/python -m compileall -q src
	@$(BIN)/keepstate demo

.PHONY: demo-airflow
demo-airflow: $(VENV)/.synced-dev ## Watch a worker of Airflow's get killed, and its task carry on (under four minutes)
	@$(BIN)/python -m tests.airflow.demo

.PHONY: test
# One process more than there are cores on the smallest machine, as tests wait for servers a third of the time.
test: check browser mysql ## check, then every test but the slow ones
	$(BIN)/python -m pytest -n 3 --dist worksteal $(PYTEST_ARGS)

.PHONY: test-all
test-all: test test-airflow test-mysql pgbouncer ## test, then the slow ones too
	$(BIN)/python -m pytest -m slow --timeout=1800 -n 2 --dist worksteal --ignore=tests/airflow $(PYTEST_ARGS)

# The tests of a file one after the other, as they share what runs: each test is several processes of Airflow's.
.PHONY: test-airflow
test-airflow: check browser ## The integration with Airflow, in every version that it knows
	$(BIN)/python -m pytest -m slow --timeout=1800 -n 2 --dist loadfile tests/airflow $(PYTEST_ARGS)

# What `test` tries on MariaDB.
.PHONY: test-mysql
test-mysql: check ## Stores on MySQL itself, in every version that is known here, with the slow tests of these
	versions=$$($(BIN)/python -m tests.support.mysql_releases); for version in $$versions; do \
		echo "--- MySQL $$version"; \
		TEST_MYSQL=$$version $(BIN)/python -m pytest -m mysql --timeout=1800 -n 2 --dist worksteal $(PYTEST_ARGS); \
	done

.PHONY: check
check: $(VENV)/.synced-dev ## Lock, format, lint, types and the arrows between modules
	$(UV) lock --check --offline --quiet
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src $(wildcard tests/typing)
	$(BIN)/lint-imports --no-cache --no-logo

.PHONY: bench
bench: $(VENV)/.synced-bench wrk ## Measure against the budgets, as ratios in one run
	$(BIN)/python -m compileall -q src bench
	$(BIN)/python -m bench

.PHONY: bench-size
bench-size: $(VENV)/.synced-bench ## The same for stores of ten million entries (half an hour, 20 GB of disk)
	$(BIN)/python -m compileall -q src bench
	$(BIN)/python -m bench --suite size

# The benchmark itself says what it can't measure without it.
.PHONY: wrk
wrk:
	@command -v wrk >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends wrk; } >/dev/null 2>&1 || true

.PHONY: docs
docs: $(VENV)/.synced-docs ## Build the documentation into site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: screenshots
screenshots: $(VENV)/.synced-dev browser ## Take the pictures of the pages in docs/images anew
	$(BIN)/python -m pytest tests/web/screenshots.py tests/airflow/screenshots.py

.PHONY: clean
clean: ## Remove everything that is made here
	rm -rf $(VENV) .cache site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- set-up -----------------------------------------------------------------------------------------------------------

# Without pip in it: an operating system's Python can often not make such an environment, and nothing here needs one.
$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit("keepstate needs Python 3.10 or newer: make PYTHON=python3.11 ..." \
		if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --clear --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check "$(UV_PIN)"

# --inexact: the environments add up instead of removing each other's packages. --frozen: the lock is what is installed.
sync = $(UV) sync --quiet --frozen --inexact --no-default-groups --group uv --all-extras

$(VENV)/.synced-demo: pyproject.toml uv.lock | $(BIN)/uv
	$(sync) --group demo
	@touch $@

$(VENV)/.synced-dev: pyproject.toml uv.lock | $(BIN)/uv
	$(sync) --group test --group lint
	@touch $@

# What the tests of the pages need that is no Python package: Chromium and axe-core. Looks each time, as either may have gone.
.PHONY: browser
browser: $(VENV)/.synced-dev
	@$(BIN)/python -m tests.support.browser

# The server that the tests of MySQL stores start, unless TEST_MYSQL says otherwise. Looks each time, too.
.PHONY: mysql
mysql: $(VENV)/.synced-dev
	@$(BIN)/python -m tests.support.mysql

.PHONY: pgbouncer
pgbouncer: $(VENV)/.synced-dev
	@$(BIN)/python -m tests.support.pgbouncer

$(VENV)/.synced-bench: pyproject.toml uv.lock | $(BIN)/uv
	$(sync) --group test --group bench
	@touch $@

$(VENV)/.synced-docs: pyproject.toml uv.lock | $(BIN)/uv
	$(sync) --group docs
	@touch $@
