"""Damages of a checkpoint; each function returns one that damages the checkpoint in a directory."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save_file

Damage = Callable[[Path], None]


def set_json_keys(name: str, **keys) -> Damage:
    """Set keys of a JSON file; None removes a key."""

    def damage(directory: Path) -> None:
        path = directory / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({k: v for k, v in {**content, **keys}.items() if v is not None}))

    return damage


def split_pattern(regex: str) -> Damage:
    """Split words by a regular expression."""
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return set_json_keys("tokenizer.json", pre_tokenizer=split)


def replace_file(name: str, content: str | bytes | None) -> Damage:
    """Replace the content of a file; None deletes it."""

    def damage(directory: Path) -> None:
        (directory / name).unlink(missing_ok=True)
        if content is not None:
            (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def replace_by_fifo(name: str) -> Damage:
    def damage(directory: Path) -> None:
        (directory / name).unlink(missing_ok=True)
        os.mkfifo(directory / name)

    return damage


def link_to(name: str, target: str) -> Damage:
    def damage(directory: Path) -> None:
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(target)

    return damage


def edit_weights(edit: Callable[[dict], object]) -> Damage:
    """Edit the tensors by name, in place or by returning another dict."""

    def damage(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        edited = edit(tensors)
        content = edited if isinstance(edited, dict) else tensors
        save_file(content, directory / "model.safetensors", metadata={"format": "pt"})

    return damage


def scale_weight(name: str, factor: float) -> Damage:
    return edit_weights(lambda tensors: tensors | {name: tensors[name] * factor})


def truncate_weights(stop: int) -> Damage:
    """Keep the first bytes, up to `stop`, which counts from the end if it is negative."""

    def damage(directory: Path) -> None:
        path = directory / "model.safetensors"
        path.write_bytes(path.read_bytes()[:stop])

    return damage


def flip_byte(path: Path) -> None:
    """Change one byte in the middle and restore the modification time, as merging a LoRA in place does."""
    before, content = path.stat(), bytearray(path.read_bytes())
    if path.suffix == ".json" and b": " in content:  # still valid JSON
        content = content.replace(b": ", b":\n", 1)
    else:
        content[len(content) // 2] ^= 1
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
