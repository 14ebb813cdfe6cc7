"""The key of an evaluation in the store: a hash of the model, its options, the requests and the engine."""

import functools

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.core.code import code_fingerprint, version_of
from vernacular.core.fingerprint import fingerprint

# Options of a model record that change its outputs (more than float noise); device and batch size do not.
OPTIONS = (
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
ENTRIES = {
    "scores": ("vernacular.inference.score", "vernacular.inference.load", "vernacular.inference.base"),
    "generations": (
        "vernacular.inference.generate",
        "vernacular.inference.generate_vllm",
        "vernacular.inference.load",
        "vernacular.inference.base",
    ),
}
LIBRARIES = ("torch", "transformers", "tokenizers")  # their versions are read without importing them


@functools.cache
def engine_version(kind: Kind) -> str:
    """Hash of the code that makes artifacts of `kind`, and of the libraries whose numbers it passes on."""
    code = code_fingerprint(*ENTRIES[kind.name])
    return fingerprint([code, *(f"{name} {version_of(name)}" for name in LIBRARIES)])[:16]


def evaluation_key(record: dict, requests: pa.Table, kind: Kind) -> str:
    """Return the store key of an evaluation; independent of row order."""
    asked = sorted(zip(*(requests.column(c).to_pylist() for c in ("item_id", "role", "request_id")), strict=True))
    options = {name: record.get(name) for name in OPTIONS}
    engine = [engine_version(kind), *further_libraries(record, kind)]
    return fingerprint([kind.name, record["fingerprint"], options, engine, asked])[:40]


def further_libraries(record: dict, kind: Kind) -> list[str]:
    """Libraries that make numbers for this model alone, with their versions."""
    used = {
        "vllm": record.get("engine") == "vllm" and kind.name == "generations",
        "peft": bool(record.get("adapter")),
        "bitsandbytes": bool(record.get("quantization")),
    }
    return [f"{name} {version_of(name)}" for name, needed in used.items() if needed]
