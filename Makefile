# make help     what there is
# make demo     install into .venv and compare methods on two built-in real data sets
# make test     the tests that .ci/run runs

PYTHON ?= python3
VENV ?= .venv
# An index with CPU builds of torch. Plain torch on Linux is a CUDA build of several gigabytes;
# `make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu` takes the small one instead.
TORCH_INDEX ?=
# What `make demo` installs beside the core; `make demo EXTRAS=data` leaves torch out.
EXTRAS ?= torch,data
ASSAY := $(VENV)/bin/assay
# Where assay stands beside the libraries that it is measured against.
BENCH_ENV ?= .bench-env
export PYTHON VENV TORCH_INDEX BENCH_ENV

.DEFAULT_GOAL := help
.PHONY: help install dev demo test test-long lint docs bench peers readme example constraints clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

install: $(VENV)/.installed ## .venv with assay, to use it
$(VENV)/.installed: pyproject.toml constraints.txt
	EXTRAS=$(EXTRAS) .ci/run install
	@touch $@

dev: $(VENV)/.dev ## .venv with everything needed to work on assay
$(VENV)/.dev: pyproject.toml constraints.txt
	EXTRAS=dev .ci/run install
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed ## prediction intervals for prices, label sets for digits; a table and a report each
	$(ASSAY) compare diamonds --seeds 5 --workers 2
	$(ASSAY) compare digits --alpha 0.03 --seeds 5 --workers 2

test: $(VENV)/.dev ## the tests
	.ci/run browser test

test-long: $(VENV)/.dev ## long campaigns: kill -9 and resume, claims in full
	$(VENV)/bin/python -m pytest -m slow

lint: $(VENV)/.dev ## ruff, mypy, import directions
	.ci/run lint

docs: $(VENV)/.dev ## the documentation, in site/; EXAMPLES=no runs none of its code
	SITE=site .ci/run docs

readme: $(VENV)/.dev ## rewrite the parts of README.md that come from the cards
	$(VENV)/bin/python docs/generate.py

example: $(VENV)/.dev ## run README's first comparison again, renew its answer and picture
	$(VENV)/bin/python docs/generate.py --example

bench: $(VENV)/.dev ## speed against the peers, as ratios
	$(VENV)/bin/python -m benchmarks

peers: ## the same work by other libraries, in .bench-env, into benchmarks/peers.json and README.md
	$(PYTHON) benchmarks/peers
	$(BENCH_ENV)/bin/python docs/generate.py

constraints: ## the newest versions that fit, into constraints.txt
	rm -rf build/constraints-venv
	$(PYTHON) -m venv build/constraints-venv
	build/constraints-venv/bin/python -m pip install -q -e '.[dev]'
	{ grep '^#' constraints.txt; build/constraints-venv/bin/python -m pip freeze --exclude-editable \
	  | sed 's/+cpu$$//'; } > build/constraints.txt && mv build/constraints.txt constraints.txt

clean: ## remove what was built, not what was measured
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
