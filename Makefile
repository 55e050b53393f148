# Self-Attention, Step by Step.  The two commands: make book, make test.
# They need Python 3.10 or newer with venv, and set up all else in .venv.
BIN    := .venv/bin
PYTHON ?= $(shell test -x $(BIN)/python && echo $(BIN)/python || echo python3)
SITE   := _build/html
ALL    ?=
ONLY   ?=
ARGS   ?=
PORT   ?= 8000
CORE   := not (browser or peer or slow)
# Every chapter is run again, and what it prints must be what is stored.
NBVAL  := --nbval --nbval-current-env --nbval-cell-timeout=120

# The same numbers everywhere: one thread, and no order left to chance.
export OMP_NUM_THREADS ?= 1
export PYTHONHASHSEED := 0
# A learner's own progress stays out of stored outputs and tests.
export COURSE_PROGRESS := off
# What a reader has configured for IPython changes no output.
export IPYTHONDIR := $(CURDIR)/_build/.ipython
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export TORCH_BACKEND

.PHONY: help ready book pdf chromium test serve notebooks formulas picture gpu \
	bench mutation lint workflows lock newest clean
.DEFAULT_GOAL := help

help: ## show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

book: ready ## build the site, every warning an error
	@test -d _build/.executed || echo "All chapters are run now: this takes \
	minutes, and prints nothing."
	@$(BIN)/jupyter-book build . -W -n --keep-going -q || { \
	  rm -rf _build/.doctrees; exit 1; }  # or the next run would not warn
	@echo "The book is built: open $(SITE)/index.html, or make serve."

test: book ## run the tests (ALL=1: also peers, the browser, and slow ones)
	@$(BIN)/python -m pytest tests chapters $(NBVAL) \
	  $(if $(ALL),,-m "$(CORE)")

serve: book ## show the site at http://localhost:8000 (PORT=...)
	@$(BIN)/python -m http.server $(PORT) --bind localhost --directory $(SITE)

notebooks: ready ## run the notebooks and store their outputs (ONLY=06)
	@$(BIN)/python tools/notebooks.py $(ONLY)

pdf: chromium book ## print the book and the cheat sheet (needs Chromium)
	@$(BIN)/python tools/pdf.py

chromium: ready
	@$(BIN)/python tools/pdf.py --find

formulas: chromium book ## set the site's formulas and keep them (Chromium)
	@$(BIN)/python tools/formulas.py

picture: ready ## draw the picture of the landing page again
	@$(BIN)/python tools/picture.py

gpu: ready ## check and time every variant on this machine's GPU
	@$(BIN)/python tools/gpu.py

bench: ready ## time all variants, beside their peers with ALL=1 (ARGS=...)
	@$(BIN)/python benchmarks/run.py $(ARGS)

mutation: ready ## change the core a thousand times: do the tests notice?
	@$(BIN)/python -m pip install -q -r requirements/mutation.txt
	@$(BIN)/python tools/mutation.py

lint: ready ## check style, imports and notebooks, without running them
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/test_notebooks.py tests/test_house.py

workflows: ready ## check the workflows of .github
	@$(BIN)/python -m pip install -q -r requirements/workflows.txt
	@PATH="$(BIN):$$PATH" $(BIN)/actionlint
	@$(BIN)/zizmor --offline --no-progress --quiet .github

lock: ready ## resolve requirements/core.in into exact versions (online)
	@$(BIN)/python -m pip install -q -r requirements/tools.txt
	@cd requirements && ../$(BIN)/uv pip compile -q --universal \
	  --python-version 3.10 --custom-compile-command "make lock" \
	  --no-emit-index-url --no-emit-find-links core.in -o core.txt

newest: ready ## install the newest versions in place of the locked ones
	@$(PYTHON) tools/setup.py --newest

clean: ## remove what was built; .venv stays
	@rm -rf _build .hypothesis .ruff_cache .import_linter_cache .benchmarks

ready:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not \
	installed; Python 3.10 or newer is needed (see README.md)"; exit 1; }
	@$(PYTHON) tools/setup.py $(if $(ALL),--peers)
	@mkdir -p "$(IPYTHONDIR)/profile_default"
	@echo "c.IPKernelApp.log_level = 'ERROR'" \
	  > "$(IPYTHONDIR)/profile_default/ipython_kernel_config.py"
