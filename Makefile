# Every target makes the environment it needs; a second call installs nothing.
#   make PYTHON=/path/to/python ...   uses an environment that already has torch >= 2.11 and leaves its torch alone
#   make ARGS="--set ..." compare     passes arguments on to attnbench run

.DEFAULT_GOAL := help
.PHONY: help setup compare test lint bench clean

ifdef PYTHON
PY := $(PYTHON)
STAMP := .setup-$(shell printf %s '$(PYTHON)' | cksum | cut -d' ' -f1)
else
PY := .venv/bin/python
STAMP := .venv/.setup
endif

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## Make the environment

compare: $(STAMP) ## Compare four families on the embedded corpus (about 5 minutes on 2 cores)
	$(PY) -m compare run configs/demo.toml $(ARGS)

test: $(STAMP) ## Run the tests
	$(PY) -m pytest $(ARGS)

lint: $(STAMP) ## Check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

clean: ## Remove the environment and caches; results in runs/ stay
	rm -rf .venv .setup-* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt setup.sh
	@sh setup.sh "$(PYTHON)"
	@touch $(STAMP)
