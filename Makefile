# Sluice: `make run` starts it, `make test` proves it. Needs Python 3.11 or later, and nothing else.
# Another Python: make run PYTHON=/path/to/python3.12       More arguments: make test ARGS='-k session'

.DEFAULT_GOAL := help
.PHONY: help run quick test deep shaky costs chaos lint bench package images lock

BIN := .venv/bin

# A copy of the checkout with the core compiled (`deploy/compile`), found before the checkout itself.
IN_COMPILED = cd .compiled/tree && PYTHONPATH="$$PWD:$$PWD/deploy/package"

# The first Python that is new enough, unless one is given. Paths stay relative: a folder's name may
# hold a space.
PYTHON ?= $(shell for each in python3 python python3.13 python3.12 python3.11 python3.14; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$each" && exit; done)

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

run: .venv/run.stamp $(if $(findstring --milvus,$(ARGS)),.venv/milvus.stamp) $(if $(findstring --postgres,$(ARGS)),.venv/postgres-demo.stamp) ## start control API, sidecar and a sample data source; Ctrl-C stops them
	@exec $(BIN)/sluice up $(ARGS)

quick: .venv/quick.stamp ## the tests that cost next to nothing, while writing
	@$(call tests,--quick)

test: .venv/test.stamp ## the gate: every claim once, against real servers; COMPILED=1 with the compiled core
	@$(call tests)

deep: .venv/deep.stamp ## every test; MANY=1 tries more of what they draw, COMPILED=1 with the compiled core
	@$(call tests,--deep $(if $(MANY),--hypothesis-profile=many))

costs: .venv/deep.stamp ## measure what every test costs, and write it to tests/costs.json
	@$(call tests,--deep --costs)

define tests
	$(if $(COMPILED),$(BIN)/python -m deploy.compile tree .compiled)
	$(if $(COMPILED),$(IN_COMPILED) '$(CURDIR)'/)$(BIN)/python -m pytest --workers=auto $(1) $(ARGS)
endef

shaky: .venv/test.stamp ## run ARGS=tests/… TIMES=20 times on a machine that stalls: for new and changed tests
	$(BIN)/python -m tests.shaky --times $(or $(TIMES),20) $(ARGS)

chaos: .venv/test.stamp ## the fault matrix: what must hold while anything fails; about ten minutes
	$(BIN)/python -m tests.chaos $(ARGS)

lint: .venv/packages.stamp ## style, types, and who may import whom
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache

bench: .venv/test.stamp ## the measured figures, as ratios
	$(BIN)/python -m tests.benchmarks $(ARGS)

package: .venv/test.stamp ## build wheel and sdist into dist, and try them on every Python found
	$(BIN)/python -m tests.deploy.package

images: ## build the container images from BASE=debian:bookworm-slim@sha256:… (needs buildah, podman or docker)
	'$(PYTHON)' -m deploy.images --base '$(BASE)' $(ARGS)

lock: ## pin the newest versions again (needs uv)
	'$(PYTHON)' -m deploy.lock

# A Python that is named on the command line or in the environment is the one that runs: a .venv made
# by another one is made anew. Without a name, whatever .venv has stays.
ifneq ($(filter command environment,$(firstword $(origin PYTHON))),)
NAMED := --this-python
ifneq ($(shell '$(PYTHON)' -m deploy.install made-by-this 2>&1),yes)
.venv/run.stamp .venv/quick.stamp .venv/packages.stamp: .FORCE
endif
endif

.PHONY: .FORCE
.FORCE:

# The whole lock holds the run part too, so a tree made ready for tests is ready to run.
.venv/run.stamp: requirements.lock pyproject.toml
	@$(call install,run)

# Without what is large and no quick test imports, and without the programs of others.
# What `make run ARGS=--milvus` runs besides.
.venv/milvus.stamp: .venv/run.stamp
	@$(call install,milvus)

# What `make run ARGS=--postgres` runs besides.
.venv/postgres-demo.stamp: .venv/run.stamp
	@$(call install,postgres-demo)

.venv/quick.stamp: requirements.lock pyproject.toml
	@$(call install,quick)

.venv/packages.stamp: requirements.lock pyproject.toml
	@$(call install,test)
	@touch .venv/run.stamp .venv/quick.stamp .venv/milvus.stamp .venv/postgres-demo.stamp

# Tests fetch nothing. Without one of the programs, those that need it are skipped and say so. An
# interrupted fetch keeps what is whole: packages have a stamp of their own, each program its folder.
.venv/test.stamp: .venv/packages.stamp tests/programs/sources.py
	@$(BIN)/python -m tests.servers || true
	@touch $@

.venv/deep.stamp: .venv/test.stamp
	@$(BIN)/python -m tests.servers --deep || true
	@touch $@

define install
	test -n '$(PYTHON)' || { echo 'no Python 3.11 or later was found: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12' >&2; exit 1; }; \
	'$(PYTHON)' -m deploy.install $(1) $(NAMED) && touch $@
endef
