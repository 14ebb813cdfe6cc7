"""GGUF files by llama.cpp: tokenizer, generated texts, adapters, `vernacular.load`, keys, and what cannot be run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import vernacular
from support import gguf_models as models
from support import llama, tiny
from support.messages import assert_states
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.llama_cpp import check_model
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import MachineError, ModelError
from vernacular.core.model_record import ModelRecord
from vernacular.inference.engine import LlamaCpp, engine_name
from vernacular.inference.job.work import engine_version
from vernacular.inference.model.tokenization import Rendered, decode_continuation
from vernacular.inference.schema import GENERATIONS, SCORES, MemoryJournal
from vernacular.protocols.schema import REQUESTS

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (pip install llama-cpp-python)")

SCRIPTS = (
    "O gato <eos> dorme.",
    "أكلت القطة",
    "დღეს 🐈",
    "नमस्ते क़लम",
    "한국어 가",
    "日本語",
    "  dous  espazos ",
    "ño\n\n1234",
)


@pytest.fixture(scope="module")
def llama_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "mine.gguf"
    models.write(*models.model("llama"), path, "llama")
    return path


@pytest.fixture(scope="module")
def base(llama_file) -> ModelRecord:
    return resolve("base", str(llama_file), llama_file.parent, as_is=True)


@pytest.fixture(scope="module")
def engine(base):
    return LlamaCpp(base, threads=1)


def run(engine, rows, kind, record=None):
    with engine.model(record or engine.record):
        prepared = engine.prepare(kind, rows)
        engine.compute(prepared, MemoryJournal())
        table, metadata = engine.finish(prepared)
    return table.slice().to_pylist(), metadata


def prompts(texts, **content):
    rows = [
        dict.fromkeys(REQUESTS.schema.names)
        | {
            "request_id": f"r{n}",
            "item_id": f"i{n}",
            "role": "response",
            "kind": "generate",
            "prefix": "",
            "text": text,
        }
        | {"stop": [], "max_new_tokens": 8}
        | content
        for n, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


def test_file_is_run_as_it_is_and_nothing_is_written(llama_file, base):
    assert base.is_gguf
    assert Path(base.directory) == llama_file
    assert [path.name for path in llama_file.parent.iterdir()] == ["mine.gguf"]
    assert (base.kind, base.architecture) == ("causal", "llama")
    assert base.parameters == sum(p.numel() for p in models.model("llama")[0].parameters()) + 32  # rope_freqs


def test_scoring_a_file_imports_no_torch(llama_file, tmp_path):
    code = (
        "import sys, vernacular\n"
        "with vernacular.load(sys.argv[1], threads=1, resources=sys.argv[2]) as model:\n"
        "    print(len(model.surprisal(['O gato dorme.'])), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(llama_file), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    n_tokens, has_torch = printed.split()
    assert (int(n_tokens) > 3, has_torch) == (True, "False")


def test_file_of_the_hubs_cache_is_a_link(llama_file, base, tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0a1b").write_bytes(llama_file.read_bytes())
    (tmp_path / "mine.gguf").symlink_to(tmp_path / "blobs" / "0a1b")
    linked = resolve("base", str(tmp_path / "mine.gguf"), tmp_path / "out", as_is=True)
    assert (linked.is_gguf, linked.fingerprint) == (True, base.fingerprint)
    assert LlamaCpp(linked, threads=1).loaded.n_embeddings == len(tiny.tokenizer("bytes"))


@pytest.mark.parametrize("kind", ["bytes", "prepend"])
def test_tokens_are_those_of_the_file_in_every_script(kind, tmp_path):
    tokenizer = tiny.tokenizer(kind)
    loaded = tiny.load_model("llama", tokens=kind)
    if kind == "prepend":
        _write_sentencepiece(loaded, tmp_path / "x.gguf")
    else:
        llama.write_gguf(loaded, tmp_path / "x.gguf")
    record = resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out", as_is=True)
    own = LlamaCpp(record, threads=1).loaded.tokenizer
    for text in SCRIPTS:
        encoding = own(text, add_special_tokens=False).encodings[0]
        covered = {c for start, end in encoding.offsets for c in range(start, end)}
        assert covered == set(range(len(text))), text
        assert own.decode(encoding.ids).lstrip() == text.lstrip()
        if kind == "bytes" and "<eos>" not in text:
            expected = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert encoding.ids == expected, text
            assert own.convert_ids_to_tokens(expected) == tokenizer.convert_ids_to_tokens(expected)
    assert own.eos_token_id not in own("a<eos></s>b", add_special_tokens=False)["input_ids"]


def _write_sentencepiece(loaded, path) -> None:
    """Write a model with a vocabulary of SentencePiece, by whose scores llama.cpp merges."""
    import gguf

    vocabulary = loaded.tokenizer.convert_ids_to_tokens(list(range(len(loaded.tokenizer))))
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types += [gguf.TokenType.BYTE if t.startswith("<0x") else gguf.TokenType.NORMAL for t in vocabulary[3:]]
    llama.write_gguf(loaded, path, tokens=(vocabulary, types))


def test_pre_tokenizer_that_is_not_stated_is_noted(engine, tmp_path):
    llama.write_gguf(tiny.load_model("llama", tokens="bytes"), tmp_path / "x.gguf", pre=None)
    record = resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out", as_is=True)
    assert_states(LlamaCpp(record, threads=1).loaded.metadata()["loading"][0], "tokenizer.ggml.pre", "default")
    assert "loading" not in engine.loaded.metadata()


def test_control_token_in_a_turn_is_text_with_sentencepiece(tmp_path):
    _write_sentencepiece(tiny.load_model("llama", tokens="prepend"), tmp_path / "x.gguf")
    own = LlamaCpp(resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out", as_is=True), threads=1).loaded.tokenizer
    text = "<s>user: a </s> b</s>\nmodel:"
    encoding = own(Rendered.of(own, text, ["a </s> b"]), add_special_tokens=False).encodings[0]
    assert encoding.ids.count(own.eos_token_id) == 1
    assert {c for start, end in encoding.offsets for c in range(start, end)} == set(range(len(text)))


def test_control_tokens_are_read_where_the_template_writes_them_only(engine):
    tokenizer = engine.loaded.tokenizer
    text = "<bos>user: a <eos> b<eos>"
    ids = tokenizer(Rendered.of(tokenizer, text, ["a <eos> b"]), add_special_tokens=False)["input_ids"]
    assert (ids.count(tokenizer.bos_token_id), ids.count(tokenizer.eos_token_id)) == (1, 1)
    assert ids[-1] == tokenizer.eos_token_id
    rows, _ = run(engine, tiny.score_requests([("a <eos> b", 0, 9)]), SCORES)
    assert rows[0]["flags"] is None
    assert "<eos>" not in rows[0]["tokens"]


def test_greedy_texts_are_those_of_the_most_probable_tokens_alone(engine):
    texts = ["O gato dorme no", "O gato dorme na casa", "Quen"]
    rows, metadata = run(engine, prompts(texts), GENERATIONS)
    assert metadata["engine"]["name"] == "llama.cpp"
    for text, row in zip(texts, rows, strict=True):
        ids = engine.loaded.tokenizer(text)["input_ids"]
        new = []
        while len(new) < 8:
            token = int(models.logits_alone(engine.loaded, ids + new)[-1].argmax())
            if token in engine.loaded.tokenizer.end_ids:
                break
            new.append(token)
        assert row["raw_output"] == decode_continuation(engine.loaded.tokenizer, ids, new)
    single = [run(engine, prompts([text]), GENERATIONS)[0][0]["raw_output"] for text in texts]
    assert single == [row["raw_output"] for row in rows]
    stop = rows[0]["raw_output"][2:4]
    stopped, _ = run(engine, prompts(texts[:1], stop=[stop]), GENERATIONS)
    assert (stopped[0]["finish_reason"], stop in stopped[0]["output"]) == ("stop", False)


def test_samples_are_those_of_their_seed(engine):
    decoding = dict.fromkeys(("temperature", "top_k", "top_p", "repetition_penalty", "seed", "min_p"))
    table = prompts(["O gato", "O gato dorme"], decoding=decoding | {"temperature": 1.0, "seed": 3})
    first, again = (run(engine, table, GENERATIONS)[0] for _ in range(2))
    assert first == again
    greedy, _ = run(engine, prompts(["O gato", "O gato dorme"]), GENERATIONS)
    assert [row["output"] for row in first] != [row["output"] for row in greedy]


def test_adapter_in_gguf_changes_the_weights_and_is_removed(engine, base, tmp_path):
    added = models.write_adapter(tmp_path / "lora.gguf")
    adapted = resolve_adapter("gl", str(tmp_path / "lora.gguf"), base)
    table = tiny.score_requests([("O gato dorme no tellado.", 0, 24)])
    before, _ = run(engine, table, SCORES, base)
    rows, metadata = run(engine, table, SCORES, adapted)
    assert metadata["model"]["adapter"]["source"] == str(tmp_path / "lora.gguf")
    assert run(engine, table, SCORES, base)[0] == before
    made, tokenizer = models.model("llama")
    made.model.layers[0].mlp.down_proj.weight += torch.from_numpy(added["scale"] * added["b"] @ added["a"]).float()
    ids = [tokenizer.bos_token_id, *tokenizer("O gato dorme no tellado.")["input_ids"]]
    expected = made(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)[range(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(rows[0]["logprobs"], expected.numpy(), atol=1e-4)
    assert np.abs(np.subtract(rows[0]["logprobs"], before[0]["logprobs"])).max() > 0.01


def test_adapter_of_another_format_or_architecture_is_rejected(base, llama_file, tmp_path):
    models.write_adapter(tmp_path / "other.gguf", architecture="qwen2")
    for source, parts in {
        tmp_path / "other.gguf": ("other.gguf", "adapter of llama", "qwen2"),
        llama_file: ("mine.gguf is not a LoRA adapter",),
        tmp_path: ("is an adapter of PEFT", "convert_lora_to_gguf.py", "dtype: float32 of base"),
    }.items():
        with pytest.raises(ModelError) as raised:
            resolve_adapter("gl", str(source), base)
        assert_states(raised.value, "gl", *parts)
    models.write_adapter(tmp_path / "lora.gguf")
    with pytest.raises(ModelError, match=r"lora.gguf is an adapter in GGUF, and its base mine is no GGUF file"):
        resolve_adapter("gl", str(tmp_path / "lora.gguf"), tiny.save("llama", tmp_path / "mine") | {"name": "mine"})


def test_notebook_loads_a_file(llama_file, tmp_path):
    with vernacular.load(llama_file, threads=1, resources=tmp_path) as model:
        frame = model.surprisal(["O gato dorme."])
        assert frame["surprisal"].notna().all()
        assert "".join(frame["token"]) == "O gato dorme."
        assert model.generate(["O gato"], max_new_tokens=4)["output"].notna().all()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_keys_depend_on_the_version_of_the_binding(base, set_version):
    assert engine_name(base) == "llama.cpp"
    known = {kind.name: engine_version(kind, "llama.cpp") for kind in (SCORES, GENERATIONS)}
    set_version("llama_cpp_python", "99.0")
    for kind in (SCORES, GENERATIONS):
        assert engine_version.__wrapped__(kind, "llama.cpp") != known[kind.name]
    set_version("torch", "99.0")
    assert known[SCORES.name] == engine_version(SCORES, "llama.cpp")


def _add(key: str, value, kind: str = "uint32"):
    return lambda writer: getattr(writer, f"add_{kind}")(key, value)


REJECTED = {
    "split": (_add("split.count", 3, "uint16"), ("is one of 3 parts of a split model", "llama-gguf-split --merge")),
    "projector": (_add("general.type", "mmproj", "string"), ("the projector of a vision model",)),
    "embedding": (_add("llama.pooling_type", 3), ("is an embedding or masked model",)),
    "masked": (_add("llama.attention.causal", False, "bool"), ("is an embedding or masked model",)),
    "imatrix": (_add("general.type", "imatrix", "string"), ("contains imatrix, no model",)),
}


@pytest.mark.parametrize("name", REJECTED)
def test_file_that_is_no_causal_model_is_rejected(name, tmp_path):
    add, parts = REJECTED[name]
    llama.write_gguf(tiny.load_model("llama", tokens="bytes"), tmp_path / "x.gguf", add=add)
    with pytest.raises(ModelError) as raised:
        check_model("mine", tmp_path / "x.gguf", "auto")
    assert_states(raised.value, "mine", "x.gguf", *parts)


def test_damaged_file_and_unknown_architecture_are_rejected(llama_file, tmp_path):
    content = llama_file.read_bytes()
    llama.write_gguf(tiny.load_model("llama", tokens="bytes"), tmp_path / "new.gguf", architecture="zzz")
    cases = {
        "cut.gguf": (content[: len(content) // 2], ("cannot be read as GGUF", "Download it again")),
        "header.gguf": (content[:500], ("cannot be read as GGUF", "Download it again")),
        "page.gguf": (b"<!DOCTYPE html>" * 10, ("cannot be read as GGUF", "Download it again")),
        "new.gguf": (
            (tmp_path / "new.gguf").read_bytes(),
            ("its architecture, zzz", "later version", "dtype: float32"),
        ),
    }
    for name, (data, parts) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ModelError) as raised:
            resolve("mine", str(tmp_path / name), tmp_path / "out", as_is=True)
        assert_states(raised.value, "mine", name, *parts)
    with pytest.raises(ModelError, match=r"is a causal model. Remove kind: masked"):
        check_model("mine", llama_file, "masked")


def test_context_that_does_not_fit_in_memory_is_one_sentence(llama_file, engine):
    with pytest.raises(MachineError) as raised:
        engine.loaded.open_context(10**9)
    assert_states(raised.value, "mine.gguf", "GB", "Set max_length")
    assert run(engine, tiny.score_requests([("O gato", 0, 6)]), SCORES)[0][0]["logprobs"]  # nothing is lost


def test_device_that_the_library_was_not_built_for_is_one_sentence(base, engine):
    if engine.loaded.llama.llama_supports_gpu_offload():
        pytest.skip("llama.cpp was built with support of GPUs")
    with pytest.raises(MachineError, match=r"device is cuda.*built without support of GPUs.*set device: cpu"):
        LlamaCpp(base | {"device": "cuda"})


def test_without_the_library_a_file_is_one_sentence_with_both_ways(llama_file, tmp_path):
    code = (
        "import sys; sys.modules['llama_cpp'] = None\n"
        "from pathlib import Path\n"
        "from vernacular.checkpoints.resolve import resolve\n"
        "try: resolve('mine', sys.argv[1], Path(sys.argv[2]), as_is=True)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    command = [sys.executable, "-c", code, str(llama_file), str(tmp_path)]
    message = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert_states(message, "ModelError", "llama.cpp", "pip install llama-cpp-python", "dtype: float32")
