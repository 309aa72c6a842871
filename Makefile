# Two commands carry the course: `make lab` to learn, `make test` to test.
PYTHON ?= python3
VENV := .venv/bin/python
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=300
PYTEST := $(VENV) -m pytest -n auto --maxprocesses=4 --dist=loadfile $(NBVAL)

.PHONY: lab test setup notebooks check progress constraints bench test-backends

lab: setup ; @$(VENV) -m utils lab $(ARGS)

test: setup ; $(VENV) -m ruff check . && $(VENV) -m ruff format --check . && $(PYTEST) tests solutions notebooks $(ARGS)

setup: ; @$(PYTHON) utils/bootstrap.py

# For maintainers and instructors.
notebooks: setup ; @$(VENV) -m utils release $(ARGS)

check: setup ; @$(VENV) -m utils check

progress: setup ; @$(VENV) -m utils progress

constraints: setup ; @$(VENV) -m utils constraints

bench: setup ; @$(VENV) -m utils.bench

test-backends: setup ; @$(VENV) -m utils.backends $(ARGS)
