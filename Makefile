# Each target sets up what it needs in .venv, with only Python and make.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# DOCKER_BUILD='docker build --network=host' if containers of a build have no network of their own.
DOCKER_BUILD ?= docker build
# How many seconds parts are killed and stopped at random in each test of make chaos.
chaos_seconds ?= 600
# Share of the full number of each kind that make attack tries, and the time limit.
attack_count ?= 1
attack_seconds ?= 600
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' carpool/__init__.py)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
BUILD = $(DOCKER_BUILD) --file docker/Dockerfile --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION)
RUN := $(VENV)/.ready-run
DEV := $(VENV)/.ready-dev
# The Python with which make release tries the wheel.
release_python ?= $(PY)
# Number of processes that run tests; jobs=0 runs them in pytest itself.
jobs ?= auto
PYTEST := $(PY) -m pytest --numprocesses $(jobs) --dist loadgroup

# A test run starts hundreds of processes: each would compile again what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Texts without the words of docs/words.txt and the phrases of docs/phrases.txt.
WORDED := Makefile README.md CHANGELOG.md CONTRIBUTING.md RELEASING.md SECURITY.md docs carpool watchdog_plugin faas_stack scaler simulator sidecar \
	templates examples docker charts scripts benchmarks

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-timing coverage soak chaos attack lint format bench docs site pictures release images images-gpu manifests base-images kubernetes lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(RUN) ## serve real models and compare batching policies, in about a minute
	$(PY) -m carpool demo

test: $(DEV) ## run all tests except the slow ones, in minutes, on all cores
	$(PYTEST) -p no:rerunfailures

test-all: $(DEV) ## run every test, including the slow end-to-end tests
	$(PYTEST) -m "not timing" --hypothesis-profile=thorough -r aR
	$(MAKE) test-timing

test-timing: $(DEV) ## run the tests that measure time, one at a time; retries are reported
	$(PY) -m pytest -m timing --reruns 2 -rR

coverage: $(DEV) ## run the tests, and list lines and branches that are not covered
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

soak: $(DEV) ## load the sidecar for some minutes, with bad requests, killed handlers, disconnecting clients and new plans
	$(PY) -m tests.soak

chaos: $(DEV) ## kill and stop all parts of a running stack at random, under load, for chaos_seconds in each test
	chaos_seconds=$(chaos_seconds) $(PY) -m pytest -m slow tests/live/test_chaos.py

attack: $(DEV) ## attack the servers, the wire format and all file readers; prints counts at the end
	attack_count=$(attack_count) attack_seconds=$(attack_seconds) $(PYTEST) -m "not timing" --timeout 3600 tests/attack

lint: $(DEV) ## check formatting, types, import rules and spelling
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell
	$(VENV)/bin/codespell --dictionary docs/words.txt $(WORDED)
	$(PY) docs/generate.py --check

format: $(DEV) ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(DEV) ## run all benchmarks, three hours
	$(PY) -m benchmarks

docs: $(DEV) ## generate the tables of the documentation from the code
	$(PY) docs/generate.py

site: $(DEV) ## build the documentation site in build/site, which can be read without a network
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "the site is in build/site: open build/site/index.html"

pictures: $(DEV) ## take screenshots of reports and of the scaler's page into build/pictures; needs Chromium
	mkdir -p build/pictures
	CARPOOL_PICTURES=$(CURDIR)/build/pictures $(PY) -m pytest -q -m slow \
		tests/simulator/test_report_page.py tests/scaler/dashboard/test_page.py tests/live/test_dashboard.py

release: $(DEV) ## rehearse a release into dist/, without publishing; release_python sets another Python
	$(PY) scripts/release.py --python $(release_python)

images: ## build the images of sidecar, scaler, provider and functions; needs a Docker Engine
	for target in sidecar scaler provider function; do $(BUILD) --target $$target --tag carpool/$$target . || exit; done
	@docker image ls --filter=reference='carpool/*' --format 'table {{.Repository}}\t{{.Tag}}\t{{.Size}}'

images-gpu: ## build the image of functions on GPUs
	$(BUILD) --target function-gpu --tag carpool/function-gpu .

manifests: ## render charts/manifests from the chart; needs helm
	$(PY) scripts/manifests.py

base-images: ## build base images locally if none can be pulled; for tests on this machine only
	$(PYTHON) scripts/base_images.py

kubernetes: ## build the Kubernetes programs of tests/cluster; needs Go, and takes minutes the first time
	$(PYTHON) tests/cluster/programs/build.py

lock: $(DEV) ## update the locked versions of constraints.txt and of the images, with hashes
	$(PY) scripts/lock.py

clean: ## remove everything that make has created
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is touched when its installation has succeeded, so that a second run does nothing.
$(RUN): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Carpool needs Python 3.11 or newer; this is $$($(PYTHON) -V 2>&1). Use another one, for example: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "This Python has no venv module; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[onnx,scaler,stack,docker,kubernetes,examples]'
	@touch $@

$(DEV): $(RUN)
	$(PIP) --editable '.[onnx,scaler,stack,docker,kubernetes,solver,traces,grpc,examples,dev,docs]'
	@touch $@
