"""Commands `model` and `encoder`: source -> files on this disk, and a record that describes them."""

import contextlib
from pathlib import Path

from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.files import mentions_reasoning, template_texts
from vernacular.checkpoints.inputs import identity, is_path
from vernacular.checkpoints.llama_cpp import open_model
from vernacular.checkpoints.resolve import resolve
from vernacular.config.specs import EncoderSpec, ModelSpec
from vernacular.core.errors import ModelError
from vernacular.core.fields import Stage, to_json
from vernacular.core.library_errors import LOADING_ERRORS, describe_error, wrap_library_errors
from vernacular.core.model_record import ModelRecord, previous_model, read_model, write_model
from vernacular.stages.common import raise_failure, write_unavailable


class FetchModel(Stage):
    """Fetch one model and record its properties."""

    spec: ModelSpec  # of the rule: what the results depend on
    base: Path | None = None  # record of the base model, of an adapter
    out: Path  # its record


def model(args: FetchModel) -> str:
    """Fetch a model's files; an unavailable model gets a record that states why, and the other models continue."""
    spec = args.spec
    name, source = spec.name, spec.adapter or spec.source
    known = previous_model(args.out)
    try:
        with _as_model_errors(name, to_json(spec)):
            raise_failure(args)
            if spec.adapter:
                base = read_model(args.base)
                if base.unavailable:
                    raise ModelError(f"base model {base.name} unavailable: {base.unavailable}")
                permissions = {key: getattr(spec, key) for key in ("allow_pickle", "allow_base_mismatch")}
                record = resolve_adapter(name, source, base, known=known, **permissions)
            else:
                options = {key: getattr(spec, key) for key in ("kind", "allow_pickle", "trust_remote_code", "as_is")}
                record = resolve(name, source, args.out.parent / "converted", known=known, **options)
    except ModelError as error:
        if known and spec.checkpoint and _remains(known, args.base):
            write_model(args.out, known | {"files_key": spec.files})
            return f"model: {name}: unavailable now, its results are kept ({error})"
        is_deleted = spec.checkpoint and is_path(source) and not Path(source).expanduser().exists()
        reason = f"{source} was deleted before its first evaluation" if is_deleted else str(error)
        return write_unavailable(args, "model", reason)
    reasons = None
    with contextlib.suppress(ModelError), _as_model_errors(name, {}):  # the job states why, where it needs the template
        reasons = _reasons(record | {"trust_remote_code": spec.trust_remote_code or False})
    write_model(args.out, record | {"files_key": spec.files, "reasons": reasons}, keep=True)
    if adapter := record.adapter:
        rank = "" if adapter.rank is None else f", rank {adapter.rank}"
        return f"model: {name}: {adapter.type} adapter of {record.base}{rank}"
    return f"model: {name}: {record.architecture} ({record.kind}), {_size(record.bytes)}"


def _reasons(record: ModelRecord) -> bool | None:
    """Return whether a model's chat template asks for reasoning by default; None: it mentions none."""
    if record.is_gguf:
        from vernacular.inference.model.tokenizers import LlamaTokenizer

        texts = [LlamaTokenizer(open_model(record.name, Path(record.directory))).chat_template or ""]
    else:
        texts = template_texts(Path(record.tokenizer_directory))
    if not mentions_reasoning(texts):
        return None
    from vernacular.inference.generation.reasoning import thinks
    from vernacular.inference.model.rendering import open_template

    return thinks(open_template(record, record.tokenizer_directory))


class FetchEncoder(Stage):
    """Fetch one encoder and record its properties."""

    spec: EncoderSpec  # of the rule: what the results depend on
    out: Path  # its record


def encoder(args: FetchEncoder) -> str:
    """Fetch an encoder's files; an unavailable one gets a record that states why, and only its metrics are missing."""
    spec = args.spec
    options = {"kind": "encoder", "allow_pickle": spec.allow_pickle or False, "known": previous_model(args.out)}
    try:
        with _as_model_errors(spec.name, to_json(spec)):
            raise_failure(args)
            record = resolve(spec.name, spec.source, args.out.parent / "converted", **options)
    except ModelError as error:
        return write_unavailable(args, "encoder", str(error))
    settings = {key: getattr(spec, key) for key in ("layer", "prefix", "allow_pickle", "tokenizer_pipeline")}
    write_model(args.out, record | settings | {"files_key": spec.files}, keep=True)
    return f"encoder: {spec.name}: {record.architecture}, {_size(record.bytes)}"


def _remains(known: ModelRecord, base: Path | None) -> bool:
    """Return whether the results of a checkpoint that is gone remain: those of an adapter only if its base is the same.

    A checkpoint whose files changed is not gone.
    """
    listing = (known.adapter or known).contents
    if listing is None or Path(listing.root).exists():
        return False
    if known.adapter is None:
        return True
    base_contents = read_model(base).contents
    return base_contents is not None and identity(base_contents) == identity(known.contents)


@contextlib.contextmanager
def _as_model_errors(name: str, spec: dict):
    """Raise any error of a library that reads the files of this model, panics included, as ModelError."""
    try:
        with wrap_library_errors():
            yield
    except LOADING_ERRORS as error:
        permissions = {key: spec[key] for key in ("kind", "allow_pickle", "trust_remote_code") if key in spec}
        reason = describe_error(error, ModelRecord(name=name, **permissions))
        raise ModelError(f"model {name}: files cannot be read: {reason}") from error


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
