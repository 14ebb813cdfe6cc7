"""Command `requests`: items -> the requests of one evaluation."""

import logging

from vernacular.commands.common import items_in
from vernacular.core import artifacts
from vernacular.protocols.build import build, evaluated_by
from vernacular.protocols.schema import REQUESTS, request_size

log = logging.getLogger("vernacular")


def requests(args) -> str:
    """The prompts of one evaluation; of a dataset that is unavailable, none."""
    spec = args.spec
    source = artifacts.metadata(args.items)
    if unavailable := source.get("unavailable"):
        give_up(args, unavailable)
        return f"requests: {spec['evaluation']}: none, the dataset is unavailable"
    given = ("language", "protocol", "shots", "seed", "style", "options")
    rows, built = build(items_in(args.items), spec["task"], **{key: spec[key] for key in given})
    artifacts.write(args.out, REQUESTS, rows, {**_about(args, source), **built, "size": request_size(rows)})
    return f"requests: {spec['evaluation']}: {len(rows)}"


def give_up(args, reason: str) -> str:
    """Write a requests file without rows that states why there are none."""
    about = _about(args, artifacts.metadata(args.items))
    artifacts.write(args.out, REQUESTS, [], {**about, "unavailable": reason})
    return f"requests: {args.spec['evaluation']}: unavailable ({reason})"


def _about(args, source: dict) -> dict:
    spec = args.spec
    about = {key: spec[key] for key in ("evaluation", "language", "protocol", "shots", "seed", "style")}
    about |= {"task": spec["task"]["task"], "items": source} | evaluated_by(spec["protocol"])
    return about | {"fingerprint": artifacts.made_of(spec, args.items)}
