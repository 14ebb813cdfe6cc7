"""The key of an answered evaluation: a hash of the model, its number-changing options, the requests and the engine."""

import functools
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyarrow as pa

from vernacular.artifacts import Kind
from vernacular.fingerprint import code_fingerprint, fingerprint

# Options of a model record that change its answers (more than float noise); device and batch size do not.
_OPTIONS = (
    "kind",
    "dtype",
    "quantization",
    "bos",
    "max_length",
    "chat",
    "strategy",
    "engine",
    "gguf_file",
    "trust_remote_code",
)
_SHARED = ("load.py", "adapter.py", "chat.py", "tokens.py", "schema.py", "memory.py")
_LIBRARIES = ("torch", "transformers", "tokenizers")  # their versions are read without importing them
_NO_NUMBERS = ("store.py", "stopping.py", "run.py", "questions.py", "answers.py", "shards.py", "trouble.py", "keys.py")


@functools.cache
def engine_version(kind: Kind) -> str:
    """Hash of the code that makes artifacts of `kind`, and of the libraries whose numbers it passes on."""
    here = Path(__file__).parent
    shared = [here / name for name in _SHARED]
    if kind.name == "generations":
        own = sorted(here.glob("generate*.py"))
    else:
        own = [p for p in sorted(here.glob("*.py")) if not p.name.startswith("generate") and p.name not in _NO_NUMBERS]
    code = code_fingerprint(*{p for p in (*shared, *own) if p.exists()})
    return fingerprint([code, *(version(name) for name in _LIBRARIES)])[:16]


def evaluation_key(record: dict, requests: pa.Table, kind: Kind) -> str:
    """The store key of what a model answers to `requests` (any row order): model + options + requests + engine."""
    asked = sorted(zip(*(requests.column(c).to_pylist() for c in ("item_id", "role", "request_id")), strict=True))
    options = {name: record.get(name) for name in _OPTIONS}
    engine = [engine_version(kind), *_further_libraries(record, kind)]
    return fingerprint([kind.name, record["fingerprint"], options, engine, asked])[:40]


def _further_libraries(record: dict, kind: Kind) -> list[str]:
    """Those that make numbers for this model alone, with their versions."""
    used = {
        "vllm": record.get("engine") == "vllm" and kind.name == "generations",
        "peft": bool(record.get("adapter")),
        "bitsandbytes": bool(record.get("quantization")),
    }
    return [f"{name} {_version(name)}" for name, needed in used.items() if needed]


def _version(name: str) -> str | None:
    """None where it is not installed: the model's job says so."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
