# Every target makes the environment it needs; a second call installs nothing.
#   make PYTHON=/path/to/python ...   uses an environment that already has torch >= 2.9 and leaves its torch alone
#   make ARGS="--set ..." compare     passes arguments on to attnbench run
#   make CORPORA=FOLDER bench         takes FOLDER/multi30k instead of random ids; results, pages and race find their
#                                     corpora in FOLDER too

.DEFAULT_GOAL := help
.PHONY: help setup compare tour results pages bench bench-gpu race test test-all kill-test lint docs clean

ifdef PYTHON
PY := $(PYTHON)
STAMP := .setup-$(shell printf %s '$(PYTHON)' | cksum | cut -d' ' -f1)
else
PY := .venv/bin/python
STAMP := .venv/.setup
endif

BENCH := $(PY) -m compare bench
CORPUS := $(if $(CORPORA),--set 'data.root=$(CORPORA)/multi30k',--synthetic 14)

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## Make the environment
	@echo "ready; next: make compare, or . $(dir $(PY))activate for the command attnbench"

compare: $(STAMP) ## Compare four families on short built-in sentences, three seeds (3 minutes on 2 cores)
	$(PY) -m compare run configs/demo.toml $(ARGS)

tour: $(STAMP) ## Run the tutorial: attention step by step, pictures in runs/tour (1 to 2 minutes)
	$(PY) docs/tutorial.py

results: $(STAMP) ## List the published results; NAME=grammar [CORPORA=FOLDER] makes one of them again
	@$(PY) benchmarks/results.py $(NAME) $(if $(CORPORA),--corpora '$(CORPORA)')

pages: $(STAMP) ## Make the tables, lists and figures of README.md, docs and results again after a new result (2 minutes; CORPORA=FOLDER)
	$(PY) -m compare plot -q results/demo --sentence "The old woman must open the door." --only bahdanau --out docs/images/attention.svg
	$(PY) -m compare plot -q results/demo length --out docs/images/demo.svg
	$(PY) -m benchmarks.readme $(if $(CORPORA),--corpora '$(CORPORA)')
	$(PY) benchmarks/results.py --write
	$(PY) -m docs.generator.notebook
	$(if $(CORPORA),for kind in cost-minutes length; do $(PY) -m compare plot -q results/multi30k-en-de $$kind \
	    --format png --out docs/images/multi30k --set 'data.root=$(CORPORA)/multi30k' || exit 1; done)

bench: $(STAMP) ## Time training and decoding at the sizes of configs/speed.toml (about 4 minutes on 2 cores; CORPORA=FOLDER)
	$(BENCH) configs/speed.toml $(CORPUS) --phase train --out runs/bench/fp32.json $(ARGS)
	$(BENCH) configs/speed.toml $(CORPUS) --set train.precision=auto --out runs/bench/auto.json $(ARGS)

bench-gpu: $(STAMP) ## The same for large models on one GPU (planned for 8 minutes on an H100)
	$(BENCH) configs/speed-gpu.toml --synthetic 27 --out runs/bench-gpu/transformers.json $(ARGS)
	$(BENCH) configs/speed-gpu-recurrent.toml --synthetic 27 --batch 1,32,256,512 --out runs/bench-gpu/recurrent.json $(ARGS)
	$(BENCH) configs/speed-gpu-gnmt.toml --synthetic 27 --batch 1,32,256,512 --out runs/bench-gpu/gnmt.json $(ARGS)
	$(BENCH) configs/speed.toml --synthetic 14 --set train.device=cuda --set train.precision=bf16 \
	    --out runs/bench-gpu/small.json $(ARGS)

race: $(STAMP) ## Train beside joeynmt, eole and OpenNMT-py in turn, five times each (20 minutes on 2 cores; CORPORA=FOLDER)
	PYTHON="$$(realpath $(PY))" sh benchmarks/peers/install.sh joeynmt eole opennmt-py
	$(PY) benchmarks/peers/run.py --data '$(CORPORA)/multi30k' --phase train --updates 8 --repeats 5 --out runs/race.json $(ARGS)

# Bytecode is kept, also where the environment forbids it: the tests start a hundred processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$(or $(THREADS),1) $(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## Run the tests but those marked slow (3 minutes on 2 cores)
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(STAMP) ## Run all tests, and those of the example of a plug-in (6 minutes on 2 cores)
	$(PYTEST) $(ARGS)
	PYTHONPATH=examples/plugin OMP_NUM_THREADS=1 $(PY) -m pytest examples/plugin/tests

kill-test: $(STAMP) ## End each command by signals, and the power under trainings, at KILLS=300 of the operations on files (two hours)
	ATTNBENCH_KILLS=$(or $(KILLS),300) OMP_NUM_THREADS=1 $(PY) -m pytest tests/test_kills.py $(ARGS)

lint: $(STAMP) ## Check style, types, and the words that a program can check
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) benchmarks/words.py

docs: $(STAMP) ## Build the documentation site in build/docs/site; broken links are errors (about 2 minutes)
	@$(PY) -c "import zensical, mkdocstrings_handlers.python" 2>/dev/null || sh setup.sh "$(PYTHON)" docs
	OMP_NUM_THREADS=1 $(PY) -m docs.generator.build $(ARGS)

clean: ## Remove the environment and caches; results in runs/ stay
	rm -rf .venv .setup-* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt setup.sh
	@sh setup.sh "$(PYTHON)" $(EXTRAS)
	@touch $(STAMP)
