"""Commands `model` and `encoder`: a source -> files on this disk, and a record of what they are."""

import logging

from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.core.records import read_record, write_record

log = logging.getLogger("vernacular")


def model(args) -> str:
    """A model's files on this disk. One that cannot be had leaves a record that says so: the other models go on."""
    spec = args.spec
    name, source = spec["name"], spec.get("adapter") or spec["source"]
    try:
        if "adapter" in spec:
            base = read_record(args.base)
            if reason := base.get("unavailable"):
                raise ModelError(f"its base {base['name']} cannot be had: {reason}")
            allowed = {key: spec[key] for key in ("allow_pickle", "allow_other_base")}
            record = resolve_adapter(name, source, base, **allowed)
        else:
            converted = args.out.parent / "converted"
            record = resolve(name, source, converted, kind=spec["kind"], allow_pickle=spec["allow_pickle"])
    except ModelError as error:
        log.error(str(error))
        return give_up(args, str(error))
    write_record(args.out, record)
    if adapter := record.get("adapter"):
        return f"model: {name} is {record['base']} with a {adapter['type']} adapter of rank {adapter['rank']}"
    return f"model: {name} is {record['architecture']} ({record['kind']}), {_size(record['bytes'])}"


def encoder(args) -> str:
    """An encoder's files on this disk. One that cannot be had leaves a record that says so, and costs its metrics."""
    spec = args.spec
    allow_pickle = spec.get("allow_pickle", False)
    converted = args.out.parent / "converted"
    try:
        record = resolve(spec["name"], spec["source"], converted, kind="encoder", allow_pickle=allow_pickle)
    except ModelError as error:
        log.error(str(error))
        return give_up(args, str(error))
    write_record(args.out, {**record, **{key: spec.get(key) for key in ("layer", "prefix", "allow_pickle")}})
    return f"encoder: {spec['name']} is {record['architecture']}, {_size(record['bytes'])}"


def give_up(args, reason: str) -> str:
    """Write a record that states why the model or encoder is unavailable."""
    spec = args.spec
    write_record(
        args.out, {"name": spec["name"], "source": spec.get("adapter") or spec["source"], "unavailable": reason}
    )
    return f"{args.verb}: {spec['name']}: unavailable ({reason})"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
