"""The command `vernacular`: one command per stage, which the rules of the workflow run, and commands for people.

A command ends with one line that summarizes its result. A user error is one or two lines, with exit status 1; all other
messages of a stage are written to `--log`.
"""

import importlib
import logging
import os
import sys
import time

from vernacular.arguments import parser
from vernacular.core import processes
from vernacular.core.errors import MachineError, UserError, as_write_error, first_line, is_contained
from vernacular.core.logs import escaped_output, log_to

log = logging.getLogger("vernacular")

_MAX_DEATHS = 4  # of the process of one command, each in another evaluation


@escaped_output()
def main(arguments: list[str] | None = None, *, supervised: bool = False) -> int:
    """Run a command and return its exit status.

    Args:
        supervised: Run a stage in a child process, so that its log states the reason if the process dies. If a stage
            that contributes to the summary dies, raises an unexpected error, or cannot run on this machine, files that
            state why replace its results, and the status is 0: other models and datasets continue, and rule `verify`
            reports the failure at the end.
    """
    args = parser().parse_args(arguments)
    # libraries write no progress bars and no warnings to the terminal, unless the user sets these variables
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if args.command in ("infer", "similarity"):
        # all files were downloaded before; a progress bar per weight file is not informative
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    if not (supervised and args.stage):
        return _run(args)
    for _ in range(_MAX_DEATHS):
        status = processes.fork_child()
        if status is None:
            return _run(args)
        if (reason := processes.termination_cause(status)) is None:
            return status
        log_to(args.log, append=True)
        if not (args.contained and _is_last(args)):
            _fail(args, UserError(f"{reason}.{' The next attempt runs it again.' if args.contained else ''}"))
            return 128 - status
        if not _module("batch").Attempts(args).record_death(reason):
            break
        args.restarted = True
    return _give_up(args, reason)


def _run(args) -> int:
    started = time.perf_counter()
    try:
        log_to(args.log, append=getattr(args, "restarted", False))
        if summary := _command(args.run)(args):
            summary = f"{summary} ({time.perf_counter() - started:.1f} s)"
            log.info(summary)  # at the end of the log, if there is one
            print(summary, flush=True)
    except MachineError as error:
        if args.contained and _is_last(args):
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
        if not args.contained:
            raise
        return _give_up(args, f"{type(error).__name__}: {first_line(error)}")
    return 0


def _fail(args, error: UserError) -> int:
    if args.log:
        log.error(str(error))
    message = str(error)
    if args.stage:  # the output of stages is mixed; a list in the log is printed at the end of the run
        first, *rest = message.split("\n")
        message = f"{args.command}: {first.removesuffix(':') if args.log and len(rest) > 1 else message}"
    print(message, file=sys.stderr)
    return 1


def _give_up(args, reason: str) -> int:
    """Run a command again, which only writes files that state why its results are missing; return its exit status."""
    args.failure = reason
    summary = _command(args.run)(args)
    log.error(summary)
    print(summary, file=sys.stderr, flush=True)
    return 0


def _command(name: str):
    """Return the function of a command, given as `module` or `module:function`."""
    module, _, function = name.partition(":")
    return getattr(_module(name), function or module)


def _module(name: str):
    """Import the module of a command, only when the command runs."""
    return importlib.import_module(f"vernacular.commands.{name.partition(':')[0]}")


def _is_last(args) -> bool:
    number, count = args.attempt
    return number >= count


if __name__ == "__main__":
    sys.exit(main())
