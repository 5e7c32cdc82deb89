# Everything a person does with this course. `make` alone lists it.
# Each target makes .venv ready first (scripts/setup.sh), which takes no time when it is.
# Scripts run by bash, so that an archive that lost their execute bits works.

PYTHON ?=
OUT ?= build/gpu
ARGS ?=
OFFLINE ?=
JAX ?= 0.11.2
export PYTHON

BIN := .venv/bin
BASE := @bash scripts/setup.sh
define FULL
@bash scripts/setup.sh dev,site
@$(BIN)/grader install-target
endef

.DEFAULT_GOAL := help
.PHONY: help start target test messages site lighthouse serve lint seeds bench claims gpu gpu-rehearsal wheelhouse clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

start: ## set up, then test this machine on every reference solution
	$(BASE)
	@$(BIN)/grader selftest $(ARGS)

target: ## add what compiles for 8 x H200 with no GPU (0.7 GB): grader check ex22 --target h200x8
	$(BASE)
	@$(BIN)/grader install-target

# The site is built before all tests: its lessons assert what they measure, and three processes of
# tests beside them would disturb that.
test: ## set up, then run all tests (ARGS="-k ex07" for some)
	$(FULL)
	@$(if $(ARGS),,NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet)
	@$(if $(ARGS),,COURSE_TESTS_SITE=$(CURDIR)/site) $(BIN)/python -m pytest -n 3 $(ARGS)

messages: ## print what the report of each wrong variant says first (ARGS="ex07", or "--pick 60")
	$(BASE)
	@$(BIN)/python scripts/messages.py $(ARGS)

site: ## build the site into site/; a warning is an error (OFFLINE=1: unpack its copy for no network)
	$(FULL)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@$(if $(OFFLINE),$(BIN)/python -m zipfile -e site/where-does-my-array-live.zip build && \
	    echo 'open build/where-does-my-array-live/index.html')

lighthouse: ## ask Lighthouse what it thinks of six pages of site/ (needs npx)
	$(FULL)
	@$(BIN)/python scripts/lighthouse.py

serve: ## show the site at http://127.0.0.1:8000, rebuilt as you edit
	$(FULL)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

lint: ## ruff, mypy --strict, who may import whom, and that every test can be collected
	$(FULL)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy grader docs/_build bench scripts
	@$(BIN)/lint-imports --no-logo
	@tests=$$($(BIN)/python -m pytest --collect-only -qqq) || { printf '%s\n' "$$tests"; exit 1; }

seeds: ## grade right and wrong submissions with fresh seeds (ARGS="ex07 --times 20")
	$(FULL)
	@$(BIN)/python scripts/seeds.py $(ARGS)

bench: ## measure the grader against a bare script; prints one table
	$(FULL)
	@$(BIN)/python -m bench $(ARGS)

claims: ## run every proof of a claim on another JAX, in build/ (JAX=0.11.2): what differs there?
	$(BASE)
	@$(BIN)/python scripts/claims_on_jax.py $(JAX)

# Runs where there is a GPU and no network: a python3 with jax, and what `make wheelhouse` fetched.
gpu: ## on a GPU node: tests, solutions, figures, lesson recordings, into OUT=folder
	@"$${PYTHON:-python3}" scripts/gpu.py --out "$(OUT)" $(ARGS)

gpu-rehearsal: ## every step of `make gpu` where there is no GPU (ARGS="--exercise ex26 --lesson 02")
	$(FULL)
	@$(BIN)/python scripts/gpu_rehearsal.py $(ARGS)

wheelhouse: ## fetch into wheelhouse/ what an air-gapped GPU node lacks (Python 3.12, x86-64)
	$(FULL)
	@$(BIN)/python scripts/wheelhouse.py

clean: ## remove what was made and built; an environment of your own stays
	@bash scripts/clean.sh
