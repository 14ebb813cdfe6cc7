"""Arguments of all commands: those for people, and those of the workflow's rules."""

import argparse
import json
import sys
from pathlib import Path

from vernacular import __version__


def add_user_commands(commands) -> None:
    """Add the commands for people to the subparsers of the parser."""

    def add(name: str, help_text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        command.set_defaults(run=name, contained=False, stage=False)
        command.add_argument("--log", type=Path, help="file for messages and warnings")
        return command

    check = add("check", "report all mistakes of a config and list its evaluations")
    check.add_argument("config", type=Path, nargs="*", default=[Path("config.yaml")], help="default: config.yaml")
    check.add_argument("--online", action="store_true", help="also ask the Hub whether its models and datasets exist")

    revisions = add("revisions", "list the checkpoints on the Hub that a pattern in `revisions:` may match")
    revisions.add_argument("config", type=Path, nargs="*", default=[Path("config.yaml")], help="default: config.yaml")

    tasks = add("tasks", "list tasks with their languages, protocols and licenses")
    tasks.add_argument("language", nargs="?", help="only tasks in this language: gl, Galician")
    tasks.add_argument("--directory", type=Path, action="append", default=[], help="further directory of task files")

    tasks.add_argument(
        "--lm-eval",
        nargs="?",
        const="",
        metavar="NAME",
        help="tasks of lm-eval: all, those that match *, or of a group",
    )
    tasks.add_argument(
        "--lm-eval-python", metavar="PATH", help="interpreter of lm-eval's environment, as in the config"
    )

    show = add("show", "print the requests of an item, and their tokens, before any model is run")
    show.add_argument("config", type=Path)
    show.add_argument("evaluation", help="ID, as `vernacular check` lists it")
    show.add_argument("--item", type=int, default=1, help="number of the item, from 1")
    show.add_argument("--model", help="also print the tokens of this model of the config")

    table = add("table", "print a table of results for a paper, as LaTeX or Markdown")
    table.add_argument("config", type=Path, nargs="?", default=Path("config.yaml"), help="default: config.yaml")
    for name, example in (("tasks", "belebele,cola"), ("languages", "gl,es"), ("models", "base,mine")):
        table.add_argument(f"--{name}", type=_names, metavar="NAMES", help=f"only these: {example}")
    table.add_argument("--protocols", type=_names, metavar="NAMES", help="only these: options,generation")
    table.add_argument(
        "--metrics", type=_names, metavar="NAMES", help="default: the headline metric that represents each evaluation"
    )
    table.add_argument("--format", choices=["latex", "markdown"], default="latex", help="default: latex")
    table.add_argument(
        "--marks",
        choices=["significance", "interval"],
        default="significance",
        help="mark values that do not differ significantly from the best, or print 95%% intervals",
    )
    table.add_argument("--label", default="tab:results", help="of the LaTeX table; default: tab:results")

    publish = add("publish", "write report, tables and exchange files of a run to a folder, without local paths")
    publish.add_argument("results", type=Path, help="directory of the results: results")
    publish.add_argument("folder", type=Path, help="folder to write: vernacular-results")
    publish.add_argument("--organization", default="not stated", help="your organization, for the exchange files")
    relationships = ["first_party", "third_party", "collaborative", "other"]
    publish.add_argument("--relationship", choices=relationships, default="other", help="to the models' developers")

    join = add("join", "write one leaderboard of several publications")
    join.add_argument("folder", type=Path, help="folder of publications, as `vernacular publish` writes them")
    join.add_argument("out", type=Path, help="directory to write: leaderboard")

    init = add("init", "write a config file for models and languages, or the prompt lines of a language to translate")
    init.add_argument(
        "config", type=Path, help="file to write: mine.yaml; with --prompts-from: my_tasks/prompts/ast.yaml"
    )
    add_source = {"action": "append", "dest": "models", "default": [], "metavar": "SOURCE"}
    model_help = "Hub ID, path, package:NAME or address of a server; may be repeated"
    init.add_argument("--model", type=lambda source: ("model", source), help=model_help, **add_source)
    adapter_help = "adapter of the --model before it; may be repeated"
    init.add_argument("--adapter", type=lambda source: ("adapter", source), help=adapter_help, **add_source)
    init.add_argument("--language", nargs="+", help="codes or English names: gl Basque")
    init.add_argument("--prompts-from", metavar="LANGUAGE", help="write its prompt lines, to translate, instead")
    init.add_argument("--directory", type=Path, action="append", default=[], help="further directory of task files")

    plan = add("plan", "print what numbers of items and prompts can show, before a run or from an earlier one")
    plan.add_argument("--items", type=int, nargs="+", default=[100, 200, 500, 1000, 2000], help="default: 100 … 2000")
    plan.add_argument("--items-per-cluster", type=float, default=1, help="items per passage; default: 1")
    plan.add_argument("--sd-prompts", type=float, default=2, help="assumed, in points of accuracy; default: 2")
    plan.add_argument("--se", type=float, help="wanted standard error, in points (or the metric's unit): items needed")
    plan.add_argument("--results", type=Path, help="directory of a run with several prompts, whose components are used")
    plan.add_argument("--evaluation", help="ID in prompts.csv; default: the first")
    plan.add_argument("--metric", help="default: the first headline metric")
    add("snakefile", 'print the path of the workflow: snakemake -c4 --snakefile "$(vernacular snakefile)"')

    treebank = add("treebank", "extract minimal pairs from treebanks and explain the steps")
    treebank.add_argument("treebank", type=Path, nargs="+", help="CoNLL-U files")
    treebank.add_argument("--pattern", nargs="+", help="names of included patterns (by default, list them), or files")
    treebank.add_argument(
        "--forms", type=Path, nargs="*", default=[], help="additional word forms: CoNLL-U or UniMorph files"
    )
    treebank.add_argument(
        "--explain", action="store_true", help="print counts per step, and examples (default without --csv)"
    )
    treebank.add_argument("--examples", type=int, default=5, help="number of pairs to print per pattern")
    treebank.add_argument("--csv", type=Path, help="write all pairs to this file, in the columns of Grew-TSE")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


_ATTEMPT_HELP = (
    "attempt and number of attempts: 1of3; the last one writes why results are missing and exits with status 0"
)
# the rules pass it on standard input: Linux limits arguments to 128 KB, which a few hundred evaluations exceed
_SPEC_HELP = "specification of the outputs as JSON (vernacular.config.dependencies); - reads it from standard input"
_EPILOG = """
To evaluate models, run `snakemake`; the README describes how. The rules of the workflow run these commands, one per
stage, whose arguments `vernacular COMMAND --help` describes:

  {stages}
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the help lists the commands for people first."""
    root = argparse.ArgumentParser(
        prog="vernacular",
        description="Evaluation of language models in low-resource languages.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"vernacular {__version__}")
    root.add_argument(
        "--print-completion", choices=("bash", "zsh", "tcsh"), action=_PrintCompletion, help="completion for a shell"
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    add_user_commands(commands)
    n_user_commands = len(commands.choices)
    _add_stage_commands(commands)
    root.epilog = _EPILOG.format(stages=", ".join(list(commands.choices)[n_user_commands:]))
    return root


class _PrintCompletion(argparse.Action):
    """Print a script that completes commands, options and files in a shell."""

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error(f"{option_string} needs the package shtab; run `pip install shtab`.")
        for command in _subparsers(parser):
            for action in command._actions:
                if action.type is Path:
                    action.complete = shtab.FILE
        print(shtab.complete(parser, values))
        parser.exit()


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return list(commands.choices.values())


def _add_stage_commands(commands) -> None:
    def add(
        name: str, run: str, help_text: str, *, spec: bool = True, contained: bool = False
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, description=f"{help_text[0].upper()}{help_text[1:]}.")
        command.set_defaults(run=run, contained=contained, stage=True)
        if contained:
            command.add_argument("--attempt", type=_attempt, default=(1, 1), help=_ATTEMPT_HELP)
        if spec:
            command.add_argument("--spec", type=_json, required=True, help=_SPEC_HELP)
        command.add_argument("--log", type=Path, help="file for messages and warnings")
        return command

    items = add("items", "items", "read datasets into items", contained=True)
    items.add_argument("--out", type=Path, required=True, help="directory of the items files")

    requests = add("requests", "requests", "write the prompts of evaluations", contained=True)
    requests.add_argument("--items-dir", type=Path, required=True)
    requests.add_argument("--out", type=Path, required=True, help="directory of the requests files")

    for name in ("model", "encoder"):
        fetch = add(name, f"fetch:{name}", f"fetch one {name} and record its properties", contained=True)
        fetch.add_argument("--out", type=Path, required=True)
        if name == "model":
            fetch.add_argument("--base", type=Path, help="record of the base model, for an adapter")

    server = add("server", "server", "probe a server and record what its model can answer", contained=True)
    server.add_argument("--out", type=Path, required=True)

    infer = add(
        "infer", "infer", "compute the outputs of a base model and its adapters that the store lacks", contained=True
    )
    infer.add_argument(
        "--models", type=Path, nargs="+", required=True, help="records of the base model, then of its adapters"
    )
    infer.add_argument("--requests", type=Path, nargs="+", required=True)
    infer.add_argument("--shard", default="1of1", help="shard of the work, and number of shards: 2of4")
    infer.add_argument("--out", type=Path, required=True, help="status file, written at the end")
    infer.add_argument("--store", type=Path, required=True)
    infer.add_argument("--threads", type=int, default=1)

    collect = add("collect", "collect", "write one model's outputs from the store to its results")
    collect.add_argument("--model", type=Path, required=True)
    collect.add_argument("--requests", type=Path, nargs="+", required=True)
    collect.add_argument("--status", type=Path, nargs="+", required=True, help="status files of infer, one per shard")
    collect.add_argument("--out", type=Path, required=True, help="directory of the model's results")
    collect.add_argument("--store", type=Path, required=True)

    similarity = add(
        "similarity", "similarity", "compute the similarity of generated outputs to the options", contained=True
    )
    similarity.add_argument("--encoders", type=Path, nargs="*", default=[])
    similarity.add_argument("--model", type=Path, required=True, help="record of the evaluated model")
    similarity.add_argument("--items-dir", type=Path, required=True)
    similarity.add_argument("--requests-dir", type=Path, required=True)
    similarity.add_argument("--generations", type=Path, nargs="*", default=[])
    similarity.add_argument("--out", type=Path, required=True)
    similarity.add_argument("--threads", type=int, default=1)

    metrics = add("metrics", "metrics", "compute one model's per-item results and metrics", contained=True)
    metrics.add_argument("--model", type=Path, required=True)
    metrics.add_argument("--items-dir", type=Path, required=True)
    metrics.add_argument("--requests-dir", type=Path, required=True)
    metrics.add_argument("--out", type=Path, required=True, help="directory of the model's results")

    lm_eval_requests = add(
        "lm-eval-requests",
        "lm_eval_requests",
        "write the prompts of lm-eval tasks, in the environment of lm-eval",
        contained=True,
    )
    lm_eval_requests.add_argument("--items-dir", type=Path, required=True)
    lm_eval_requests.add_argument("--out", type=Path, required=True, help="directory of the requests files")

    lm_eval_metrics = add(
        "lm-eval-metrics",
        "lm_eval_metrics",
        "compute the metrics of lm-eval tasks, in the environment of lm-eval",
        contained=True,
    )
    lm_eval_metrics.add_argument("--requests-dir", type=Path, required=True)
    lm_eval_metrics.add_argument("--items-dir", type=Path, required=True)
    lm_eval_metrics.add_argument("--results", type=Path, required=True, help="directory of the model's results")
    lm_eval_metrics.add_argument("--out", type=Path, required=True, help="directory of lm-eval's results")

    add("lm-eval-index", "lm_eval_index", "list the tasks of the lm_eval installed in this environment", spec=False)

    export = add("export", "export", "export results in the formats of PalmX, the Serbian cloze scripts and Grew-TSE")
    export.add_argument("--items-dir", type=Path, required=True)
    export.add_argument("--tasks", type=Path, nargs="+", required=True)
    export.add_argument("--out", type=Path, required=True)

    compare = add("compare", "compare", "compare models on the items that they share")
    compare.add_argument("--results", type=Path, required=True, help="directory with one directory per model")
    compare.add_argument("--items-dir", type=Path, required=True)
    compare.add_argument("--out", type=Path, required=True, help="directory of the tables")
    compare.add_argument(
        "--changes", type=Path, required=True, help="directory of the improved and regressed items, by pair"
    )
    compare.add_argument("--threads", type=int, default=1)

    curves = add("curves", "curves", "compute training curves of series, and which tasks can be trusted")
    curves.add_argument("--results", type=Path, required=True, help="directory with one directory per model")
    curves.add_argument("--out", type=Path, required=True, help="directory of the tables")

    summary = add("summary", "summary", "collect the metrics of all models in tables and spreadsheets")
    summary.add_argument("--metrics", type=Path, nargs="+", required=True)
    summary.add_argument("--config", nargs="*", default=[], help="files of the config, which are recorded")
    summary.add_argument("--out", type=Path, required=True)

    report = add("report", "report", "write the HTML report")
    report.add_argument("--results", type=Path, required=True, help="directory with one directory per model")
    report.add_argument("--models", type=Path, nargs="+", required=True, help="records of the models")
    report.add_argument(
        "--changes", type=Path, required=True, help="directory of the improved and regressed items, by pair"
    )
    report.add_argument("--benchmarks", type=Path, help="directory of Snakemake's benchmark files")
    report.add_argument("--out", type=Path, required=True, help="directory of the report")
    report.add_argument("--threads", type=int, default=1)

    verify = add("verify", "status:verify", "fail if results are missing from the summary", spec=False)
    verify.add_argument("--notes", type=Path, required=True)
    verify.add_argument("--out", type=Path, required=True)

    finish = add("finish", "status:finish", "print paths, comparisons and times at the end of a run", spec=False)
    finish.add_argument("benchmarks", type=Path)
    finish.add_argument("--results", type=Path, required=True)


def _attempt(text: str) -> tuple[int, int]:
    number, count = text.split("of")
    return int(number), int(count)


def _json(text: str) -> dict:
    return json.loads(sys.stdin.read() if text == "-" else text)
