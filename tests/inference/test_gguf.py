"""GGUF files by llama.cpp: values of every text as if it were alone, by any bit, and those of transformers in float32."""

import numpy as np
import pytest
import torch
from support import gguf_models as models
from support import tiny
from vernacular.core.model_record import ModelRecord
from vernacular.inference.engine import LlamaCpp
from vernacular.inference.llama.score import reduce
from vernacular.inference.schema import SCORES, MemoryJournal

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (pip install llama-cpp-python)")

TYPES = tuple(models.FILE_TYPES)
EXTRAS = ("entropy", "logprob_moments", "rank", "top_token", "word_end_logprobs")
PREFIX = "O gato dorme no tellado e a cadela ladra na rúa. A choiva cae amodo sobre a vila. "
ENDINGS = (" o gato", " a cadela", " ninguén sae da casa", " ქართული ენა", " हिन्दी 😀")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of an architecture, by type, written once."""
    directory, written = tmp_path_factory.mktemp("gguf"), {}

    def of(architecture: str):
        if architecture not in written:
            written[architecture] = models.write_all(architecture, directory)
        return written[architecture]

    return of


def record(path, **settings) -> ModelRecord:
    return ModelRecord(**{"name": "mine", "directory": str(path), "kind": "causal", "fingerprint": "f"} | settings)


def requests(texts, **options):
    return tiny.score_requests(texts, **options)


def texts():
    """Few-shot questions with several answers, sentences that share their beginning, a long and two short texts."""
    found = []
    for question in ("Quen dorme no tellado da casa?", "Quen ladra?"):
        for ending in ENDINGS:
            stem = PREFIX + question
            found.append((PREFIX, question + ending, len(stem), len(stem + ending)))
    sentences = ["O gato dorme.", "O gato dormen.", "O gato dorme no tellado.", "A", "Si", PREFIX * 5]
    return found + [(sentence, 0, len(sentence)) for sentence in sentences]


class Run:
    """An engine of one model, and its outputs."""

    def __init__(self, path, **settings):
        self.record = record(path, **settings)
        self.engine = LlamaCpp(self.record, threads=1)
        self.loaded = self.engine.loaded

    def outputs(self, table, kind=SCORES, journal=None, model=None):
        with self.engine.model(model or self.record):
            prepared = self.engine.prepare(kind, table)
            self.engine.compute(prepared, MemoryJournal() if journal is None else journal)
            rows, metadata = self.engine.finish(prepared)
        return rows.slice().to_pylist(), metadata


def ids_of(loaded, text) -> list[int]:
    ids = loaded.tokenizer("".join(text[:-2]))["input_ids"]
    return ids if text[-2] else [loaded.bos_id, *ids]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("architecture", models.CONFIGS)
def test_values_are_those_of_each_text_alone_by_any_bit(files, architecture, kind):
    run = Run(files(architecture)[kind])
    rows, metadata = run.outputs(requests(texts()))
    alone = architecture == "qwen3moe" and kind == "Q4_K_M"  # experts get as many tokens as the router decides
    assert metadata["engine"]["strategy"] == ("plain" if alone else "prefix")
    assert bool(metadata["engine"]["fallback"]) == alone
    made = models.model(architecture)[0] if kind == "F32" else None
    # llama.cpp looks GELU up in a table of float16
    tolerance = 5e-3 if architecture in ("gemma3", "starcoder2") else 1e-4
    for text, row in zip(texts(), rows, strict=True):
        ids, values = ids_of(run.loaded, text), np.array(row["logprobs"], np.float32)
        own = np.arange(len(ids) - len(values), len(ids))
        logits = models.logits_alone(run.loaded, ids)[own - 1]
        targets = np.array(ids)[own]
        expected = reduce(logits, np.arange(len(own)), targets, extras=frozenset(), starts=None)
        assert values.tolist() == expected.logprobs.tolist()
        assert row["is_greedy"] == (logits.argmax(-1) == targets).tolist()
        exact = torch.from_numpy(logits).double().log_softmax(-1)[range(len(own)), targets].numpy()
        np.testing.assert_allclose(values, exact, atol=2e-6, rtol=0)
        if made is not None:
            expected = made(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
            expected = expected[own - 1, np.array(ids)[own]].numpy()
            np.testing.assert_allclose(values, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("architecture", "kind"), [("llama", "Q4_K_M"), ("mamba", "Q8_0"), ("gemma3", "F32")])
def test_no_value_depends_on_order_budget_shard_or_threads(files, architecture, kind):
    path, table = files(architecture)[kind], requests(texts(), extras=EXTRAS)
    rows, _ = Run(path).outputs(table)
    values = {row["request_id"]: row for row in rows}
    order = np.random.default_rng(0).permutation(table.num_rows)
    parts = {
        "order": [table.take(order)],
        "shards": [table.slice(0, 3), table.slice(3, 6), table.slice(9)],
        "single": [table.slice(number, 1) for number in range(table.num_rows)],
    }
    for name, tables in parts.items():
        run = Run(path)
        for part in tables:
            for row in run.outputs(part)[0]:
                assert row | {"item_id": None} == values[row["request_id"]] | {"item_id": None}, name
    for run in (Run(path, max_batch_tokens=16), Run(path, max_batch_tokens=33), Run(path, strategy="plain")):
        assert run.outputs(table)[0] == rows
    threads = LlamaCpp(record(path), threads=2)
    run.engine, run.loaded = threads, threads.loaded
    assert run.outputs(table)[0] == rows


def test_deterministic_runs_have_equal_bytes(files):
    path, table = files("llama")["Q4_K_M"], requests(texts())
    runs = [Run(path, deterministic=True), Run(path, deterministic=True, max_batch_tokens=16)]
    (rows, metadata), (again, _) = (
        run.outputs(part) for run, part in zip(runs, (table, table.slice(0, 5)), strict=True)
    )
    assert again == rows[:5]
    assert metadata["engine"]["strategy"] == "plain"
    assert metadata["engine"]["noise"] == {"1": 0.0}
    assert all(run.loaded.depends_on_batch for run in runs)


def test_statistics_are_those_of_the_distribution(files):
    run = Run(files("qwen3")["Q8_0"])
    row = run.outputs(requests([("O gato dorme.", 0, 13)], extras=EXTRAS))[0][0]
    ids = [run.loaded.bos_id, *run.loaded.tokenizer("O gato dorme.")["input_ids"]]
    logprobs = torch.from_numpy(models.logits_alone(run.loaded, ids)).double().log_softmax(-1)
    before, targets = logprobs[:-1], ids[1:]
    p = before.exp()
    top = before.topk(100).values.log_softmax(-1)
    starts = [name[:1] in "ĠĊĉč" for name in run.loaded.tokenizer.convert_ids_to_tokens(list(range(p.shape[1])))]
    starts[run.loaded.eos_id] = True
    expected = {
        "entropy": -(p * before).sum(-1),
        "topk_entropy": -(top.exp() * top).sum(-1),
        "logprob_mean": (p * before).sum(-1),
        "logprob_sd": ((p * before**2).sum(-1) - (p * before).sum(-1) ** 2).sqrt(),
        "word_end_logprobs": logprobs[:, torch.tensor(starts)].logsumexp(-1),
        "rank": [1 + int((b > b[t]).sum()) for b, t in zip(before, targets, strict=True)],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(row[name], values, atol=1e-5, err_msg=name)
    assert row["top_tokens"] == run.loaded.tokenizer.convert_ids_to_tokens(before.argmax(-1).tolist())


def test_job_that_was_stopped_computes_the_rest_only(files):
    class Stopping(MemoryJournal):
        def add(self, batch, rows):
            super().add(batch, rows)
            if len(self._rows) == 5:
                raise KeyboardInterrupt

    path, table, journal = files("llama")["Q4_K_M"], requests(texts()), Stopping()
    with pytest.raises(KeyboardInterrupt):
        Run(path).outputs(table, journal=journal)
    resumed, complete = MemoryJournal(), Run(path)
    resumed._rows = journal._rows
    rows, metadata = complete.outputs(table)
    again, metadata_again = Run(path).outputs(table, journal=resumed)
    assert again == rows
    assert metadata_again["counters"]["batches_resumed"] == 5
    assert metadata_again["counters"]["tokens_computed"] < metadata["counters"]["tokens_computed"]


def test_only_scored_rows_pass_the_head(files):
    """Eight at least, because kernels round by their number; not all of the prompt."""
    run = Run(files("llama")["Q8_0"])
    run.loaded.open_context(64)
    ids = np.arange(2, 42, dtype=np.int32)
    run.loaded.read(ids, 0, 0, np.array([39]))
    assert run.loaded.llama.llama_get_logits_ith(run.loaded._context, 39)
    assert not run.loaded.llama.llama_get_logits_ith(run.loaded._context, 20)


def test_positions_are_those_of_the_length_of_each_text(tmp_path):
    """Above 256 tokens, longrope has other positions, which llama.cpp chooses by the length of its context."""
    made, tokenizer = models.model("phi3", config=models.longrope)
    models.write(made, tokenizer, tmp_path / "long.gguf", "phi3", add=models.write_factors)
    sentences = [PREFIX, PREFIX * 6, PREFIX[:40], PREFIX * 7]
    table = requests([(text, 0, len(text)) for text in sentences])
    run = Run(tmp_path / "long.gguf")
    rows, _ = run.outputs(table)
    lengths = []
    for text, row in zip(sentences, rows, strict=True):
        ids = [run.loaded.bos_id, *tokenizer(text)["input_ids"]]
        expected = made(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)[range(len(ids) - 1), ids[1:]]
        np.testing.assert_allclose(row["logprobs"], expected.numpy(), atol=1e-4, rtol=0)
        lengths.append(len(ids))
    assert min(lengths) < 256 < sorted(lengths)[2]
    assert [run.outputs(table.slice(n, 1))[0][0] for n in range(4)] == rows
