# Everything a person does with this course. `make` alone lists it.
# Each target makes .venv ready first (scripts/setup.sh), which takes no time when it is.

PYTHON ?=
OUT ?= build/gpu
ARGS ?=
export PYTHON

BIN := .venv/bin
BASE := @scripts/setup.sh
FULL := @scripts/setup.sh dev,site,target

.DEFAULT_GOAL := help
.PHONY: help start target test site serve lint bench gpu wheelhouse clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

start: ## set up, then test this machine on every reference solution
	$(BASE)
	@$(BIN)/grader selftest $(ARGS)

target: ## add what compiles for 8 x H200 with no GPU (0.7 GB): grader check ex22 --target h200x8
	@scripts/setup.sh target

test: ## set up, then run all tests (ARGS="-k ex07" for some)
	$(FULL)
	@$(BIN)/python -m pytest -n 2 $(ARGS)

site: ## build the site into site/; a warning is an error
	$(FULL)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

serve: ## show the site at http://127.0.0.1:8000, rebuilt as you edit
	$(FULL)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

lint: ## ruff, mypy --strict, and who may import whom
	$(FULL)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy grader docs/_build bench scripts
	@$(BIN)/lint-imports --no-logo

bench: ## measure the grader against a bare script; prints one table
	$(FULL)
	@$(BIN)/python -m bench $(ARGS)

# Runs where there is a GPU and no network: a python3 with jax, and what `make wheelhouse` fetched.
gpu: ## on a GPU node: tests, all solutions, lesson recordings, into OUT=folder
	@"$${PYTHON:-python3}" scripts/gpu.py --out "$(OUT)"

wheelhouse: ## fetch into wheelhouse/ what an air-gapped GPU node lacks (Python 3.12, x86-64)
	$(FULL)
	@$(BIN)/python scripts/wheelhouse.py

clean: ## remove .venv and all that was built
	@rm -rf .venv .venv.lock build dist site wheelhouse .cache \
	    .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
