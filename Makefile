# Needs Python 3.11 or newer with its venv module, and make. `make` alone lists the doors.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

# Versions and hashes are pinned in requirements/; the checkout itself is installed in place.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

.DEFAULT_GOAL := help
.PHONY: help demo install test check format explore bench wheel requirements clean

help:  ## List the doors
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run  ## Run the refund example: a real server, a worker, an agent that is crashed and goes on
	@$(BIN)/python -m examples.refunds.demo $(ARGS)

install: $(VENV)/.dev  ## Make .venv with everything that work on perdure needs

test: $(VENV)/.dev  ## Run the tests; ARGS="tests/worker -k stale" chooses
	@$(BIN)/python -m pytest -n auto $(ARGS)

check: $(VENV)/.dev  ## Lint, formatting, types, architecture; all of them, even when one is red
	@red=; for each in "ruff check" "ruff format --check" "pyright" "lint-imports --no-cache"; do \
		echo "== $$each"; $(BIN)/$$each || red="$$red; $$each"; \
	done; [ -z "$$red" ] || { echo "red$$red"; exit 1; }

format: $(VENV)/.dev  ## Format the code, and mend what the linter can mend
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

explore: $(VENV)/.dev  ## Try orders of commands and outcomes on a small session, the shortest first; ARGS="--states 500000" looks further
	@$(BIN)/python -m tests.explore $(ARGS)

bench: $(VENV)/.dev  ## Measure perdure beside a bare Temporal workflow
	@$(BIN)/python -m benchmarks $(ARGS)

wheel: $(VENV)/.run  ## Build the wheel into dist/
	@$(BIN)/python -m hatchling build -t wheel

requirements:  ## Choose the newest versions and pin them anew; needs uv
	@uv pip compile $(LOCK) pyproject.toml --group run --output-file requirements/base.txt
	@uv pip compile $(LOCK) pyproject.toml --group build --extra otlp --extra postgres --extra s3 \
		--constraints requirements/base.txt --output-file requirements/image.txt
	@uv pip compile $(LOCK) pyproject.toml --group dev --constraints requirements/base.txt --output-file requirements/dev.txt

clean:  ## Remove all that was made, .venv included
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links

# The stamps say what an environment holds: .python nothing yet, .run what running needs, .dev all.

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "perdure needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/base.txt pyproject.toml
	@echo "installing what running needs into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/base.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing what tests and checks need into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@
