# Self-Attention, Step by Step.  The two commands: make book, make test.
# They need Python 3.10 or newer with venv, and set up all else in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ALL    ?=
ONLY   ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONHASHSEED := 0

.PHONY: help book test notebooks serve lint lock clean
.DEFAULT_GOAL := help

help: ## show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

notebooks: $(READY) ## run the notebooks and store their outputs (ONLY=06)
	@$(BIN)/python tools/notebooks.py $(ONLY)

$(READY): requirements/core.txt requirements/torch.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -r requirements/torch.txt
	$(BIN)/python -m pip install -q -r requirements/core.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@
