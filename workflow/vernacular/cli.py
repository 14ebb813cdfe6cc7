"""The command `vernacular`: commands for people, and stages of the workflow, which read one JSON object.

A command ends with one line that summarizes its result. A user error is one or two lines, with exit status 1; all other
messages of a stage are written to its log.
"""

import argparse
import dataclasses
import importlib
import json
import logging
import os
import re
import shlex
import sys
import time
import typing
from pathlib import Path

from vernacular import __version__
from vernacular.core import processes
from vernacular.core.errors import MachineError, UserError, as_write_error, is_contained, named, suggest, writing
from vernacular.core.fields import Stage, from_json
from vernacular.core.logs import escaped_output, log_to
from vernacular.core.paths import WORKFLOW

log = logging.getLogger("vernacular")

_MAX_DEATHS = 4  # of the process of one command, each in another evaluation

# stages whose failure affects their own results only: the last attempt writes files that state why these are missing
_GIVING_UP = ("items", "requests", "lm-eval-requests", "model", "server", "infer", "encoder", "similarity",
              "lm-eval-metrics", "metrics", "judge-requests")  # fmt: skip
STAGES = (*_GIVING_UP, "collect", "export", "compare", "external", "changes", "faults", "estimates", "curves",
          "between-languages", "audit-lists", "summary", "report", "finish", "print-results")  # fmt: skip
# command -> its module in `stages/` or `commands/` and function, if these have other names
_MODULES = {
    **{name: f"check:{name}" for name in ("init", "show", "snakefile")},
    **{name: f"fetch:{name}" for name in ("model", "encoder")},
    "audit-lists": "audit:audit_lists",
    **{name: f"tasks:{name}" for name in ("audit", "revisions", "treebank")},
    "join": "publish:join",
}


@escaped_output()
def main(arguments: list[str] | None = None, *, supervised: bool = False, fields: str | None = None) -> int:
    """Run a command and return its exit status; `fields`: the JSON of a stage, by default from standard input.

    `supervised`: run a stage in a child process, so that its log states the reason if the process dies. If a stage that
    contributes to the summary dies, raises an unexpected error, or cannot run on this machine, files that state why
    replace its results, and the status is 0: others continue, and rule `finish` reports the failure at the end.
    """
    parser = _parser()
    name, known = next(iter(sys.argv[1:] if arguments is None else arguments), "-"), _subparsers(parser)
    if not name.startswith("-") and name not in known:  # argparse would list the stages, too
        parser.error(f'unknown command "{name}".{suggest(name, known.keys() - set(STAGES))}')
    args, args.options = parser.parse_known_args(arguments)
    if args.options and args.command not in ("run", "lm-eval"):  # whose others are Snakemake's and lm-eval's
        parser.error(f"unrecognized arguments: {' '.join(args.options)}")
    # libraries write no progress bars and no warnings to the terminal, unless the user sets these variables
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if args.command in ("infer", "similarity"):
        # all files were downloaded before; a progress bar per weight file is not informative
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    if args.stage:
        try:
            if fields is None:
                fields = "" if sys.stdin.isatty() else sys.stdin.read()
            args.fields, common = _parse_fields(args.command, fields)
        except UserError as error:
            return _fail(args, error)
        args.log, args.is_last = common.log, common.attempt.number >= common.attempt.count
    if not (supervised and args.stage):
        return _run(args)
    for _ in range(_MAX_DEATHS):
        status = processes.fork_child()
        if status is None:
            status = _run(args)
            return status if status == 130 else processes.exit_child(status)
        if (reason := processes.termination_cause(status)) is None:
            return status
        log_to(args.log, append=True)
        if not (args.gives_up and args.is_last):
            _fail(args, UserError(f"{reason}.{' The next attempt runs it again.' if args.gives_up else ''}"))
            return 128 - status
        from vernacular.stages.common import Attempts  # only after a death, because it takes long

        if not Attempts(_arguments(args)).record_death(reason):
            break
        args.fields["restarted"] = True
    return _give_up(args, reason)


def _parse_fields(command: str, text: str) -> tuple[dict, Stage]:
    """Return the fields of a stage, and those that all stages have; its module checks the others."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise UserError(f"{command}: expected one JSON object on standard input, got {text!r:.80} ({error}).") from None
    if not isinstance(fields, dict):
        raise UserError(f"{command}: expected one JSON object on standard input, got {text!r:.80}.")
    names = [field.name for field in dataclasses.fields(Stage)]
    return fields, from_json(Stage, {name: value for name, value in fields.items() if name in names}, command)


def _arguments(args):
    """Return what the function of a command takes: its arguments, or the fields of a stage."""
    return from_json(fields_of(args.command), args.fields, args.command) if args.stage else args


def fields_of(name: str) -> type[Stage]:
    return typing.get_type_hints(_command(name))["args"]


def _log_repetition(args) -> None:
    """Write the fields of a stage beside its log, and the line that repeats the stage to its log."""
    path = args.log.with_suffix(".json")
    with writing(path):
        path.write_text(json.dumps(args.fields, indent=1, ensure_ascii=False) + "\n", "utf-8")
    command = shlex.join([sys.executable, str(WORKFLOW / "stage.py"), args.command])
    log.info("%s has the fields of this stage. To repeat it: %s < %s", path, command, shlex.quote(str(path)))


def _run(args) -> int:
    started = time.perf_counter()
    try:
        log_to(args.log, append=args.stage and args.fields.get("restarted", False))
        if args.stage and args.log:
            _log_repetition(args)
        if summary := _command(args.command)(_arguments(args)):
            summary = f"{summary} ({time.perf_counter() - started:.1f} s)"
            log.info(summary)  # at the end of the log, if there is one
            print(summary, flush=True)
    except MachineError as error:
        if args.gives_up and args.is_last:
            return _give_up(args, str(error))
        return _fail(args, error)
    except UserError as error:
        return _fail(args, error)
    except BrokenPipeError:  # the reader of the output has ended: `vernacular tasks | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at the end would fail again
        return 0
    except KeyboardInterrupt:
        if args.log:
            log.error("interrupted")
        print(f"{args.command}: interrupted. Run the same command again to repeat it.", file=sys.stderr)
        return 130
    except BaseException as error:
        if write_error := as_write_error(error):
            return _fail(args, write_error)
        if not is_contained(error):
            raise
        log.exception("unexpected")
        if not args.gives_up:
            raise
        return _give_up(args, named(error))
    return 0


def _fail(args, error: UserError) -> int:
    if args.log:
        log.error(str(error))
    message = str(error).removeprefix(f"{args.command}: ")
    if args.stage:  # the output of stages is mixed; a list in the log is printed at the end of the run
        first, *rest = message.split("\n")
        message = f"{args.command}: {first.removesuffix(':') if args.log and len(rest) > 1 else message}"
    print(message, file=sys.stderr)
    return 1


def _give_up(args, reason: str) -> int:
    """Run a command again, which only writes files that state why its results are missing; return its exit status."""
    args.fields["failure"] = reason
    summary = _command(args.command)(_arguments(args))
    log.error(summary)
    print(summary, file=sys.stderr, flush=True)
    return 0


def _command(name: str):
    """Return the function of a command, whose module is imported only when it runs."""
    package, module, function = _place(name)
    try:
        return getattr(importlib.import_module(f"vernacular.{package}.{module}"), function)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] == "vernacular":
            raise
        advice = 'commands other than lm-eval need pip install "vernacular[workflow]"'
        raise UserError(f"the package {error.name} is not installed; {advice}") from error


def _place(name: str) -> tuple[str, str, str]:
    """Return the names of the package, the module and the function of a command or stage."""
    module, _, function = _MODULES.get(name, name.replace("-", "_")).partition(":")
    return "stages" if name in STAGES else "commands", module, function or module


def _parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="vernacular",
        description="Evaluation of language models in low-resource languages.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG.format(stages=", ".join(STAGES)),
    )
    root.add_argument("--version", action="version", version=f"vernacular {__version__}")
    root.add_argument(
        "--print-completion", choices=("bash", "zsh", "tcsh"), action=_PrintCompletion, help="completion for a shell"
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    _add_user_commands(commands)
    for name in STAGES:
        stage = commands.add_parser(name, add_help=False)
        stage.set_defaults(stage=True, gives_up=name in _GIVING_UP, log=None)
        stage.add_argument("-h", "--help", action=_PrintFields, nargs=0)
    return root


_EPILOG = """
To evaluate models, run `snakemake`; the README describes how. The rules of the workflow run these stages, each of which
reads one JSON object from standard input; `vernacular STAGE --help` lists its fields. The log of a job names the file
with the JSON of the job, and the line that repeats it.

  {stages}
"""


class _PrintFields(argparse.Action):
    """Print the fields of a stage and of its spec, as their classes state them; importing these may take long."""

    def __call__(self, parser, namespace, values, option_string=None):
        package, module, function = _place(parser.prog.split()[-1])
        names = (f"{package}/{module}.py", "core/fields.py", "config/specs.py")
        source = "".join((Path(__file__).parent / name).read_text("utf-8") for name in names)
        classes = {match[1]: match for match in _CLASS.finditer(source)}
        pending = re.findall(rf"def {function}\(args: (\w+)", source)
        lines = [f"usage: {parser.prog} < FIELDS.json", "", classes[pending[0]][3]]
        for name in pending:  # extended below
            lines += ["", f"fields of {name}:"]
            while name in classes:
                _, name, _, body = classes[name].groups()
                fields = re.findall(r"(?m)^    \w+: .*$", body)
                types = " ".join(line.partition("  #")[0] for line in fields)
                pending += [kind for kind in re.findall(r"\w+", types) if kind in classes]
                lines += fields
        print(*lines, sep="\n")
        parser.exit()


_CLASS = re.compile(
    r'^class (\w+)\((?!NamedTuple)(\w+)\):\n(?:    """(.*?)"""\n)?(.*?)(?=^\S|\Z)', re.MULTILINE | re.DOTALL
)


class _PrintCompletion(argparse.Action):
    """Print a script that completes commands, options and files in a shell."""

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error(f"{option_string} needs the package shtab; run `pip install shtab`.")
        for command in _subparsers(parser).values():
            for action in command._actions:
                if action.type is Path:
                    action.complete = shtab.FILE
        print(shtab.complete(parser, values))
        parser.exit()


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return commands.choices


def _add_user_commands(commands) -> None:
    def add(name: str, help_text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        command.set_defaults(stage=False, gives_up=False)
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
    tasks.add_argument("--audit", metavar="NAME", help="compare the languages of a parallel task item by item")
    tasks.add_argument("--languages", nargs="+", help="with --audit: only these languages")
    tasks.add_argument("--data", default="hub", help="with --audit: directory with {task}/{language}/{split}.* files")
    of_lm_eval = "tasks of lm-eval: all, those that match *, or of a group"
    tasks.add_argument("--lm-eval", nargs="?", const="", metavar="NAME", help=of_lm_eval)
    python = "interpreter of lm-eval's environment, as in the config"
    tasks.add_argument("--lm-eval-python", metavar="PATH", help=python)

    audit = add("audit", "list the items of a run that a speaker should read first")
    audit.add_argument("config", type=Path, nargs="?", default=Path("config.yaml"), help="default: config.yaml")
    audit.add_argument("--evaluation", help="only this one: ID, as `vernacular check` lists it; default: all")
    audit.add_argument("--items", type=int, help="number of items in each list; default: that of the config, or 40")
    audit.add_argument("--out", type=Path, help="directory of the tables; default: summary/ in that of the results")

    labels = add("labels", "write a sheet in which speakers judge the responses to items drawn at random")
    labels.add_argument("config", type=Path, nargs="?", default=Path("config.yaml"), help="default: config.yaml")
    labels.add_argument("evaluation", help="ID, as `vernacular check` lists it")
    labels.add_argument("--n", type=int, default=100, help="number of items, those with labels included; default: 100")
    labels.add_argument("--out", type=Path, default=Path("labels"), help="directory of the sheet; default: labels")

    show = add("show", "print the requests of an item, and their tokens, before any model is run")
    show.add_argument("config", type=Path, nargs="?", default=Path("config.yaml"), help="default: config.yaml")
    show.add_argument("evaluation", help="ID, as `vernacular check` lists it")
    show.add_argument("--item", type=int, default=1, help="number of the item, from 1")
    show.add_argument("--model", help="also print the tokens of this model of the config")

    table = add("table", "print a table of results for a paper, as LaTeX or Markdown")
    table.add_argument("config", type=Path, nargs="?", default=Path("config.yaml"), help="default: config.yaml")
    names = {"type": _names, "action": "extend", "metavar": "NAMES"}
    for name, example in (("tasks", "belebele,cola"), ("languages", "gl,es"), ("models", "base,mine")):
        table.add_argument(f"--{name}", **names, help=f"only these: {example}")
    table.add_argument("--protocols", **names, help="only these: options,generation")
    headline = "default: the headline metric that represents each evaluation"
    table.add_argument("--metrics", **names, help=headline)
    table.add_argument("--format", choices=["latex", "markdown"], default="latex", help="default: latex")
    marks = "mark values that do not differ significantly from the best, or print 95%% intervals"
    table.add_argument("--marks", choices=["significance", "interval"], default="significance", help=marks)
    table.add_argument("--transpose", action="store_true", help="a row per evaluation, and a column per model")
    table.add_argument("--chance", action="store_true", help="also a row of the chance levels")
    preset = "column: for one column of a page: transposed, with chance, intervals below the values"
    table.add_argument("--preset", choices=["column"], help=preset)
    width = (
        "divide a LaTeX table that is wider; 0: never; default: the text of the class article, 12.1; of a column, 7.7"
    )
    table.add_argument("--width", type=float, metavar="CM", help=width)
    table.add_argument("--label", default="tab:results", help="of the LaTeX table; default: tab:results")

    publish = add("publish", "write report, tables and exchange files of a run to a directory, without local paths")
    publish.add_argument("results", type=Path, help="directory of the results: results")
    publish.add_argument("directory", type=Path, help="directory to write: vernacular-results")
    publish.add_argument("--organization", default="not stated", help="your organization, for the exchange files")
    relationships = ["first_party", "third_party", "collaborative", "other"]
    publish.add_argument("--relationship", choices=relationships, default="other", help="to the models' developers")

    join = add("join", "write one leaderboard of several publications")
    join.add_argument("directory", type=Path, help="directory of publications, as `vernacular publish` writes them")
    join.add_argument("out", type=Path, help="directory to write: leaderboard")

    init = add("init", "write a config file for models and languages, or the prompt lines of a language to translate")
    written = "file to write: mine.yaml; with --prompts-from: my_tasks/prompts/an.yaml"
    init.add_argument("config", type=Path, help=written)
    add_source = {"action": "append", "dest": "models", "default": [], "metavar": "SOURCE"}
    model_help = "Hub ID, path, package:NAME or address of a server; may be repeated"
    adapter_help = "adapter of the --model before it; may be repeated"

    def add_models(command: argparse.ArgumentParser) -> None:
        command.add_argument("--model", type=lambda source: ("model", source), help=model_help, **add_source)
        command.add_argument("--adapter", type=lambda source: ("adapter", source), help=adapter_help, **add_source)

    add_models(init)
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
    help_text = "run a config in any directory, with Snakemake's options: run mine.yaml -c4; or a dataset on models"
    run = add("run", help_text)
    run.allow_abbrev = False  # of options that are Snakemake's
    what = "file with the config; or a task, a dataset on the Hub or a data file, with --model"
    run.add_argument("config", help=what)
    dataset = run.add_argument_group("options of a dataset, whose config and task file are written")
    add_models(dataset)
    dataset.add_argument("--language", nargs="+", metavar="CODE", help="languages of the dataset: gl")
    dataset.add_argument("--protocol", nargs="+", metavar="NAME", help="default: the first that suits the dataset")
    styles = "of the prompts: english; default: the lines of the language, or English ones if it has none"
    dataset.add_argument("--styles", nargs="+", metavar="NAME", help=styles)
    dataset.add_argument("--shots", type=int, nargs="+", metavar="N", help="numbers of few-shot examples; default: 0")
    dataset.add_argument("--limit", type=int, metavar="N", help="evaluate at most this many items")
    columns = "what columns mean, as in a task file: question=q choices=a,b gold=key gold_format=letter"
    dataset.add_argument("--columns", nargs="+", metavar="FIELD=COLUMN", help=columns)
    dataset.add_argument("--item-type", metavar="NAME", help="as in a task file; default: as the columns suggest")
    dataset.add_argument("--configuration", metavar="NAME", help="of a dataset on the Hub that has several")
    dataset.add_argument("--split", metavar="NAME", help="default: test, validation, or the only one")
    add("snakefile", 'print the path of the workflow: snakemake -c4 --snakefile "$(vernacular snakefile)"')

    add(
        "lm-eval",
        "run tasks of lm_eval by its own command line, with its options: vernacular lm-eval run --model_args …",
    )
    add("lm-eval-index", "list the tasks of the lm_eval installed in this environment, which the workflow reads")

    treebank = add("treebank", "extract minimal pairs from treebanks and explain the steps")
    treebank.add_argument("treebank", type=Path, nargs="+", help="CoNLL-U files")
    treebank.add_argument("--pattern", nargs="+", help="names of included patterns (by default, list them), or files")
    forms = "additional word forms: CoNLL-U or UniMorph files"
    treebank.add_argument("--forms", type=Path, nargs="*", default=[], help=forms)
    steps = "print counts per step, and examples (default without --csv)"
    treebank.add_argument("--explain", action="store_true", help=steps)
    treebank.add_argument("--examples", type=int, default=5, help="number of pairs to print per pattern")
    treebank.add_argument("--csv", type=Path, help="write all pairs to this file, in the columns of Grew-TSE")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
