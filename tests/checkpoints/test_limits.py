"""Checkpoints that would block a job, or exhaust the memory, raise an error within seconds.

Cases run in separate processes with limits on time and memory; without the check, a process does not end.
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
from support import lora_training, tiny
from support.damaged import link_to, replace_by_fifo, set_json_keys
from support.messages import assert_states

SECONDS = 300  # a process takes a few; without the check, it reaches this limit or the memory limit
MEMORY = 3 << 30  # bytes of data; such a file must not take a multiple of it

# each prints a JSON string for each source: the message of its error, or nothing
RESOLVE = """
import json, sys
from pathlib import Path
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
for source in sys.argv[2:]:
    message = ""
    try:
        resolve("m", source, Path(sys.argv[1]), allow_pickle=True, kind="causal", trust_remote_code=True)
    except ModelError as error:
        message = str(error)
    print(json.dumps(message), flush=True)
"""
ADAPTER = """
import json, sys
from pathlib import Path
from vernacular.core.model_record import ModelRecord
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.core.errors import ModelError
base = ModelRecord(name="b", source="./b", directory=sys.argv[1], fingerprint="b")
for adapter in sys.argv[2:]:
    message = ""
    try:
        resolve_adapter("m", adapter, base)
    except ModelError as error:
        message = str(error)
    print(json.dumps(message), flush=True)
"""


def run_limited(code: str, *arguments, **environment) -> list[str]:
    """Run code in a process with limits, and return the messages that it prints; fail if it reaches a limit."""
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=SECONDS, cwd="/",
        env=os.environ | environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    return [json.loads(line) for line in process.stdout.splitlines()]


LOAD = """
import json, sys
from pathlib import Path
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.inference.model.load import load
for directory in sys.argv[2:]:
    message = ""
    try:
        record = resolve("m", directory, Path(sys.argv[1]), kind="causal")
        load(record | {"dtype": "float32", "device": "cpu"})
    except ModelError as error:
        message = str(error)
    print(json.dumps(message), flush=True)
"""
ENCODE = LOAD.replace(
    "vernacular.inference.model.load import load", "vernacular.metrics.similarity.compute import _compute_group"
)
ENCODE = ENCODE.replace(
    "load(record |", "_compute_group([{'metric': 'cosine'}], [], [], {'cosine': record}, 'gl', 1 or"
)


@pytest.fixture
def checkpoint(tmp_path):
    tiny.save("llama", tmp_path / "m")
    return tmp_path / "m"


def write_header(path: Path, header: bytes, size: int = 0) -> None:
    """Write a safetensors file with this header, and `size` bytes of data that are not on disk."""
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def many_tensors(count: int, width: int):
    """Return a function that writes `count` empty tensors, whose names have `width` digits."""

    def damage(checkpoint: Path):
        entries = (f'"{n:0{width}d}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for n in range(count))
        write_header(checkpoint / "model.safetensors", f"{{{','.join(entries)}}}".encode())

    return damage


def sparse_weights(checkpoint: Path):
    size = 1 << 42
    entry = {"model.embed_tokens.weight": {"dtype": "F32", "shape": [size >> 12, 1 << 10], "data_offsets": [0, size]}}
    write_header(checkpoint / "model.safetensors", json.dumps(entry).encode(), size)


def sparse_file(name: str):
    """Return a function that writes a sparse file of 2 TB, with some content at the start."""

    def damage(checkpoint: Path):
        with open(checkpoint / name, "wb") as file:
            file.write(b"{}")
            file.truncate(1 << 41)

    return damage


PIPE = ("regular file", "named pipe")

CASES = {
    "a FIFO as weights": (replace_by_fifo("model.safetensors"), ("/model.safetensors:", *PIPE)),
    "a FIFO as config": (replace_by_fifo("config.json"), ("/config.json:", *PIPE)),
    "a FIFO as tokenizer": (replace_by_fifo("tokenizer.json"), ("/tokenizer.json:", *PIPE)),
    "a FIFO as vocabulary": (replace_by_fifo("vocab.txt"), ("/vocab.txt:", *PIPE)),
    "a FIFO as code": (replace_by_fifo("own.py"), ("/own.py:", *PIPE)),
    "a FIFO as index": (
        lambda checkpoint: [
            (checkpoint / "model.safetensors").unlink(),
            replace_by_fifo("model.safetensors.index.json")(checkpoint),
        ],
        ("/model.safetensors.index.json:", *PIPE),
    ),
    "an endless config": (link_to("config.json", "/dev/zero"), ("/config.json:", "regular file", "device")),
    "endless weights": (link_to("model.safetensors", "/dev/zero"), ("/model.safetensors:", "regular file", "device")),
    "a million layers": (
        set_json_keys("config.json", num_hidden_layers=10**6),
        ("/config.json", "1000", "num_hidden_layers", "1000000"),
    ),
    "a billion layers": (
        set_json_keys("config.json", text_config={"n_layer": 10**9}),
        ("/config.json", "n_layer", "1000000000"),
    ),
    "a million tensors": (many_tensors(10**6, 1), ("header", "50 MB", "/model.safetensors")),
    "many tensors": (many_tensors(300_000, 6), ("200000 tensors", "/model.safetensors", "300000")),
    "a long header": (many_tensors(1000, 60_000), ("header", "50 MB", "/model.safetensors", "60 MB")),
    "holes as weights": (sparse_weights, ("/model.safetensors", "4398 GB", "0 MB", "disk")),
    "a huge config": (sparse_file("config.json"), ("/config.json", "500 MB", "2199023 MB")),
    "a huge vocabulary": (sparse_file("vocab.txt"), ("/vocab.txt", "2199 GB", "disk")),
}


GGUF_FILES = {
    "a FIFO as GGUF": (os.mkfifo, PIPE),
    "holes as GGUF": (lambda path: path.write_bytes(b"GGUF") and os.truncate(path, 1 << 41), ("0 MB", "disk")),
}


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """{case: (source, message)} of all cases and a whole checkpoint, "whole", resolved by one process."""
    directory = tmp_path_factory.mktemp("cases")
    tiny.save("llama", directory / "m")
    sources = {"whole": directory / "m"}
    for number, (case, (damage, _)) in enumerate(CASES.items()):
        sources[case] = shutil.copytree(directory / "m", directory / str(number) / "m")
        damage(sources[case])
    for number, (case, (make, _)) in enumerate(GGUF_FILES.items()):
        sources[case] = directory / f"{number}.gguf"
        make(sources[case])
    found = run_limited(RESOLVE, directory / "converted", *sources.values())
    return {case: (str(source), message) for (case, source), message in zip(sources.items(), found, strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_oversized_or_special_files_are_rejected_within_limits(messages, case):
    source, message = messages[case]
    assert_states(message, *CASES[case][1])
    assert source in message
    assert "\n" not in message


@pytest.mark.parametrize("case", GGUF_FILES)
def test_invalid_gguf_file_is_rejected_within_limits(messages, case):
    source, message = messages[case]
    assert_states(message, source, *GGUF_FILES[case][1])


def test_adapter_with_fifo_is_rejected_within_limits(checkpoint, tmp_path):
    lora_training.train(checkpoint, tmp_path / "adapter", steps=1)
    names = ["adapter_model.safetensors", "adapter_config.json", "tokenizer.json"]
    for name in names:
        shutil.copytree(tmp_path / "adapter", tmp_path / f"{name}.d")
        replace_by_fifo(name)(tmp_path / f"{name}.d")
    lines = run_limited(ADAPTER, checkpoint, *(tmp_path / f"{name}.d" for name in names))
    for name, line in zip(names, lines, strict=True):
        assert_states(line, f"{name}.d/{name}:", *PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("code", [LOAD, ENCODE])
def test_config_sizes_that_exceed_weights_are_rejected_within_limits(checkpoint, tmp_path, code):
    checkpoints = []
    for keys in ({"vocab_size": 10**10}, {"intermediate_size": 10**9}):
        checkpoints.append(shutil.copytree(checkpoint, tmp_path / str(len(checkpoints)) / "m"))
        set_json_keys("config.json", **keys)(checkpoints[-1])
    lines = run_limited(code, tmp_path, *checkpoints)
    for checkpoint_dir, line in zip(checkpoints, lines, strict=True):
        assert_states(line, "at most", "parameters", str(checkpoint_dir))


CUSTOM_MODEL = """import torch
from transformers import LlamaConfig, LlamaForCausalLM
class C(LlamaConfig): model_type = "own"
class M(LlamaForCausalLM):
    config_class = C
    def __init__(self, config):
        super().__init__(config)
        self.more = torch.nn.ModuleList(torch.nn.Identity() for _ in range(config.stages))
"""


@pytest.mark.slow
def test_modules_are_counted_independently_of_config_keys(checkpoint, tmp_path):
    (checkpoint / "own.py").write_text(CUSTOM_MODEL)
    auto = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    checkpoints = [shutil.copytree(checkpoint, tmp_path / name / "m") for name in ("many", "few")]
    for directory, stages in zip(checkpoints, (10**7, 100), strict=True):
        set_json_keys("config.json", model_type="own", auto_map=auto, stages=stages)(directory)
    code = LOAD.replace('"device": "cpu"', '"device": "cpu", "trust_remote_code": True')
    code = code.replace('kind="causal"', 'kind="causal", trust_remote_code=True')
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    many, few = run_limited(code, tmp_path, *checkpoints, **environment)
    assert "300000 modules" in many
    assert few == ""


def test_model_within_limits_is_accepted(messages):
    assert messages["whole"][1] == ""
