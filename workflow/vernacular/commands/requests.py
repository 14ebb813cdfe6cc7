"""Command `requests`: items -> the requests of one evaluation."""

from vernacular.commands.common import items_in
from vernacular.core import artifacts
from vernacular.requests.build import CAUSAL_ONLY, build
from vernacular.requests.schema import REQUESTS, request_size


def requests(args) -> str:
    """The prompts of one evaluation; of a set that could not be had, none."""
    spec = args.spec
    source = artifacts.metadata(args.items)
    note = {key: spec[key] for key in ("evaluation", "language", "protocol", "shots", "seed", "style")}
    note |= {"task": spec["task"]["task"], "items": source, "causal_only": spec["protocol"] in CAUSAL_ONLY}
    note |= {"fingerprint": artifacts.made_of(spec, args.items)}
    if unavailable := source.get("unavailable"):
        artifacts.write(args.out, REQUESTS, [], {**note, "unavailable": unavailable})
        return f"requests: {spec['evaluation']}: none, the data set could not be had"
    given = ("language", "protocol", "shots", "seed", "style", "options")
    rows, built = build(items_in(args.items), spec["task"], **{key: spec[key] for key in given})
    artifacts.write(args.out, REQUESTS, rows, {**note, **built, "size": request_size(rows)})
    return f"requests: {spec['evaluation']}: {len(rows)}"
