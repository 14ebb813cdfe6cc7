"""Config and helper functions of all stages. REQUIRED INPUTS: config.yaml or config/config.yaml (or --configfile); in a
module, its `config:`. OUTPUTS: none.
"""

import atexit
import functools
import json
import os
import re
import sys
from pathlib import Path

# Snakemake puts the directory of workflow/Snakefile on the import path, if it is on this disk
try:
    from vernacular.config import load as settings
except ModuleNotFoundError as error:
    if error.name != "vernacular":
        raise
    repository = "{0.host}/{0.repo}@{0.ref}".format(workflow.current_basedir)
    print(
        f'The package vernacular is not installed; run `pip install "vernacular[workflow] @ git+https://{repository}"`.',
        file=sys.stderr,
    )
    sys.exit(1)

from vernacular.comparison.curves.schema import ALL as CURVE_TABLES
from vernacular.config import resources as estimates, dependencies as specs
from vernacular.config.directories import (
    check_package,
    clear_unavailable,
    default_config,
    locate_directory,
    output_conflicts,
    rule_files,
    run_command,
)
from vernacular.core.console import record_failed_jobs, simplify, warn_without_slurm
from vernacular.core.fields import to_json
from vernacular.core.errors import ConfigError, UserError, escape_controls
from vernacular.core.fingerprint import code_fingerprint, libraries
from vernacular.core.written import COMPLETE

IS_MODULE = not workflow.modifier.is_main_snakefile()

RULES = str(workflow.current_basedir)


# The paths of outputs are below `prefix:` of a module. Snakemake adds it to the files of rules; it is needed here for
# what is not one: the store, unless the config names one, the directories that a run cleans up, and the results of
# checkpoints that were deleted
def locate(path):
    return locate_directory(path, workflow.modifier.path_modifier.replace_prefix)


try:
    check_package(RULES, [] if os.path.isdir(RULES) else [workflow.source_path(name) for name in rule_files()])
    if IS_MODULE and workflow.modifier.skip_configfile:
        CONFIG_FILES = [workflow.main_snakefile]  # which has the config, or names its file
        CONFIG = settings.load([], config, origin=f"config of the module {workflow.modifier.namespace}", locate=locate)
    else:
        CONFIG_FILES = list(map(str, workflow.overwrite_configfiles or [default_config()]))
        CONFIG = settings.load(CONFIG_FILES, dict(workflow.config_settings.config), locate=locate)
    BENCHMARKS = CONFIG.benchmarks  # Snakemake adds the prefix of a module
    CONFIG = CONFIG.with_directories(locate)
    if workflow.is_main_process:  # a job goes on if files were added since
        if conflicts := list(output_conflicts(Path(CONFIG.results), CONFIG.exports, CONFIG_FILES)):
            raise ConfigError("\n".join(conflicts))
except UserError as error:
    print(error, file=sys.stderr)
    sys.exit(1)

FAILED_JOBS = record_failed_jobs()
if not IS_MODULE:  # the messages of another workflow are its own
    simplify(FAILED_JOBS)
    if workflow.is_main_process:
        warn_without_slurm(sys.argv[1:])

# Every stage runs the package beside these rules, also in a conda environment, which does not contain it and drops
# PYTHONPATH. `exec` in the shell commands: a signal that ends a job reaches Python, not a shell that exits without it, and
# no shell prints the command if Python is killed
os.environ["VERNACULAR"] = str(settings.WORKFLOW / "stage.py")

# What a thread or Arrow frees is there for all: `infer` needs 200 MB less for 50,000 requests
os.environ.setdefault("MALLOC_ARENA_MAX", "1")
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

# The command of this run, for messages of its jobs
if workflow.is_main_process:
    os.environ["VERNACULAR_RUN"] = "snakemake -c4" if IS_MODULE else run_command(*CONFIG_FILES)

# Number of retries: the last attempt of a job that is killed for memory records why its results are missing. A job on
# another node parses this file again and reads the number from the environment. It is not known yet when this file is
# parsed, but when the resources of a job are, which happens before the job is submitted.
if workflow.is_main_process:
    os.environ["VERNACULAR_RETRIES"] = "0"


def n_retries():
    if workflow.is_main_process and workflow.execution_settings is not None:
        os.environ["VERNACULAR_RETRIES"] = str(workflow.execution_settings.retries)
    return int(os.environ["VERNACULAR_RETRIES"])


envvars:
    "VERNACULAR",
    "VERNACULAR_RETRIES",
    "VERNACULAR_RUN",


def attempt_label(wildcards, attempt):
    return f"{attempt}of{n_retries() + 1}"


# Everything that the result of a rule depends on in addition to its input files, as one string, because Snakemake stores
# separate params as a set. The code is that of the rule's command and its imports, with the versions of the libraries.
def spec(command, values, **others):
    return as_text({**to_json(values), **code_version(f"vernacular.stages.{command}"), **others})


@functools.cache
def code_version(command):
    return {"code": code_fingerprint(command), "libraries": libraries(command)}


def as_text(values):
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    # Snakemake takes {name} in a parameter for a wildcard, also in titles, paths and names of others
    return re.sub(r'"(?:[^"\\]|\\.)*"', lambda string: string[0].replace("{", "\\u007b").replace("}", "\\u007d"), text)


# The files of a stage, as members of its JSON object: inputs by name, directories of inputs, and others. A parameter that
# is a function of input or output is in no key. All is passed on standard input, because Linux limits arguments
DIRECTORIES = {"items_dir": "data", "requests_dir": "requests"}


def files(input, *names, **others):
    found = {name: above(input[DIRECTORIES[name]][0]) if name in DIRECTORIES else input[name] for name in names}
    return as_text(found | others)[1:-1]


# The command of a stage, which reads its fields from standard input as one JSON object (`vernacular STAGE --help`)
def stage(name, *, has_spec=True, has_attempts=True, python="python"):
    members = ["'{params.files:q}'", '"threads": {threads}', '"log": "\'{log:q}\'"']
    members += ["\"spec\": '{params.spec:q}'"] * has_spec + ['"attempt": "{resources.try_number}"'] * has_attempts
    return f"exec {python} \"$VERNACULAR\" {name} <<< '{{{{{', '.join(members)}}}}}'"


# A path in the directory of the results (`output:` in the config)
def in_output(path):
    return f"{CONFIG.output}/{path}"


# What stands for a directory whose files a command replaces (core/written.py): a file that is written last, because
# Snakemake empties an output `directory()`, with files of others in it. A storage plugin transfers what a rule declares;
# there the directory
IN_STORAGE = workflow.storage_settings.default_storage_provider is not None


def written(path):
    return path if IN_STORAGE else f"{path}/{COMPLETE}"


def as_output(path):
    return directory(path) if IN_STORAGE else written(path)


def written_directory(path):
    return path if IN_STORAGE else str(Path(path).parent)


# The HTML report in that of `snakemake --report`, which looks for annotated directories in the inputs, too
def page(caption):
    labels = {"contents": "HTML report"}
    return report(in_output("report"), caption=caption, category="Report", labels=labels, htmlindex="index.html")


# One file per evaluation; a {{wildcard}} in the pattern remains a wildcard
def expand_evaluations(pattern, protocols=None):
    selected = [e.id for e in CONFIG.evaluations.values() if protocols is None or e.protocol in protocols]
    return expand(pattern, evaluation=selected)


# The outputs of a model
OUTPUTS = [
    *expand_evaluations(in_output("{{model}}/scores/{evaluation}.parquet"), settings.SCORED),
    *expand_evaluations(in_output("{{model}}/generations/{evaluation}.parquet"), settings.GENERATED),
]


def items_files(protocols=None):
    selected = [e.items_stem for e in CONFIG.evaluations.values() if protocols is None or e.protocol in protocols]
    return expand("resources/items/{items}.parquet", items=list(dict.fromkeys(selected)))


# The tables of training curves; none without series in the config
def curve_files():
    return expand(in_output("summary/{table}.parquet"), table=CURVE_TABLES) if CONFIG.checkpoints else []


# The directory this many levels above a file
def above(file, levels=1):
    return str(Path(file).parents[levels - 1])


# The directory of the matched external results, as a field of a stage
def matched_field(input):
    return {"matched": above(input.matched[0])} if CONFIG.external_results else {}


# The settings of a base, and the records of the base and its adapters
def base_settings(wildcards):
    return CONFIG.models[wildcards.base]


def record_files(wildcards):
    return expand("resources/models/{model}.json", model=CONFIG.bases[wildcards.base])


# The record of an adapter's base; empty for other models
def base_record(wildcards):
    base = CONFIG.models[wildcards.model].get("base")
    return {"base": f"resources/models/{base}.json"} if base else {}


# CPU cores of a job: models on the CPU (or shards of one) run side by side and share the cores, because processes with one
# thread each do not wait for each other. Other jobs get all cores
def threads_of(settings, n_jobs):
    cores = workflow.resource_settings.cores  # None on a cluster, where the profile sets the threads
    return max(1, cores // n_jobs) if cores and settings["device"] == "cpu" else 64


def infer_threads(wildcards):
    return threads_of(base_settings(wildcards), base_settings(wildcards)["shards"])


def similarity_threads(wildcards):
    return threads_of(CONFIG.models[wildcards.model], len(CONFIG.models))


# Files of a judge about one model, one per evaluation: by default its outputs
def judge_files(judge, kind=None):
    entry = CONFIG.judges[judge]
    kind = kind or ("generations" if entry.reads == "text" else "scores")
    return [in_output(f"judges/{judge}/{{model}}/{kind}/{evaluation}.parquet") for evaluation in entry.evaluations]


# The texts that a judge reads: those of the judged model, and those of the baseline
def judged_texts(wildcards, judge):
    entry = CONFIG.judges[judge]
    models = [wildcards.model, *([entry.baseline] if entry.baseline else [])]
    return expand(in_output("{model}/generations/{evaluation}.parquet"), model=models, evaluation=entry.evaluations)


def judge_requests_spec(wildcards, judge):
    return spec("judge_requests", specs.judge_requests_spec(CONFIG, judge, wildcards.model))


# The outputs of all judges about a model; none for one that is not judged
def judges_of(wildcards):
    judges = [name for name, judge in CONFIG.judges.items() if wildcards.model in judge.models]
    return [path.replace("{model}", wildcards.model) for name in judges for path in judge_files(name)]


# What a judge needs for the texts of a model; the settings of its own model, and CPU cores
def judge_record(wildcards):
    return [f"resources/models/{CONFIG.judges[wildcards.judge].model}.json"]


def judge_requests(wildcards):
    return [path.replace("{model}", wildcards.model) for path in judge_files(wildcards.judge, "requests")]


def judge_settings(wildcards):
    return CONFIG.models[CONFIG.judges[wildcards.judge].model] | {"shards": 1}


def judge_threads(wildcards):
    return threads_of(judge_settings(wildcards), len(CONFIG.judges[wildcards.judge].models))


# A wildcard constraint: these names, or no name at all
def any_of(names):
    return "|".join(map(re.escape, names)) or r"(?!)"


# The status files of all inference jobs of a model
def status_files(wildcards):
    base = CONFIG.models[wildcards.model].get("base", wildcards.model)
    count = CONFIG.models[base]["shards"]
    return [in_output(f"inference_status/{base}/{k}of{count}.json") for k in range(1, count + 1)]


# The directory of Snakemake's records, as an input of every job that reads the config or data, on which all others depend.
# Only the records state which config a file is from. The directory is newer than the files whose records were deleted
# (people delete .snakemake to remove a lock), so that these jobs run; with a record, its age is ignored
modify_path = workflow.modifier.path_modifier.modify  # of this module; when the function is called, it is another one


def records(*paths):
    directory = local(os.path.relpath(workflow.persistence.path))
    is_recorded = all(workflow.persistence.metadata(IOFile(modify_path(path))) for path in paths)
    return ancient(directory) if is_recorded else directory


# A table of summary/, annotated for `snakemake --report`
def table(name, form):
    path = in_output(f"summary/{name}{'.csv' if form == 'CSV' else '.xlsx'}")
    labels = {"table": name.replace("_", " "), "format": form}
    return report(path, caption=f"../report/{name}.rst", category="Tables", labels=labels)


wildcard_constraints:
    base="|".join(map(re.escape, CONFIG.bases)),
    shard=r"\d+of\d+",
    model="|".join(map(re.escape, CONFIG.models)),
    evaluation="|".join(map(re.escape, CONFIG.evaluations)),


# Unavailable results are tried again by the next run. Planning deletes nothing, so their files are removed when a run
# ends
def clear():
    stems = [e.items_stem for e in CONFIG.evaluations.values()]
    names = {*CONFIG.models, *CONFIG.encoders, *CONFIG.evaluations, *CONFIG.external_results, *stems}
    clear_unavailable(Path(CONFIG.resources), Path(CONFIG.results), names)


# Snakemake does not call the handlers below in a module; the workflow that imports it can, and whether it does or not,
# the files are removed. `workflow.executor_plugin` is set when jobs are run
@atexit.register
def clear_module():
    is_run = workflow.is_main_process and workflow.executor_plugin and not workflow.dryrun
    if IS_MODULE and is_run:
        clear()


def print_results():
    languages = list(dict.fromkeys(evaluation.language for evaluation in CONFIG.evaluations.values()))
    fields = {"benchmarks": CONFIG.benchmarks, "results": f"{CONFIG.results}/summary", "languages": languages}
    fields = as_text(fields | {"tasks": specs.task_titles(CONFIG)})
    shell('python "$VERNACULAR" print-results <<< {fields:q}')


onsuccess:
    clear()
    print_results()


# after Ctrl-C or a failure, the last message of the run gives the reasons and how to resume; a workflow that imports this
# one keeps its own messages
onerror:
    clear()
    if FAILED_JOBS.has_summary:
        print_results()
    if IS_MODULE:
        print(escape_controls(FAILED_JOBS.summary()), file=sys.stderr)
