"""The verbs that ask: data set -> items -> requests -> scores and generations, and the models they need.

Each takes the parsed arguments, reads what the stage before left, calls the stage, writes what it returns, and gives
back the line that says what was made. The stages themselves touch no artifact. Imports stand inside the functions: a
verb that counts rows should not wait for torch.
"""

import logging
import sys
from collections import Counter
from pathlib import Path

from vernacular import artifacts
from vernacular.data.schema import ITEMS
from vernacular.errors import DataError, ModelError
from vernacular.records import read_record, write_record
from vernacular.requests.schema import REQUESTS

log = logging.getLogger("vernacular")


def check(args) -> str:
    """Say what a config asks for; its mistakes are raised as ConfigError."""
    from vernacular import config

    found = config.load(args.config)
    for evaluation in found.evaluations:
        print(f"  {evaluation}")
    return f"check: {len(found.models)} models × {len(found.evaluations)} evaluations"


def items(args) -> str:
    """One data set in one language; a set that cannot be had leaves a file that says so, and the others go on."""
    from vernacular.config import WORKFLOW
    from vernacular.data.load import load_items

    spec = args.spec
    name = f"{spec['task']['task']}.{spec['language']}"
    try:
        rows, note = load_items(
            spec["task"],
            spec["language"],
            source=spec["data"],
            limit=spec["limit"],
            seed=0,
            root=WORKFLOW,
        )
    except DataError as error:
        log.error(str(error))
        note = {"task": spec["task"]["task"], "unavailable": str(error)}
        artifacts.write(args.out, ITEMS, [], {**note, "fingerprint": artifacts.made_of(note)})
        return f"items: {name} CANNOT BE HAD: {error}"
    made_of = artifacts.made_of(spec, note["source"]["sha256"])
    artifacts.write(args.out, ITEMS, rows, {**note, "fingerprint": made_of})
    for warning in note["warnings"]:
        log.warning(warning)
        print(f"items: {warning}", file=sys.stderr)
    shown = sum(row["demonstration"] for row in rows)
    dropped = sum(note["rows"]["dropped"].values())
    return (
        f"items: {name}: {len(rows) - shown} items"
        + (f", {shown} to draw demonstrations from" if shown else "")
        + (f", {dropped} rows left out (reasons in {args.log or 'the metadata'})" if dropped else "")
    )


def requests(args) -> str:
    """The prompts of one evaluation; of a set that could not be had, none."""
    from vernacular.requests.build import CAUSAL_ONLY, build

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
    artifacts.write(args.out, REQUESTS, rows, {**note, **built})
    return f"requests: {spec['evaluation']}: {len(rows)}"


def model(args) -> str:
    """A model's files on this disk. One that cannot be had leaves a record that says so: the other models go on."""
    from vernacular.checkpoints import resolve

    spec = args.spec
    try:
        record = resolve(
            spec["name"],
            spec["source"],
            args.out.with_suffix(""),
            kind=spec["kind"],
            allow_pickle=spec["allow_pickle"],
        )
    except ModelError as error:
        log.error(str(error))
        write_record(args.out, {"name": spec["name"], "source": spec["source"], "unavailable": str(error)})
        return f"model: {spec['name']} CANNOT BE HAD: {error}"
    write_record(args.out, record)
    return f"model: {spec['name']} is {record['architecture']} ({record['kind']}), {_size(record['bytes'])}"


def encoder(args) -> str:
    from vernacular.checkpoints import resolve

    spec = args.spec
    allow_pickle = spec.get("allow_pickle", False)
    record = resolve(spec["name"], spec["source"], args.out.with_suffix(""), kind="encoder", allow_pickle=allow_pickle)
    write_record(args.out, {**record, **{key: spec.get(key) for key in ("layer", "prefix", "allow_pickle")}})
    return f"encoder: {spec['name']} is {record['architecture']}, {_size(record['bytes'])}"


def infer(args) -> str:
    """Everything one model is asked. All evaluations are tried; what failed is said at the end, and fails the job."""
    from vernacular.inference.run import run_model

    record = read_record(args.model) | args.spec["settings"]
    asked = {path.stem: path for path in args.requests}
    done, failed = run_model(record, asked, args.out, args.store, threads=args.threads)
    if failed:
        what = "\n".join(f"  {evaluation}: {reason}" for evaluation, reason in failed.items())
        raise ModelError(f"{record['name']}: {len(failed)} of {len(asked)} evaluations failed:\n{what}")
    counts = Counter(done.values())
    return f"infer: {record['name']}: " + ", ".join(f"{n} evaluations {how}" for how, n in sorted(counts.items()))


def items_in(path: Path) -> list[dict]:
    return artifacts.read(path, ITEMS).to_pylist(maps_as_pydicts="strict")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
