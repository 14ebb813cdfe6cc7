"""Command `requests`: items -> requests of every evaluation."""

from functools import partial
from pathlib import Path

from vernacular.commands.batch import Attempts, fail_rest, make_each
from vernacular.commands.common import counted, items_in
from vernacular.core import artifacts
from vernacular.protocols.build import build, evaluated_by
from vernacular.protocols.schema import REQUESTS, request_size


def requests(args) -> str:
    """Write the prompts of each evaluation to `args.out/{evaluation}.parquet`, none if the dataset is unavailable."""
    made, kept, failed = make_each(args, _specs(args), *(partial(step, args) for step in (_is_current, _build, _state)))
    counts = [
        f"{counted(made, 'evaluation')} built",
        f"{kept} up to date" * bool(kept),
        f"{failed} failed" * bool(failed),
    ]
    return f"requests: {', '.join(filter(None, counts))}"


def died(args, reason: str) -> bool:
    """Record at which evaluation the process died; return whether to try again without it."""
    return Attempts(args).died(reason)


def give_up(args, reason: str) -> str:
    """Write requests files without rows that state why the remaining evaluations have none."""
    return fail_rest(args, _specs(args), partial(_is_current, args), partial(_state, args), reason)


def _specs(args) -> dict[str, dict]:
    shared = {key: value for key, value in args.spec.items() if key != "evaluations"}
    return {name: {**shared, **spec} for name, spec in args.spec["evaluations"].items()}


def _items(args, spec: dict) -> Path:
    return args.items_folder / f"{spec['items']}.parquet"


def _is_current(args, path: Path, spec: dict) -> bool:
    found = artifacts.metadata(path)
    return "unavailable" not in found and found["fingerprint"] == _fingerprint(args, spec)


def _build(args, path: Path, spec: dict) -> str:
    source = artifacts.metadata(_items(args, spec))
    if unavailable := source.get("unavailable"):
        _state(args, path, spec, unavailable)
        return f"requests: {path.stem}: no requests (dataset unavailable)"
    given = ("language", "protocol", "shots", "seed", "style", "options")
    rows, built = build(items_in(_items(args, spec)), spec["task"], **{key: spec[key] for key in given})
    artifacts.write(path, REQUESTS, rows, {**_about(args, spec, source), **built, "size": request_size(rows)})
    return f"requests: {path.stem}: {counted(len(rows), 'request')}"


def _state(args, path: Path, spec: dict, reason: str) -> str:
    about = _about(args, spec, artifacts.metadata(_items(args, spec)))
    artifacts.write(path, REQUESTS, [], {**about, "unavailable": reason})
    return f"requests: {path.stem}: unavailable ({reason})"


def _about(args, spec: dict, source: dict) -> dict:
    about = {key: spec[key] for key in ("evaluation", "language", "protocol", "shots", "seed", "style")}
    about |= {"task": spec["task"]["task"], "items": source} | evaluated_by(spec["protocol"])
    return about | {"fingerprint": _fingerprint(args, spec)}


def _fingerprint(args, spec: dict) -> str:
    return artifacts.made_of(spec, _items(args, spec))
