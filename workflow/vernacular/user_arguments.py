"""Arguments of the commands for people."""

import argparse
from pathlib import Path


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
    tasks.add_argument("language", nargs="?", help="only tasks in this language: gl")
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

    init = add("init", "write a config file for models and languages")
    init.add_argument("config", type=Path, help="file to write: mine.yaml")
    init.add_argument("--model", action="append", required=True, metavar="SOURCE", help="Hub ID, path or package:NAME")
    init.add_argument("--language", nargs="+", required=True, help="codes: gl es")
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
    treebank.add_argument("--pattern", nargs="+", required=True, help="names of included patterns, or files (….yaml)")
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
