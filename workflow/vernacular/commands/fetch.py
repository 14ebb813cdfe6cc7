"""Commands `model` and `encoder`: source -> files on this disk, and a record that describes them."""

import contextlib
import logging
from pathlib import Path

from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.inputs import identity, is_path
from vernacular.checkpoints.resolve import resolve
from vernacular.config.specs import EncoderSpec, ModelSpec
from vernacular.core.errors import ModelError
from vernacular.core.failures import LOADING_ERRORS, describe_error, wrap_library_errors
from vernacular.core.fields import Stage, to_json
from vernacular.core.records import last_record, read_record, write_record, write_with_copy
from vernacular.types import ModelRecord

log = logging.getLogger("vernacular")


class FetchModel(Stage):
    """Fetch one model and record its properties."""

    spec: ModelSpec  # of the rule: what the results depend on
    base: Path | None = None  # record of the base model, of an adapter
    out: Path  # its record


def model(args: FetchModel) -> str:
    """Fetch a model's files; an unavailable model gets a record that states why, and the other models continue."""
    spec = args.spec
    name, source = spec.name, spec.adapter or spec.source
    known = last_record(args.out)
    try:
        with _as_model_errors(name, to_json(spec)):
            if spec.adapter:
                base = read_record(args.base)
                if reason := base.get("unavailable"):
                    raise ModelError(f"base model {base['name']} unavailable: {reason}")
                permissions = {key: getattr(spec, key) for key in ("allow_pickle", "allow_base_mismatch")}
                record = resolve_adapter(name, source, base, known=known, **permissions)
            else:
                options = {key: getattr(spec, key) for key in ("kind", "allow_pickle", "trust_remote_code")}
                record = resolve(name, source, args.out.parent / "converted", known=known, **options)
    except ModelError as error:
        log.error(str(error))
        if known and spec.checkpoint and _remains(known, args.base):
            write_record(args.out, {**known, "files_key": spec.files})
            return f"model: {name}: unavailable now, its results are kept ({error})"
        is_deleted = spec.checkpoint and is_path(source) and not Path(source).expanduser().exists()
        return give_up(args, f"{source} was deleted before its first evaluation" if is_deleted else str(error))
    write_with_copy(args.out, {**record, "files_key": spec.files})
    if adapter := record.get("adapter"):
        return f"model: {name}: {adapter['type']} adapter of {record['base']}, rank {adapter['rank']}"
    return f"model: {name}: {record['architecture']} ({record['kind']}), {_size(record['bytes'])}"


class FetchEncoder(Stage):
    """Fetch one encoder and record its properties."""

    spec: EncoderSpec  # of the rule: what the results depend on
    out: Path  # its record


def encoder(args: FetchEncoder) -> str:
    """Fetch an encoder's files; an unavailable one gets a record that states why, and only its metrics are missing."""
    spec = args.spec
    options = {"kind": "encoder", "allow_pickle": spec.allow_pickle or False, "known": last_record(args.out)}
    try:
        with _as_model_errors(spec.name, to_json(spec)):
            record = resolve(spec.name, spec.source, args.out.parent / "converted", **options)
    except ModelError as error:
        log.error(str(error))
        return give_up(args, str(error))
    settings = {key: getattr(spec, key) for key in ("layer", "prefix", "allow_pickle")}
    write_with_copy(args.out, {**record, **settings, "files_key": spec.files})
    return f"encoder: {spec.name}: {record['architecture']}, {_size(record['bytes'])}"


def give_up(args: FetchModel | FetchEncoder, reason: str) -> str:
    """Write a record that states why the model or encoder is unavailable."""
    spec, is_encoder = args.spec, isinstance(args, FetchEncoder)
    source = spec.source if is_encoder else spec.adapter or spec.source
    write_record(args.out, {"name": spec.name, "source": source, "unavailable": reason})
    return f"{'encoder' if is_encoder else 'model'}: {spec.name}: unavailable ({reason})"


def _remains(known: ModelRecord, base: Path | None) -> bool:
    """Return whether the results of a checkpoint that is gone remain: those of an adapter only if its base is the same.

    A checkpoint whose files changed is not gone.
    """
    listing = (known.get("adapter") or known).get("contents") or {}
    if not listing or Path(listing["root"]).exists():
        return False
    if not known.get("adapter"):
        return True
    base_contents = read_record(base).get("contents")
    return bool(base_contents) and identity(base_contents) == identity(known["contents"])


@contextlib.contextmanager
def _as_model_errors(name: str, spec: dict):
    """Raise any error of a library that reads the files of this model, panics included, as ModelError."""
    try:
        with wrap_library_errors():
            yield
    except LOADING_ERRORS as error:
        raise ModelError(f"model {name}: files cannot be read: {describe_error(error, spec)}") from error


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
