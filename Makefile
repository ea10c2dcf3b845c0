# make help lists what there is. Nothing but make run and make test is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: help run test pytest test-all ratchet mutants lint torture bench fetched suite gpu published claims board readme docs pictures small-store clean

# Lists each target with the words behind its two number signs.
help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 13

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The newest pip first: the one that comes with Python 3.11 takes twice as long to choose and install the same versions.
# Compiled when first imported: to compile all of torch and transformers beforehand takes a minute.
unexport PYTHONDONTWRITEBYTECODE
$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	touch $@

# The natural model on what it masters, at about 1,000 tokens, then a teaching model on what needs mastery, at levels that
# they master; RULER's `vt` is beyond both. Directives and attacks are asked of the teaching model, which obeys 87 % of the
# directives: the natural model obeys none, also where a prompt has one alone. Where the natural model cannot be had, the
# teaching model answers all of it, and its line of fetch says why.
NATURAL := --tasks niah_single_2,niah_multikey_1,niah_multivalue,base --difficulty base=1 \
	--policies snapkv,streaming_llm,keydiff --ratios 0.25,0.5 --limit 12 --context-tokens 1000 --max-new-tokens 48
TEACHING := --tasks hops,coreference,multi_entity,arithmetic,instructions --difficulty arithmetic=2 \
	--policies snapkv,streaming_llm,expected_attention,keydiff --ratios 0.5,0.75 --limit 12
run: $(INSTALLED) ## installs, runs the default job and builds its page
	if $(BIN)/python -m kvbench fetch smollm2; \
	then $(BIN)/python -m kvbench run --model smollm2 $(NATURAL) --name natural \
		&& $(BIN)/python -m kvbench run $(TEACHING) --name teaching \
		&& $(BIN)/python -m kvbench site runs/natural runs/teaching --site site/default; \
	else $(BIN)/python -m kvbench run --name default; fi
	@echo "open the page named above in a browser; site/index.html lists all runs"

torture: $(INSTALLED) ## an hour of attacks on the store (docs/reliability.md)
	$(BIN)/python -m tests.torture

lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A process for each core. Each takes half of the tests, so that what a module shares is built once, and then of the
# other's what is left. It ends with the tests that take longest, as what becomes slow is seen there first.
TEST := $(BIN)/python -m pytest -n auto --dist worksteal --durations 15 --durations-min 3

# Lint, which is one process, beside the tests.
test: $(INSTALLED) ## installs and runs every check
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: $(INSTALLED)
	$(TEST)

test-all: lint ## test, and the tests marked slow: every press on every architecture
	$(TEST) -m "slow or not slow"

# It needs no package, and so no .venv. It never raises a limit.
ratchet: ## lowers the limits of readability to what the tree reaches now
	$(PYTHON) -m tests.support.readability

mutants: $(INSTALLED) ## shows that the tests notice faults put into the code
	$(BIN)/python -m tests.mutants

bench: $(INSTALLED) ## measures the speed of this machine
	$(BIN)/python -m kvbench bench

# The natural models, in the user's cache folder.
fetched: $(INSTALLED) ## fetches the natural models
	for model in smollm2 gemma3 qwen; do $(BIN)/python -m kvbench fetch $$model --accept-terms || exit 1; done

# The rows of docs/performance.md and its picture: 25 minutes on two quiet cores.
suite: fetched ## measures docs/performance.md: 25 minutes
	$(BIN)/python -m docs.scripts.suite
	$(BIN)/python -m docs.scripts.tables

# Measures the card of this machine in eight minutes (docs/gpu.md). It needs no .venv: packages may lie in .site.
gpu: ## measures this machine's card: eight minutes (docs/gpu.md)
	PYTHONPATH=$(CURDIR)/.site:$(CURDIR) $(PYTHON) -m docs.scripts.gpu

# Do presses keep needles in the order of kvpress's public board? Half an hour a natural model and core, two hours of
# qwen; then some minutes of a teaching model, which masters no needle, and of the presses that see the question.
PUBLISHED := --suite published --context-tokens 1000 --max-new-tokens 48 --limit 8
published: fetched ## compares with the public board of kvpress: hours
	for model in smollm2 gemma3 reference; do \
		$(BIN)/python -m kvbench run --model $$model $(PUBLISHED) --name published-$$model || exit 1; done
	$(BIN)/python -m kvbench run --model qwen $(PUBLISHED) --ratios 0.5 --name published-qwen
	for model in smollm2 gemma3; do \
		$(BIN)/python -m kvbench run --model $$model $(PUBLISHED) --mode aware --name published-aware-$$model || exit 1; done
	$(BIN)/python -m kvbench site runs/published-* --site site/published

# A natural text of which more next tokens can be asked than of prose(data=python): Django's documentation, from the
# source distribution on the package index, always the same version.
TEXT := build/django.jsonl
$(TEXT): $(INSTALLED)
	$(BIN)/python -m pip download --quiet --no-deps --no-binary django --dest build django==5.2
	$(BIN)/python -m docs.scripts.natural_text build/*jango-5.2.tar.gz $@

# The verdicts that the README and docs/claims.md show, on natural models first, by the commands of docs/claims/runs.txt:
# six hours of a core. IFEVAL: rows of IFEval, split into messages, for the claims P on SmolLM2: 45 minutes more.
# Whatever ends it, the same command goes on: runs resume, and each register is in docs as soon as it is done.
claims: fetched $(TEXT) ## puts the claims of six texts to the test: hours
	while read name options; do \
		case "$$options:$(IFEVAL)" in *IFEVAL*:) continue;; esac; \
		IFEVAL=$(IFEVAL) sh -c "$(BIN)/python -m kvbench claims $$options --site site/claims-$$name" < /dev/null \
		&& cp site/claims-$$name/claims.json docs/claims/$$name.json \
		&& $(BIN)/python -m docs.scripts.tables || exit 1; done < docs/claims/runs.txt

# What the shipped board lacks of docs/board/runs.toml, or has of an earlier version of a task or a method: all of it takes
# about 30 hours of a core. Whatever ends it, the same command goes on.
board: fetched ## measures what the board lacks: 30 hours for all of it
	$(BIN)/python -m docs.scripts.board

# The tables of the README and of docs, from the registries, the command line and the measured files.
readme: $(INSTALLED) ## writes the generated tables of README and docs
	$(BIN)/python -m docs.scripts.tables

# The documents as pages, in build/docs.
docs: readme ## builds the site of the documents
	$(BIN)/python -m mkdocs build --quiet

# The pictures of the README, from a real run.
pictures: $(INSTALLED) ## makes the pictures of README and docs
	$(MAKE) --no-print-directory run
	$(BIN)/python -m kvbench compare docs/scripts/loud_values.py:LoudValuesPress --against snapkv,knorm --tasks base,hops --limit 16 \
		--site site/compare
	$(BIN)/python -m kvbench run --suite instructions --name instructions
	$(BIN)/python -m docs.scripts.pictures

# The store that tests/store/test_small_store.py holds literal numbers of: they are to be verified anew after this.
SMALL := build/small_store
small-store: $(INSTALLED) ## makes the small store of the tests
	rm -rf $(SMALL)
	$(BIN)/python -m kvbench run --tasks base,hops --policies snapkv,knorm --ratios 0.5,0.9 --limit 3 --context-tokens native \
		--dtype float32 --name run --out $(SMALL) --site $(SMALL)/site
	cp $(SMALL)/run/run.json $(SMALL)/site/data/records.parquet tests/data/small_store

clean: ## removes what make has built
	rm -rf $(VENV) build site .mypy_cache .pytest_cache .ruff_cache *.egg-info
