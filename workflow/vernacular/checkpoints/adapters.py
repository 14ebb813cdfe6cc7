"""Resolution of adapters: their location, and whether they fit their base, checked before anything is loaded.

An adapter is a directory written by PEFT (LoRA and related methods): local, or a Hub repository with a revision. Its
record is the base's record with the adapter's files and fingerprint added.
"""

import re
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.checkpoints.files import check_size, read_json, shapes_in
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
    allow_base_mismatch: bool = False,
    known: dict | None = None,
) -> dict:
    """Return the record of `base` with the adapter of `source` added.

    The keys name and fingerprint are replaced, base and adapter {source, folder, revision, type, rank, …} are added.

    Args:
        allow_base_mismatch: Whether the adapter may have been trained on another base than the given one.
        known: An earlier record, whose hashes are reused for unchanged files.

    Raises:
        ModelError: The adapter does not exist, was not written by PEFT, is for another base, has its own
            vocabulary, or is of an unsupported type, such as one that changes the prompt instead of the weights.
    """
    folder, revision = _locate(name, source, allow_pickle)
    config = _config(name, folder, source)
    if reason := why_not(config):
        raise ModelError(f"model {name}: {source} {reason}")
    _check_name(name, source, config, base, allow_base_mismatch)
    for file in inputs.files_of(folder, allow_pickle=allow_pickle):
        check_size(name, folder / file)
    if (folder / WEIGHTS).exists():
        check_shapes(name, source, folder / WEIGHTS, config, base)
    elif not (folder / PICKLED).exists():
        raise ModelError(f"model {name}: no adapter weights ({WEIGHTS}) found in {source}.")
    elif not allow_pickle:
        raise ModelError(
            f"model {name}: {source} contains only pickled weights ({PICKLED}), which can run code when they are "
            "loaded. Set allow_pickle: true for this model if you trust it."
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
            raise ModelError(f"model {name}: adapter directory not found: {source}")
        return folder, None
    repository, _, revision = source.partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ModelError(
            f"model {name}: expected a Hub ID (owner/name or owner/name@revision) or a directory that starts with "
            f'"./", "/" or "~" as adapter, got "{source}".'
        )
    wanted = inputs.wanted(allow_pickle=allow_pickle)
    folder = snapshot(repository, revision or None, wanted, repo_type="model", complaint=ModelError, absent=ModelError)
    return folder, folder.name


def _config(name: str, folder: Path, source: str) -> dict:
    if not (folder / CONFIG).exists():
        is_model = (folder / "config.json").exists()
        hint = " It contains a complete model; set it as source instead of adapter." if is_model else ""
        raise ModelError(f"model {name}: {source} is not a PEFT adapter: {CONFIG} not found.{hint}")
    config = read_json(name, folder / CONFIG)
    if not isinstance(config, dict) or not config.get("peft_type"):
        raise ModelError(f"model {name}: {source} is not a PEFT adapter: peft_type not found in {CONFIG}.")
    return config


def _check_name(name: str, source: str, config: dict, base: dict, allowed: bool) -> None:
    """Raise ModelError if the adapter was trained on another base than the given one.

    Only two Hub IDs can be compared; a local path on the training machine is not informative.
    """
    trained_on, given = config.get("base_model_name_or_path") or "", base["source"].partition("@")[0]
    hub_id = r"[\w.-]+/[\w.-]+"
    if allowed or not (re.fullmatch(hub_id, trained_on) and re.fullmatch(hub_id, given)) or trained_on.startswith("."):
        return
    if trained_on.casefold() != given.casefold():
        raise ModelError(
            f"model {name}: expected the base {trained_on}, on which the adapter {source} was trained, got {given}. "
            "Set allow_base_mismatch: true for this model if this is intended."
        )


def _check_vocabulary(name: str, source: str, folder: Path, base: dict) -> bool:
    """Return whether the adapter has its own tokenizer; its chat template may differ from the base's.

    Raises ModelError if its vocabulary differs.
    """
    own, theirs = (Path(where) / "tokenizer.json" for where in (folder, base["folder"]))
    if not own.exists():
        return False
    if theirs.exists() and (extra := _words(name, own) ^ _words(name, theirs)):
        raise ModelError(
            vocabulary_mismatch(name, source, f"{len(extra)} of the tokens differ, such as {min(extra)!r}")
        )
    return True


def _words(name: str, tokenizer: Path) -> set[str]:
    content = read_json(name, tokenizer)
    try:
        vocabulary = content["model"].get("vocab") or {}
        words = vocabulary if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
        return {*words, *(token["content"] for token in content.get("added_tokens") or [])}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ModelError(f"model {name}: {tokenizer} is not a tokenizer.") from None


_UNPACKED = {"F64", "F32", "F16", "BF16"}  # shapes of packed (quantized) weights cannot be compared


def check_shapes(name: str, source: str, weights: Path, config: dict, base: dict) -> None:
    """Raise ModelError if a weight in the file `weights` does not fit the base weight that it changes or replaces."""
    own = shapes_in(name, weights, _UNPACKED)
    of_adapter = {key.removeprefix("base_model.model."): shape for key, shape in own.items()}
    of_base = {}
    for file in sorted(Path(base["folder"]).glob("*.safetensors")):
        of_base |= shapes_in(name, file, _UNPACKED)
    misfit = f"model {name}: the adapter {source} does not fit its base {base['name']} ({base['source']})"
    for key, shape in of_adapter.items():
        module, part = _parted(key)
        found = _in_base(of_base, f"{module}.bias" if part == "bias" else f"{module}.weight")
        if not found or not shape:
            continue
        rows, words = found[0], _rows_in_vocabulary(module, part, shape, config)
        if words is not None and words != rows and (words > rows or part != "trainable_tokens_delta"):
            raise ModelError(vocabulary_mismatch(name, source, f"expected {rows} rows in {key}, got {words}"))
        if part in ("weight", "bias") and shape != found:
            raise ModelError(f"{misfit}: expected shape {_shown(found)} of {module}, got {_shown(shape)}.")
        size = {
            "lora_A": shape[-1],
            "lora_B": shape[0],
            "lora_embedding_B": shape[0],
            "trainable_tokens_delta": shape[-1],
        }.get(part)
        if config.get("use_bdlora"):  # block-diagonal: a block's size
            size = None
        if size is not None and size not in found:
            raise ModelError(f"{misfit}: expected a dimension of {module} ({_shown(found)}), got {size}.")
    deepest = _deepest(of_base)
    for container, number in _deepest(of_adapter).items():
        if number > deepest.get(container, number):
            raise ModelError(f"{misfit}: expected layers 0 to {deepest[container]}, got layer {number}.")


def vocabulary_mismatch(name: str, source: str, what: str) -> str:
    """Return the error message for an adapter whose vocabulary is not its base's."""
    return (
        f"model {name}: the vocabulary of the adapter {source} differs from that of its base ({what}). "
        "Merge the adapter into its base and evaluate the result as a separate model."
    )


def _parted(key: str) -> tuple[str, str]:
    """Split an adapter weight's name into the module that it changes and the part of it.

    >>> _parted("model.embed_tokens.token_adapter.trainable_tokens_delta")
    ('model.embed_tokens', 'trainable_tokens_delta')
    >>> _parted("model.embed_tokens.base_layer.weight"), _parted("h.0.lora_A.weight")
    (('model.embed_tokens', 'weight'), ('h.0', 'lora_A'))
    """
    key = re.sub(r"\.(base_layer|token_adapter|original_module|modules_to_save)(?=\.)", "", key)
    module, _, part = re.sub(r"\.(lora_[AB])\.weight$", r".\1", key).rpartition(".")
    return module, part


def _in_base(of_base: dict[str, list[int]], name: str) -> list[int] | None:
    """Return the shape of a base weight; files may omit the first component of names ("transformer." of GPT-2)."""
    return of_base.get(name) or of_base.get(name.partition(".")[2])


def _rows_in_vocabulary(module: str, part: str, shape: list[int], config: dict) -> int | None:
    """Return the number of tokens that an adapter weight is for, or None if it has no row per token.

    For a weight of single tokens: the highest token ID plus one.
    """
    if part == "lora_embedding_A":
        return shape[1]
    if part == "weight" and len(shape) == 2 and not re.search(r"\.\d+\.", module):  # embeddings, or the head
        return shape[0]
    if part == "trainable_tokens_delta":
        tokens = config.get("trainable_token_indices") or config.get("token_indices") or []
        lists = tokens.values() if isinstance(tokens, dict) else [tokens]
        return 1 + max((token for some in lists for token in some if isinstance(token, int)), default=-1)
    return None


def _deepest(names) -> dict[str, int]:
    """Return the highest index in each list of modules, by the list's name."""
    found: dict[str, int] = {}
    for name in names:
        for container, number in re.findall(r"(?:^|\.)([^.]+)\.(\d+)(?=\.)", name):
            found[container] = max(found.get(container, 0), int(number))
    return found


def _shown(shape: list[int]) -> str:
    return " x ".join(map(str, shape))
