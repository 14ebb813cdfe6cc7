"""Checkpoints that would hang a job, or take the machine's memory, are refused in a sentence within seconds.

Each case runs in a process of its own, under a limit of time and memory: without the check, it does not end.
"""

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support import adapting, tiny

SECONDS = 300  # a case takes a few; without its check it takes all, or more memory than it may
MEMORY = 3 << 30  # bytes of data, of which such a file must not take a multiple

RESOLVE = """
import sys
from pathlib import Path
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
try:
    resolve("m", sys.argv[1], Path(sys.argv[2]), allow_pickle=True, kind="causal", trust_remote_code=True)
except ModelError as error:
    print(error)
"""
ADAPTER = """
import sys
from pathlib import Path
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.core.errors import ModelError
base = {"name": "b", "source": "./b", "folder": sys.argv[1], "fingerprint": "b"}
for adapter in sys.argv[2:]:
    try:
        resolve_adapter("m", adapter, base)
    except ModelError as error:
        print(error)
"""


def said(code: str, *arguments, **environment) -> str:
    """What a process says under the limits; fails if it reaches one."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=SECONDS, cwd="/",
        env=os.environ | environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


LOAD = """
import sys
from pathlib import Path
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.inference.model.load import load
for folder in sys.argv[2:]:
    try:
        record = resolve("m", folder, Path(sys.argv[1]), kind="causal")
        load(record | {"dtype": "float32", "device": "cpu"})
    except ModelError as error:
        print(error)
"""
ENCODE = LOAD.replace(
    "vernacular.inference.model.load import load", "vernacular.metrics.similarity.compute import _measured"
)
ENCODE = ENCODE.replace("load(record |", "_measured([{'metric': 'cosine'}], [], [], {'cosine': record}, 'gl', 1 or")


@pytest.fixture
def folder(tmp_path):
    tiny.save("llama", tmp_path / "m")
    return tmp_path / "m"


def fifo(name: str):
    def spoil(folder: Path):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def device(name: str):
    def spoil(folder: Path):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("/dev/zero")

    return spoil


def config(**keys):
    def spoil(folder: Path):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    return spoil


def write_header(path: Path, header: bytes, size: int = 0) -> None:
    """A safetensors file of that header, and `size` bytes of data that are not on disk."""
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def many_tensors(count: int, width: int):
    """`count` empty tensors, whose names have `width` digits."""

    def spoil(folder: Path):
        entries = (f'"{n:0{width}d}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for n in range(count))
        write_header(folder / "model.safetensors", f"{{{','.join(entries)}}}".encode())

    return spoil


def of_holes(folder: Path):
    size = 1 << 42
    entry = {"model.embed_tokens.weight": {"dtype": "F32", "shape": [size >> 12, 1 << 10], "data_offsets": [0, size]}}
    write_header(folder / "model.safetensors", json.dumps(entry).encode(), size)


def huge(name: str):
    """2 TB of holes, with something at their start."""

    def spoil(folder: Path):
        with open(folder / name, "wb") as file:
            file.write(b"{}")
            file.truncate(1 << 41)

    return spoil


CASES = {
    "a FIFO as weights": (fifo("model.safetensors"), "model.safetensors: expected a regular file, got a named pipe"),
    "a FIFO as config": (fifo("config.json"), "config.json: expected a regular file, got a named pipe"),
    "a FIFO as tokenizer": (fifo("tokenizer.json"), "tokenizer.json: expected a regular file, got a named pipe"),
    "a FIFO as vocabulary": (fifo("vocab.txt"), "vocab.txt: expected a regular file, got a named pipe"),
    "a FIFO as code": (fifo("own.py"), "own.py: expected a regular file, got a named pipe"),
    "a FIFO as index": (
        lambda folder: [(folder / "model.safetensors").unlink(), fifo("model.safetensors.index.json")(folder)],
        "index.json: expected a regular file, got a named pipe",
    ),
    "an endless config": (device("config.json"), "config.json: expected a regular file, got a device"),
    "endless weights": (device("model.safetensors"), "model.safetensors: expected a regular file, got a device"),
    "a million layers": (config(num_hidden_layers=10**6), "at most 1000 as num_hidden_layers, got 1000000"),
    "a billion layers": (config(text_config={"n_layer": 10**9}), "n_layer, got 1000000000"),
    "a million tensors": (many_tensors(10**6, 1), "expected a header of at most 50 MB"),
    "many tensors": (many_tensors(300_000, 6), "got 300000"),
    "a long header": (many_tensors(1000, 60_000), "got 60 MB"),
    "holes as weights": (of_holes, "4398 GB, but only 0 MB are on disk"),
    "a huge config": (huge("config.json"), "config.json: expected at most 500 MB, got 2199023 MB"),
    "a huge vocabulary": (huge("vocab.txt"), "vocab.txt has a size of 2199 GB"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_time(folder, tmp_path, case):
    spoil, sentence = CASES[case]
    spoil(folder)
    message = said(RESOLVE, folder, tmp_path)
    assert sentence in message
    assert str(folder) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (os.mkfifo, "expected a regular file, got a named pipe"),
        (lambda path: path.write_bytes(b"GGUF") and os.truncate(path, 1 << 41), "0 MB are on disk"),
    ],
)
def test_a_gguf_file_that_is_none_is_refused_in_time(tmp_path, make, sentence):
    make(tmp_path / "m.gguf")
    assert sentence in said(RESOLVE, tmp_path / "m.gguf", tmp_path)


def test_an_adapter_with_a_fifo_is_refused_in_time(folder, tmp_path):
    adapting.train(folder, tmp_path / "adapter", steps=1)
    names = ["adapter_model.safetensors", "adapter_config.json", "tokenizer.json"]
    for name in names:
        shutil.copytree(tmp_path / "adapter", tmp_path / f"{name}.d")
        fifo(name)(tmp_path / f"{name}.d")
    lines = said(ADAPTER, folder, *(tmp_path / f"{name}.d" for name in names)).splitlines()
    for name, line in zip(names, lines, strict=True):
        assert f"{name}: expected a regular file, got a named pipe" in line


@pytest.mark.parametrize("code", [LOAD, ENCODE])
def test_sizes_that_the_weights_do_not_justify_are_refused_in_time(folder, tmp_path, code):
    folders = []
    for keys in ({"vocab_size": 10**10}, {"intermediate_size": 10**9}):
        folders.append(shutil.copytree(folder, tmp_path / str(len(folders)) / "m"))
        config(**keys)(folders[-1])
    lines = said(code, tmp_path, *folders).splitlines()
    for each, line in zip(folders, lines, strict=True):
        assert "expected at most" in line
        assert "parameters" in line
        assert str(each) in line


OWN = """import torch
from transformers import LlamaConfig, LlamaForCausalLM
class C(LlamaConfig): model_type = "own"
class M(LlamaForCausalLM):
    config_class = C
    def __init__(self, config):
        super().__init__(config)
        self.more = torch.nn.ModuleList(torch.nn.Identity() for _ in range(config.stages))
"""


@pytest.mark.parametrize(("stages", "sentence"), [(10**7, "more than 300000 modules"), (100, "")])
def test_what_is_built_is_counted_whatever_the_config_calls_it(folder, tmp_path, stages, sentence):
    (folder / "own.py").write_text(OWN)
    auto = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    config(model_type="own", auto_map=auto, stages=stages)(folder)
    trusting = LOAD.replace('"device": "cpu"', '"device": "cpu", "trust_remote_code": True')
    trusting = trusting.replace('kind="causal"', 'kind="causal", trust_remote_code=True')
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    message = said(trusting, tmp_path, folder, **environment)
    assert sentence in message
    assert bool(sentence) == bool(message)


def test_models_within_the_bounds_are_read(folder, tmp_path):
    assert said(RESOLVE, folder, tmp_path) == ""
