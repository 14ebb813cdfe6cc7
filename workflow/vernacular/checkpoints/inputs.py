"""The files of a checkpoint that can change its outputs: their names, contents and verification.

One list of patterns determines what is downloaded from the Hub, what enters the fingerprint, and what a job verifies
before loading. It covers what transformers, PEFT and sentence-transformers read from a checkpoint directory.
"""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from vernacular.checkpoints.files import read_json
from vernacular.core.contents import compare_contents, contents
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import Outcome, not_applicable
from vernacular.core.model_record import Listing, ModelRecord

PATTERNS = (
    "*.json",  # configs, tokenizer.json, vocab.json, added tokens, indexes of weights, modules of an encoder
    "*.safetensors",
    "*.model",  # SentencePiece, tiktoken
    "*.model.*",  # tokenizer.model.v3
    "*.txt",  # vocab.txt, merges.txt
    "*.jinja",  # chat templates
    "*.codes",  # bpe.codes of PhoBERT and BERTweet
    "*.spm",
    "*.tiktoken",
    "*.tokenizer",
)
PICKLED = ("*.bin",)
CODE = ("*.py", "*/*.py")
_NEVER_READ = {"training_args.bin", "optimizer.bin", "scheduler.bin"}  # written by trainers, not read for inference
_OF_TOKENIZERS = re.compile(
    r"(tokenizer|merges|added_tokens|special_|tekken|dict\.|byte_maps|emoji|.*vocab).*|.*\.(model|spm|tiktoken|tokenizer|codes)"
)
_TEMPLATES = "additional_chat_templates"


def is_path(source: str) -> bool:
    """Return whether the `source` of a model or adapter is a path, not a Hub ID or a package."""
    return source.startswith((".", "/", "~"))


def download_patterns(*, allow_pickle: bool = False, code: bool = False) -> list[str]:
    """Return the patterns of the files to download; on the Hub, `*` also matches subdirectories."""
    return [*PATTERNS, *(PICKLED if allow_pickle else ()), *(CODE[:1] if code else ())]


def files_of(root: Path, *, allow_pickle: bool = False, code: bool = False) -> list[str]:
    """Return the names, relative to `root`, of all files in a checkpoint that can change its outputs.

    Those that match the patterns, also in the directory of chat templates and those that modules.json names, and those
    that a config or index names; pickles if allowed or alone; Python files if they may be run (`code`).
    """
    names = set()
    for directory in (".", *_subdirectories(root)):
        entries = [entry.name for entry in os.scandir(root / directory) if not entry.is_dir()]
        pickled = allow_pickle or not any(name.endswith(".safetensors") for name in entries)
        patterns = [*PATTERNS, *(PICKLED if pickled else ())]
        matching = [n for n in entries if n not in _NEVER_READ and any(fnmatchcase(n, pattern) for pattern in patterns)]
        names |= {str(PurePosixPath(directory, name)) for name in matching}
    names |= _referenced_weights(root, names)
    if code:
        names |= {path.relative_to(root).as_posix() for pattern in CODE for path in root.glob(pattern)}
    for name in names:
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise ModelError(f"{root}: the name of file {name!r} is not valid UTF-8. Rename it.")
    return sorted(names)


def record_of(root: Path, *, allow_pickle: bool = False, code: bool = False, known: Listing | None = None) -> Listing:
    """Return the listing of a checkpoint's files, of a directory or a single file; `known`: hashes to reuse.

    Raises ModelError if one is not a regular file or cannot be read.
    """
    listing = {"allow_pickle": allow_pickle, "code": code}
    location = root.resolve()
    files = known.files if known and known.root == str(location) else None
    names = files_of(root, **listing) if root.is_dir() else ["."]
    return Listing(str(location), contents(location, names, files), **listing)


def identity(listing: Listing) -> str:
    """Return a hash of the names and contents of the files, independent of their location and times."""
    return fingerprint({name: entry["sha256"] for name, entry in listing.files.items()})


def is_tokenizer_file(name: str) -> bool:
    """Return whether a file of a checkpoint is one of its tokenizer.

    >>> list(map(is_tokenizer_file, ["spm.model", "source_vocab.json", "byte_maps.json", "config.json"]))
    [True, True, True, False]
    """
    return _OF_TOKENIZERS.fullmatch(name) is not None


def tokenizer_identity(record: ModelRecord) -> str | None:
    """Return a hash of `tokenizer.json`, else of all files of the tokenizer, or of a GGUF file; None: not recorded."""
    files = record.contents.files if record.contents else {}
    names = [name for name in files if name == "tokenizer.json"]
    names = names or [name for name in files if is_tokenizer_file(name) or record.is_gguf]
    return fingerprint({name: files[name]["sha256"] for name in names})[:12] if names else None


def differences(listing: Listing) -> list[str]:
    """Return the names of files that differ from a listing, are new or are missing; read-only."""
    return _compare(listing)[0]


def stale(record: ModelRecord) -> list[str]:
    """Return the paths of all files that differ from a record, of its source and its adapter, too."""
    recorded = [record.contents, record.source_contents, record.adapter and record.adapter.contents]
    return [_path(listing, name) for listing in recorded if listing for name in differences(listing)]


# how an inference job completed an evaluation of a checkpoint of a series that was deleted after it had been evaluated,
# which is usual while a model is trained, and why other evaluations are missing; its results remain
DELETED, DELETED_REASON = "of a deleted checkpoint", "the checkpoint was deleted before this evaluation"


def is_deleted(record: ModelRecord) -> bool:
    """Return whether the file or directory of a recorded local checkpoint or adapter no longer exists."""
    source = (record.adapter or record).source or ""
    return record.own_contents is not None and is_path(source) and not Path(record.own_contents.root).exists()


def deleted(record: ModelRecord) -> Outcome:
    """Return the outcome of an evaluation of a deleted checkpoint: it is tried again if the checkpoint exists again."""
    return not_applicable(DELETED_REASON, awaits=record.own_contents.root)


def verify(record: ModelRecord) -> None:
    """Raise ModelError if a file to be loaded differs from the record, is new or is missing.

    Entries in `record` are updated, so that a file whose times changed but not its content is read once.
    """
    for listing in (record.contents, record.adapter and record.adapter.contents):
        if not listing:
            continue
        changed_files, entries = _compare(listing)
        if changed_files:
            path = _path(listing, changed_files[0])
            suffix = f" and {len(changed_files) - 1} more" if len(changed_files) > 1 else ""
            advice = "Run the workflow again to record and evaluate the current files."
            raise ModelError(f"model {record.name}: {path}{suffix} changed since the model was recorded. {advice}")
        listing.files.update(entries)


def _compare(listing: Listing) -> tuple[list[str], dict]:
    root = Path(listing.root)
    if "." in listing.files:
        return compare_contents(root, ["."], listing.files)
    try:
        present = files_of(root, allow_pickle=listing.allow_pickle, code=listing.code)
    except OSError:  # the directory itself is missing or unreadable
        present = []
    return compare_contents(root, present, listing.files)


def _path(listing: Listing, name: str) -> str:
    return os.path.normpath(os.path.join(listing.root, name))


def _subdirectories(root: Path) -> list[str]:
    """Return the subdirectories in which a library looks for files, as relative paths."""
    directories = {_TEMPLATES} if (root / _TEMPLATES).is_dir() else set()
    modules = read_json(str(root), root / "modules.json") if (root / "modules.json").exists() else []
    paths = [module.get("path") for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    router = read_json(str(root), root / "router_config.json") if (root / "router_config.json").exists() else {}
    paths += list(router.get("types") or {}) if isinstance(router, dict) else []
    for path in paths:
        if not isinstance(path, str) or os.path.normpath(path) == "." or not (root / path).is_dir():
            continue
        if not (root / path).resolve().is_relative_to(root.resolve()):
            raise ModelError(f"{root / 'modules.json'}: {path} is outside the model's directory.")
        directories |= {os.path.relpath(directory, root) for directory, _, _ in os.walk(root / path)}
    return sorted(directories)


def _referenced_weights(root: Path, names: set[str]) -> set[str]:
    """Return weights that a config or an index names, and that have a custom name or are in a subdirectory."""
    referenced = []
    for name in names:
        if name == "config.json" or name.endswith(".index.json"):
            content = read_json(str(root), root / name)
            index = content.get("weight_map") if isinstance(content, dict) else None
            referenced += [content.get("transformers_weights")] if isinstance(content, dict) else []
            referenced += index.values() if isinstance(index, dict) else []
    return {os.path.normpath(name) for name in referenced if isinstance(name, str) and (root / name).exists()}
