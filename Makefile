# Needs python3 >= 3.11, make and git; everything else is fetched by hash or built, and kept out of the system.

PYTHON ?= python3
PYTEST_ARGS ?=
# Two processes, each with a cluster of its own, since most tests wait. One where they would have to share a cluster.
WORKERS ?= $(if $(KUBECONFIG)$(shell docker info >/dev/null 2>&1 && echo docker),0,2)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

VENV := .venv
BIN := $(VENV)/bin
CRD_FOLDERS := crds charts/cocoon-operator/files/crds
UV := .tools/uv/bin/uv
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.PHONY: help setup tools generate verify docs audit lint test test-unit test-e2e soak contract demo dev-up dev-down dev-status lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/installed ## Make .venv with everything pinned (nothing happens when it is up to date)

$(VENV)/installed: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "installing pinned packages into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

tools: setup ## Build etcd, kube-apiserver, kubectl, helm, ... once (minutes); print their folder
	@$(BIN)/python -m cocoon_devkit.tools

generate: setup ## Write crds/ and the chart's copy of it from the models, and the chart's README from its values
	@set -e; for folder in $(CRD_FOLDERS); do $(BIN)/python -m cocoon_operator.api.crd --output $$folder; done
	@$(BIN)/python -m cocoon_devkit.chartreadme

lint: setup ## Repair what ruff can, show the rest
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

verify: setup ## Check format, lint, types, layers and that generated files are fresh
	@set -e; for folder in $(CRD_FOLDERS); do $(BIN)/python -m cocoon_operator.api.crd --output $$folder --check; done
	@$(BIN)/python -m cocoon_devkit.chartreadme --check
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/zizmor --offline --no-progress --quiet --persona pedantic .github
	@$(MAKE) --no-print-directory docs audit

docs: setup ## Build docs/ into site/; a link that leads nowhere is an error
	@$(BIN)/mkdocs build

audit: setup ## Ask for known vulnerabilities of the pinned packages, where the database can be reached
	@$(BIN)/python -m cocoon_devkit.advisories

test: verify tools ## Everything: verify, unit tests, tests on a real control plane
	@$(PYTEST) $(PYTEST_ARGS)

test-unit: setup ## Only the tests that need no cluster (seconds)
	@$(PYTEST) tests/unit $(PYTEST_ARGS)

test-e2e: tools ## Only the tests on a real control plane
	@$(PYTEST) tests/e2e $(PYTEST_ARGS)

soak: setup ## Let the machines of the unit tests run twenty times longer, on new histories (minutes)
	@COCOON_SOAK=20 $(BIN)/python -m pytest tests/unit/reconcile/test_machine.py tests/unit/reconcile/test_machine_roles.py tests/unit/reconcile/test_machine_hibernation.py --timeout=7200

contract: setup ## Show which scenario of the contract has which test
	@$(BIN)/python -m cocoon_devkit.contract

demo: tools ## Show a CocoonSet being created, suspended, woken and deleted (KEEP=1 leaves the cluster running)
	@$(BIN)/python -m cocoon_devkit.demo $(if $(KEEP),--keep)

dev-up: setup ## Start cluster, registry and nodes for development; print the lines for your shell
	@$(BIN)/cocoon-devkit up

dev-down: setup ## Stop them and remove their data
	@$(BIN)/cocoon-devkit down

dev-status: setup ## Show what runs and how to reach it
	@$(BIN)/cocoon-devkit status || true

$(UV): requirements/uv.txt
	@$(PYTHON) -m venv --clear .tools/uv
	@.tools/uv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

lock: $(UV) ## Pin all packages with hashes again (UPGRADE=1 takes newer versions)
	@$(COMPILE) pyproject.toml -o requirements/runtime.txt
	@$(COMPILE) pyproject.toml --extra gcp -o requirements/gcp.txt
	@$(COMPILE) pyproject.toml --extra otel -o requirements/otel.txt
	@$(COMPILE) pyproject.toml --extra gcp --extra otel -o requirements/image.txt
	@$(COMPILE) pyproject.toml --extra gcp --extra otel --extra dev --group test --group lint --group docs --group build -o requirements/dev.txt
	@$(COMPILE) --group build -o requirements/build.txt
	@$(COMPILE) requirements/go.in -o requirements/go.txt
	@$(COMPILE) requirements/uv.in -o requirements/uv.txt

clean: ## Stop the development environment, remove .venv, .tools and caches (built tools stay in their cache)
	@if [ -d .dev/run ] && [ -x $(BIN)/cocoon-devkit ]; then $(BIN)/cocoon-devkit down; fi
	@rm -rf $(VENV) .tools .dev dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find operator tests -name __pycache__ -type d -prune -exec rm -rf {} +
