# Each target makes the environment in $(VENV) that it needs, and fills it anew when pyproject.toml has
# changed. Everything here works with GNU Make 3.81, which macOS has.

# The interpreter; if empty, the first that tools/find_python.sh finds.
PYTHON =
VENV = .venv
# Further arguments for pip, and for the program that a target runs.
PIP_ARGS =
ARGS =

RUN = $(VENV)/bin/python
PYTEST = $(RUN) -m pytest --hypothesis-profile=ci
# pytest rewrites assertions so that they say what differs, which takes each process ten seconds. So
# tests run without that, and those that fail run once more with it.
CHECKED = $(PYTEST) --assert=plain
AGAIN = $(PYTEST) --last-failed --last-failed-no-failures=none -m ''
# `make test-matrix` runs the tests that depend on the interpreter on these. The system's own is among
# them, because it is often the first release of a version, which lacks what later ones have.
MATRIX = python3.12 python3.13 /usr/bin/python3
MATRIX_TESTS = tests/test_packaging.py tests/test_loops.py tests/scheduler tests/replay
# The extra that `make test` installs. With `test-base`, tests that need more are skipped.
TEST_EXTRA = test

# Two processes share the tests. They start at opposite ends of the list, so that most files are run by
# one process, and what the tests of a file share is made once.
SHARED = -n 2 --dist worksteal
# With coverage a test takes three times as long, so only these run with it, and on one loop, because
# all loops run the same lines. They cover a little more than the nine lines of ten that are required.
MEASURED = $(addsuffix .py, \
    $(addprefix tests/autograd/test_, accumulation anomaly awaited_saved_tensors grad_mode hooks \
        in_place inference interrupts mode_corners node_api ported_programs ported_saved_tensors \
        reentrant transform_programs views) \
    $(addprefix tests/core/test_, chain completion modes node_calls saved_and_anomaly) \
    $(addprefix tests/scheduler/test_, commits_in_turn coroutine_nodes first_use forgotten_await \
        loop_thread offload parallel_nodes participants reprs seeded_schedules shutdown threads \
        waits yielding))
QUICK = not slow and not soak

.DEFAULT_GOAL := help
# Two pips at once would break the environment.
.NOTPARALLEL:
.PHONY: help demo service training-api edge-forecast distributed test test-of generated mutations pre-commit lint format check check-tests check-all test-slow test-matrix test-floors docs bench clean FORCE

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@echo "  Variables: PYTHON=python3.12, VENV=.venv, ARGS='-k name' (passed on)"

demo: $(VENV)/.installed-demo ## train a classifier beside live requests (under a minute)
	$(RUN) -m examples.digits $(ARGS)

service: $(VENV)/.installed-service ## serve a page that predicts, explains and learns digits
	$(RUN) -m examples.service $(ARGS)

training-api: $(VENV)/.installed-service ## serve a hosted training API
	$(RUN) -m examples.training_api $(ARGS)

edge-forecast: $(VENV)/.installed-demo ## forecast the weather on the hub of a home
	$(RUN) -m examples.edge_forecast $(ARGS)

distributed: $(VENV)/.installed-dask ## train over three worker processes, one of which is killed
	$(RUN) -m examples.distributed_training $(ARGS)

test: $(VENV)/.installed-$(TEST_EXTRA) ## run the tests; those that need PyTorch skip where it is absent
	$(PYTEST) $(ARGS)

test-of: $(VENV)/.installed-test ## run the tests of one module: MODULE=asyncgrad/core/node.py
	tests=$$($(RUN) tools/tests_of.py $(MODULE)) && $(PYTEST) $(SHARED) $$tests $(ARGS)

generated: $(VENV)/.installed-test ## write the reference, stubs and list of public names anew
	$(RUN) tools/make_reference.py
	$(RUN) tools/public_names.py
	$(RUN) tools/make_stubs.py

mutations: $(VENV)/.installed-oracle,test ## break lines at random and see whether the tests notice (hours)
	$(RUN) tools/mutation_check.py $(ARGS)

lint: $(VENV)/.installed-test $(VENV)/.installed-dev ## linters, types, import contracts
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-logo --no-cache

format: $(VENV)/.installed-dev ## format the code and mend what the linter can
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

pre-commit: $(VENV)/.installed-dev ## run the linters at each commit from now on
	$(VENV)/bin/pre-commit install

check: $(VENV)/.installed-oracle,test,dev lint check-tests ## lint, and test with PyTorch (on Python 3.11) and coverage

check-tests: $(VENV)/.installed-oracle,test,dev ## the tests of `check`
	@$(RUN) -c 'import torch' 2>/dev/null \
	    || echo "PyTorch is not installed: its tests are skipped. Try: make check PYTHON=python3.11"
	$(CHECKED) $(SHARED) --cov --cov-report= -m '$(QUICK) and not no_cover' $(MEASURED) $(ARGS) \
	    || { $(AGAIN); exit 1; }
	$(RUN) -m coverage report --include='asyncgrad/core/*' --fail-under=90
	$(RUN) -m coverage report --include='asyncgrad/scheduler/*' --fail-under=90
	$(CHECKED) $(SHARED) --measured='$(MEASURED)' $(ARGS) || { $(AGAIN); exit 1; }

check-all: check test-floors docs ## check, slow and soak tests, floors, all Pythons, site, demo, distribution
	$(MAKE) test-matrix MATRIX_TESTS=
	$(MAKE) test-slow
	$(MAKE) demo ARGS=--check
	$(RUN) -m build --outdir dist

test-slow: $(VENV)/.installed-oracle,test,ray,nvrtc ## the slow and soak tests, and those that need Ray or CuPy
	$(PYTEST) --hypothesis-profile=thorough -m 'slow or soak' $(ARGS)
	$(PYTEST) tests/devices/test_cupy_without_gpu.py || [ $$? = 5 ]  # without CuPy, there is no test

test-matrix: ## test on those other Pythons that are there, the system's own among them
	@for name in $(MATRIX); do \
	    if python=$$(sh tools/find_python.sh $$name 2>/dev/null); then \
	        $(MAKE) test PYTHON="$$python" VENV=.venv-$${name##*/} ARGS="-q $(SHARED) $(MATRIX_TESTS)" || exit 1; \
	    else \
	        echo "SKIPPED: no $$name here that can make an environment"; \
	    fi; \
	done

test-floors: ## test on the lowest versions of the run-time dependencies
	$(MAKE) test PYTHON=python3.11 VENV=.venv-floors PIP_ARGS="-c tools/floors.txt" ARGS=-q

docs: $(VENV)/.installed-docs ## build the documentation's site into build/site
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet $(ARGS)
	@echo "build/site/index.html; with search: $(RUN) -m http.server --directory build/site"

bench: $(VENV)/.installed-oracle $(VENV)/.installed-bench ## all benchmarks, beside PyTorch
	$(RUN) -m benchmarks $(ARGS)

clean: ## remove environments, caches and built files
	rm -rf .venv .venv-* build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Each run checks whether the environment works. If it does, the file is left untouched, so that Make
# does not take it for newer than what depends on it.
$(VENV)/pyvenv.cfg: FORCE
	@sh tools/make_venv.sh "$(VENV)" "$(PYTHON)"

comma := ,
# One pip installs several extras, whose names have commas between them. Each of them then counts as
# installed.
$(VENV)/.installed-%: pyproject.toml $(VENV)/pyvenv.cfg
	@sh tools/install.sh $(RUN) --quiet $(PIP_ARGS) --editable '.[$*]'
	@touch $@ $(addprefix $(VENV)/.installed-,$(subst $(comma), ,$*))
