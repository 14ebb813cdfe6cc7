"""`python -m vernacular <command> …`: one command per stage, usable without Snakemake; the rules call nothing else.

A command ends with one line that summarizes its result. A user error is one or two lines, with exit status 1; all other
messages of a stage are written to `--log`.
"""

import argparse
import importlib
import json
import logging
import os
import sys
import time
from pathlib import Path

from vernacular.core import processes
from vernacular.core.errors import MachineError, UserError, as_write_error, first_line, is_contained, log_to

log = logging.getLogger("vernacular")

_MAX_DEATHS = 4  # of the process of one command, each in another evaluation
_ATTEMPT_HELP = (
    "attempt and number of attempts: 1of3; the last one writes why results are missing and exits with status 0"
)
# the rules pass it on standard input: Linux limits arguments to 128 KB, which a few hundred evaluations exceed
_DESCRIPTION = "Run one stage of the workflow without Snakemake; the rules of the workflow run the same commands."
_SPEC_HELP = "specification of the outputs as JSON (vernacular.config.dependencies); - reads it from standard input"


def main(arguments: list[str] | None = None, *, supervised: bool = False) -> int:
    """Run a command and return its exit status.

    Args:
        supervised: Run a command that contributes to the summary in a child process. If the process dies, raises an
            unexpected error, or cannot run on this machine, files that state why replace its results, and the status is
            0: other models and datasets continue, and rule `verify` reports the failure at the end.
    """
    args = _parser().parse_args(arguments)
    # libraries write no progress bars and no warnings to the terminal, unless the user sets these variables
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if args.command in ("infer", "similarity"):
        # all files were downloaded before; a progress bar per weight file is not informative
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    if not (supervised and args.contained):
        return _run(args)
    for _ in range(_MAX_DEATHS):
        status = processes.fork_child()
        if status is None:
            return _run(args)
        if (reason := processes.termination_cause(status)) is None:
            return status
        log_to(args.log)
        if not _is_last(args):
            print(f"{args.command}: {reason}. The next attempt runs it again.", file=sys.stderr)
            return 128 - status
        record_death = getattr(_module(args.run), "record_death", None)
        if record_death is None or not record_death(args, reason):
            break
        args.restarted = True
    return _give_up(args, reason)


def _run(args) -> int:
    started = time.perf_counter()
    try:
        log_to(args.log)
        summary = _command(args.run)(args)
    except MachineError as error:
        if args.contained and _is_last(args):
            return _give_up(args, str(error))
        return _fail(args, error)
    except UserError as error:
        return _fail(args, error)
    except KeyboardInterrupt:
        print(f"{args.command}: interrupted. Run the same command again to repeat it.", file=sys.stderr)
        return 130
    except BaseException as error:
        if write_error := as_write_error(error):
            return _fail(args, write_error)
        if not is_contained(error):
            raise
        log.exception("unexpected")
        if not args.contained:
            raise
        return _give_up(args, f"{type(error).__name__}: {first_line(error)}")
    if summary:
        summary = f"{summary} ({time.perf_counter() - started:.1f} s)"
        log.info(summary)  # at the end of the log, if there is one
        print(summary, flush=True)
    return 0


def _fail(args, error: UserError) -> int:
    if args.log:
        log.error(str(error))
    print(f"{args.command}: {error}", file=sys.stderr)
    return 1


def _give_up(args, reason: str) -> int:
    """Write files that state why the results of a command are missing; return its exit status."""
    summary = _module(args.run).give_up(args, reason)
    log.error(summary)
    print(summary, file=sys.stderr, flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vernacular", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(
        name: str, run: str, help_text: str, *, spec: bool = True, contained: bool = False
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.set_defaults(run=run, contained=contained)
        if contained:
            command.add_argument("--attempt", type=_attempt, default=(1, 1), help=_ATTEMPT_HELP)
        if spec:
            command.add_argument("--spec", type=_json, required=True, help=_SPEC_HELP)
        command.add_argument("--log", type=Path, help="file for messages and warnings")
        return command

    check = add("check", "check", "validate a config file and list its evaluations", spec=False)
    check.add_argument("config", type=Path, nargs="*", default=[Path("config.yaml")], help="default: config.yaml")

    items = add("items", "items", "read datasets into items", contained=True)
    items.add_argument("--out", type=Path, required=True, help="directory of the items files")

    requests = add("requests", "requests", "write the prompts of evaluations", contained=True)
    requests.add_argument("--items-dir", type=Path, required=True)
    requests.add_argument("--out", type=Path, required=True, help="directory of the requests files")

    treebank = add("treebank", "treebank", "extract minimal pairs from treebanks and explain the steps", spec=False)
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

    for name in ("model", "encoder"):
        fetch = add(name, f"fetch:{name}", f"fetch one {name} and record its properties", contained=True)
        fetch.add_argument("--out", type=Path, required=True)
        if name == "model":
            fetch.add_argument("--base", type=Path, help="record of the base model, for an adapter")

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

    summary = add("summary", "summary", "collect the metrics of all models in tables and spreadsheets")
    summary.add_argument("--metrics", type=Path, nargs="+", required=True)
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
    return parser


def _command(name: str):
    """Return the function of a command, given as `module` or `module:function`."""
    module, _, function = name.partition(":")
    return getattr(_module(name), function or module)


def _module(name: str):
    """Import the module of a command, only when the command runs."""
    return importlib.import_module(f"vernacular.commands.{name.partition(':')[0]}")


def _attempt(text: str) -> tuple[int, int]:
    number, count = text.split("of")
    return int(number), int(count)


def _is_last(args) -> bool:
    number, count = args.attempt
    return number >= count


def _json(text: str) -> dict:
    return json.loads(sys.stdin.read() if text == "-" else text)


if __name__ == "__main__":
    sys.exit(main())
