"""Where an adapter comes from, and whether it fits its base: said before anything loads.

An adapter is a folder that PEFT wrote (LoRA and its relatives): on this disk, or a Hub repository with a revision. Its
record is the base's with the adapter's files and fingerprint added.
"""

import re
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.checkpoints.adapter_shapes import check_shapes, vocabulary_mismatch
from vernacular.checkpoints.files import read_json
from vernacular.checkpoints.limits import check_size
from vernacular.checkpoints.tuners import why_not
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.core.hub_snapshot import snapshot

WEIGHTS, PICKLED, CONFIG = "adapter_model.safetensors", "adapter_model.bin", "adapter_config.json"


def resolve_adapter(
    name: str,
    source: str,
    base: dict,
    *,
    allow_pickle: bool = False,
    allow_other_base: bool = False,
    known: dict | None = None,
) -> dict:
    """The record of `base` with the adapter of `source`: name, base, adapter {source, folder, revision, type, rank, …}.

    `known` is an earlier record, whose hashes are reused for files that did not change. Raises ModelError with the
    sentence to show: no such adapter, not PEFT's, of another base, with a vocabulary of its own, or of a kind that
    changes the prompt instead of the weights.
    """
    folder, revision = _locate(name, source, allow_pickle)
    config = _config(name, folder, source)
    if reason := why_not(config):
        raise ModelError(f"model {name}: {source} {reason}")
    _check_name(name, source, config, base, allow_other_base)
    for file in inputs.files_of(folder, allow_pickle=allow_pickle):
        check_size(name, folder / file)
    if (folder / WEIGHTS).exists():
        check_shapes(name, source, folder / WEIGHTS, config, base)
    elif not (folder / PICKLED).exists():
        raise ModelError(f"model {name}: {source} holds no adapter weights ({WEIGHTS}).")
    elif not allow_pickle:
        raise ModelError(
            f"model {name}: {source} has only pickled weights ({PICKLED}), which can run code when loaded. "
            "Set allow_pickle: true for this model if you trust it."
        )
    own_words = _check_vocabulary(name, source, folder, base)
    known_contents = ((known or {}).get("adapter") or {}).get("contents")
    contents = inputs.record_of(folder, allow_pickle=allow_pickle, known=known_contents)
    return {
        **base,
        "name": name,
        "base": base["name"],
        "fingerprint": fingerprint([base["fingerprint"], revision, inputs.identity(contents)]),
        "adapter": {
            "source": source,
            "folder": str(folder.resolve()),
            "revision": revision,
            "type": str(config["peft_type"]),
            "rank": config.get("r"),
            "own_tokenizer": own_words,
            "allow_pickle": allow_pickle,
            "contents": contents,
        },
    }


def _locate(name: str, source: str, allow_pickle: bool) -> tuple[Path, str | None]:
    if source.startswith((".", "/", "~")):
        folder = Path(source).expanduser()
        if not folder.is_dir():
            raise ModelError(f"model {name}: the adapter {source} is no folder.")
        return folder, None
    repository, _, revision = source.partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ModelError(
            f'model {name}: "{source}" is no adapter: give a Hub id (owner/name or owner/name@revision) or a folder '
            'that starts with "./", "/" or "~".'
        )
    wanted = inputs.wanted(allow_pickle=allow_pickle)
    folder = snapshot(repository, revision or None, wanted, repo_type="model", complaint=ModelError, absent=ModelError)
    return folder, folder.name


def _config(name: str, folder: Path, source: str) -> dict:
    if not (folder / CONFIG).exists():
        hint = " It looks like a whole model; give it as source." if (folder / "config.json").exists() else ""
        raise ModelError(f"model {name}: {source} has no {CONFIG}, so it is no PEFT adapter.{hint}")
    config = read_json(name, folder / CONFIG)
    if not isinstance(config, dict) or not config.get("peft_type"):
        raise ModelError(f"model {name}: {CONFIG} of {source} names no peft_type; it is no PEFT adapter.")
    return config


def _check_name(name: str, source: str, config: dict, base: dict, allowed: bool) -> None:
    """Two Hub ids can be compared; a folder on the machine where it was trained says nothing here."""
    trained_on, given = config.get("base_model_name_or_path") or "", base["source"].partition("@")[0]
    hub_id = r"[\w.-]+/[\w.-]+"
    if allowed or not (re.fullmatch(hub_id, trained_on) and re.fullmatch(hub_id, given)) or trained_on.startswith("."):
        return
    if trained_on.casefold() != given.casefold():
        raise ModelError(
            f"model {name}: the adapter {source} was trained on {trained_on}, and its base here is {given}. "
            "Set allow_other_base: true for this model if that is meant."
        )


def _check_vocabulary(name: str, source: str, folder: Path, base: dict) -> bool:
    """True if the adapter brings a tokenizer with the base's words (perhaps another chat template)."""
    own, theirs = (Path(where) / "tokenizer.json" for where in (folder, base["folder"]))
    if not own.exists():
        return False
    if theirs.exists() and (extra := _words(name, own) ^ _words(name, theirs)):
        raise ModelError(vocabulary_mismatch(name, source, f"{len(extra)} tokens differ, {min(extra)!r} among them"))
    return True


def _words(name: str, tokenizer: Path) -> set[str]:
    content = read_json(name, tokenizer)
    try:
        vocabulary = content["model"].get("vocab") or {}
        words = vocabulary if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
        return {*words, *(token["content"] for token in content.get("added_tokens") or [])}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ModelError(f"model {name}: {tokenizer} is not a tokenizer.") from None
