"""Models whose positions depend on the length of a text: each text is computed as it is alone."""

import pyarrow as pa
import pytest
from oracles import surprisal
from support import architectures, tiny
from support.engines import generate, score
from vernacular.core.errors import ModelError
from vernacular.inference.generation import decode
from vernacular.inference.model.tokenization import Lengths, read_lengths
from vernacular.inference.schema import MemoryJournal
from vernacular.protocols.schema import REQUESTS

THRESHOLD = 64
LONGROPE = {
    "original_max_position_embeddings": THRESHOLD,
    "sliding_window": None,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0, 8.0, 16.0, 32.0],
        "original_max_position_embeddings": THRESHOLD, "factor": 8.0,
    },
}  # fmt: skip
DYNAMIC = {
    "max_position_embeddings": THRESHOLD,
    "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
}
MODELS = {"longrope": ("phi3", LONGROPE), "dynamic": ("llama", DYNAMIC)}
WORDS = " ".join(tiny.LINES[:6]).split()


def load(kind: str):
    arch, own = MODELS[kind]
    loaded = architectures.build(arch, "causal", **own)
    loaded.max_length = None  # dynamic NTK starts at the length that is otherwise the limit
    return loaded


def text_of(loaded, n_tokens: int, beginning: str = "") -> str:
    """Return a text of exactly so many tokens."""
    text = beginning
    for word in WORDS * 9:
        if len(loaded.tokenizer(f"{text} {word}")["input_ids"]) > n_tokens:
            break
        text = f"{text} {word}"
    while len(loaded.tokenizer(text)["input_ids"]) < n_tokens:
        text += "0"
    assert len(loaded.tokenizer(text)["input_ids"]) == n_tokens
    return text


@pytest.fixture(scope="module", params=MODELS)
def loaded(request):
    return load(request.param)


@pytest.mark.parametrize("strategy", ["auto", "prefix", "plain"])
@pytest.mark.parametrize("budget", [None, 32])
def test_scores_on_both_sides_of_the_threshold_are_those_of_single_texts(loaded, strategy, budget):
    loaded.record |= {"max_batch_tokens": budget}
    beginning = text_of(loaded, 40)
    lengths = [9, 36, 48, 63, 64, 65, 66, 80, 81, 100, 130]
    texts = [text_of(loaded, length, beginning if length > 40 else "") for length in lengths]
    texts += [text_of(loaded, length, text_of(loaded, 70)) for length in (74, 75, 90, 90, 101)]
    spans = [(text, len(text) // 2, len(text)) for text in texts]
    spans += [(texts[5], 4, 12), (texts[7], 4, 12), (texts[7], 0, len(beginning))]  # text continues after the span
    table, metadata = score(loaded, tiny.score_requests(spans), strategy=strategy)
    for (text, start, end), row in zip(spans, table.to_pylist(), strict=True):
        loaded.forget_lengths()
        expected = surprisal.causal(loaded.model, loaded.tokenizer, text, start, end)
        n_tokens = len(loaded.tokenizer(text)["input_ids"])
        assert row["logprobs"] == pytest.approx(expected.logprobs, abs=1e-4), f"{n_tokens} tokens"
    if strategy == "auto":
        assert metadata["engine"]["fallback"] == []


def generated(loaded, texts, new_tokens, **decoding):
    rows = []
    for number, text in enumerate(texts):
        row = dict.fromkeys(REQUESTS.schema.names) | {"kind": "generate", "prefix": "", "text": text, "stop": []}
        row |= {"request_id": f"r{number}", "item_id": f"i{number}", "role": "response", "max_new_tokens": new_tokens}
        rows.append(row | {"decoding": decoding or None})
    table, metadata = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema), journal=MemoryJournal())
    return table["raw_output"].to_pylist(), metadata


def test_texts_that_reach_the_threshold_equal_a_computation_without_cache(loaded):
    loaded.record |= {"max_batch_tokens": None}
    beginning = text_of(loaded, 30)
    texts = [text_of(loaded, length, beginning) for length in (35, 50, 58, 63, 64, 65, 66, 90)]
    outputs, metadata = generated(loaded, texts, 12)
    assert outputs == [architectures.greedy(loaded, text, 12) for text in texts]
    assert metadata["counters"]["states_recomputed"] >= 3
    assert any("64 tokens" in reason for reason in metadata["engine"]["fallback"])
    assert {strategy["used"] for strategy in metadata["engine"]["strategies"]} <= {"prefix", "batch", "single"}


def test_sampled_texts_do_not_depend_on_texts_that_reach_the_threshold(loaded):
    texts = [text_of(loaded, length) for length in (57, 58, 60, 62)]
    decoding = {"temperature": 1.0, "top_k": None, "top_p": None, "repetition_penalty": 1.2, "seed": 3}
    together, _ = generated(loaded, texts, 12, **decoding)
    alone = [generated(loaded, [*texts[:number], text], 12, **decoding)[0][-1] for number, text in enumerate(texts)]
    assert together == alone


def test_state_is_the_one_that_the_model_returns():
    """Above the threshold, Phi-3 does not fill the cache that it is given."""
    loaded = load("longrope")
    ids = loaded.tokenizer(text_of(loaded, 90))["input_ids"]
    batch = decode.DecodingBatch(loaded, [ids], None, 4, decode.DecodingCounters())
    given = batch.state
    batch.logits()
    assert given.get_seq_length() == 0
    assert batch.state.get_seq_length() == len(ids)


@pytest.mark.parametrize(
    ("arch", "own", "expected"),
    [
        ("llama", {}, Lengths()),
        ("phi3", LONGROPE, Lengths(switches=(64,))),
        ("llama", DYNAMIC, Lengths(growth=64)),
        ("mistral", {}, Lengths(windows=(tiny.WINDOW,))),
        ("llama4_text", {}, Lengths(windows=(16,))),
        ("big_bird", {"attention_type": "block_sparse", "block_size": 4}, Lengths(growth=44)),
        ("gemma3_text", {}, Lengths(windows=(tiny.WINDOW,))),
    ],
)
def test_lengths_are_read_from_the_config(arch, own, expected):
    assert read_lengths(architectures.build(arch, "causal", **own).model.config) == expected


@pytest.mark.parametrize("arch", ["bert", "xlnet"])
def test_model_that_reads_later_tokens_is_rejected(arch):
    with pytest.raises(ModelError, match="reads later tokens"):
        score(architectures.build(arch, "causal"), tiny.score_requests([("O gato dorme", 0, 12)]))
    with pytest.raises(ModelError, match="reads later tokens"):
        generated(architectures.build(arch, "causal"), ["O gato dorme"], 3)


@pytest.mark.parametrize("arch", ["convbert", "fnet", "nystromformer", "yoso"])
def test_masked_model_that_reads_padding_is_scored_without(arch):
    loaded = architectures.build(arch, "masked")
    spans = [(text, 0, len(text)) for text in ("O gato dorme.", tiny.LINES[1], tiny.LINES[5], "si")]
    table, metadata = score(loaded, tiny.score_requests(spans))
    for (text, start, end), row in zip(spans, table.to_pylist(), strict=True):
        expected = surprisal.masked(loaded.model, loaded.tokenizer, text, start, end)
        assert row["logprobs"] == pytest.approx(expected.logprobs, abs=1e-4)
    assert metadata["engine"]["batching"] in ("equal", "single")
    assert "differs from single texts" in metadata["engine"]["fallback"][0]


def spans_of(loaded, *lengths: int):
    texts = [text_of(loaded, length) for length in lengths]
    return [(text, 0, len(text)) for text in texts]


@pytest.mark.parametrize(
    ("arch", "own", "n_long"),
    [
        ("doge", {"keep_window_size": 80}, 110),  # selects keys by their number, later ones included
        ("reformer", {"local_attn_chunk_length": 32, "lsh_attn_chunk_length": 32}, 200),  # with random hashes
    ],
)
def test_model_that_computes_long_texts_in_another_way_each_time_is_refused_for_them_alone(arch, own, n_long):
    loaded = architectures.build(arch, "causal", **own)
    loaded.max_length = None
    short = spans_of(loaded, 9, 20, 31, 12)
    table, _ = score(loaded, tiny.score_requests(short))
    for (text, start, end), row in zip(short, table.to_pylist(), strict=True):
        expected = surprisal.causal(loaded.model, loaded.tokenizer, text, start, end)
        assert row["logprobs"] == pytest.approx(expected.logprobs, abs=1e-4)
    with pytest.raises(ModelError, match="not even one text at a time"):
        score(loaded, tiny.score_requests([*short, *spans_of(loaded, n_long)]))


def test_cache_is_checked_in_the_first_evaluation_that_shares_a_beginning():
    """With `last_loop`, Dory computes other values after a cached prefix."""
    own = {"n_input_layers": 1, "n_output_layers": 1, "ngpt_alpha_init": 0.5}
    beginning = "".join(tiny.LINES[:4])
    questions = [f"{beginning} {line[:20]}" for line in tiny.LINES[4:9]]
    requests = tiny.score_requests(
        [(text + end, len(text), len(text) + 2) for text in questions for end in (" A", " B")]
    )
    strategies = {}
    for mode in ("per_loop", "last_loop"):
        loaded = architectures.build("dory", "causal", recurrent_kv_cache_mode=mode, **own)
        _, alone = score(loaded, tiny.score_requests([("O gato dorme", 0, 12), ("A choiva cae", 0, 12)]))
        table, metadata = score(loaded, requests)
        strategies[mode] = alone["engine"]["strategy"], metadata["engine"]["strategy"]
        for request, row in zip(requests.to_pylist(), table.to_pylist(), strict=True):
            span = request["text"], request["span_start"], request["span_end"]
            expected = surprisal.causal(loaded.model, loaded.tokenizer, *span)
            assert row["logprobs"] == pytest.approx(expected.logprobs, abs=1e-4)
    assert strategies == {"per_loop": ("tree", "tree"), "last_loop": ("tree", "plain")}


def test_text_with_tokens_that_the_model_cannot_predict_is_flagged_alone():
    loaded = architectures.build("apertus1p5_text", "causal", output_vocab_size=300)
    texts = ["zq xw", "O gato dorme no tellado"]
    assert [max(loaded.tokenizer(text)["input_ids"]) < 300 for text in texts] == [True, False]
    table, _ = score(loaded, tiny.score_requests([(text, 0, len(text)) for text in texts]))
    assert table["flags"].to_pylist() == [None, "error: a token is one that the model cannot predict"]
    expected = surprisal.causal(loaded.model, loaded.tokenizer, texts[0], 0, len(texts[0]))
    assert table["logprobs"][0].as_py() == pytest.approx(expected.logprobs, abs=1e-4)


@pytest.mark.parametrize("arch", ["mpnet", "ibert", "longformer", "xmod", "roberta", "bert"])
def test_text_beyond_the_positions_of_a_masked_model_is_flagged_alone(arch):
    own = {"default_language": "en_XX"} if arch == "xmod" else {}
    loaded = architectures.build(arch, "masked", max_position_embeddings=64, **own)
    assert loaded.max_length == (64 if arch == "bert" else 62)
    texts = ["O gato dorme", " ".join(tiny.LINES[:4])]
    table, _ = score(loaded, tiny.score_requests([(text, 0, 6) for text in texts]))
    assert [flag and flag.split(":")[0] for flag in table["flags"].to_pylist()] == [None, "truncated"]
    assert all(len(logprobs) > 1 for logprobs in table["logprobs"].to_pylist())


def test_sparse_attention_of_long_texts_remains_after_short_ones():
    """BigBird computes texts of up to 28 tokens with full attention, and after the first one all others, too."""
    sparse = {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}
    loaded = architectures.build("big_bird", "masked", **sparse)
    spans = [(text, 0, 9) for text in (" ".join(tiny.LINES[:2]), "O gato dorme.", tiny.LINES[2], "A casa é grande")]
    for _ in range(2):
        table, _ = score(loaded, tiny.score_requests(spans))
        for (text, start, end), row in zip(spans, table.to_pylist(), strict=True):
            loaded.forget_lengths()
            expected = surprisal.masked(loaded.model, loaded.tokenizer, text, start, end)
            assert row["logprobs"] == pytest.approx(expected.logprobs, abs=1e-4)


def test_rows_of_a_state_that_cannot_be_selected_remain():
    """A layer of Falcon-H1 selects the rows of its keys, but not of its states."""
    loaded = architectures.build("falcon_h1", "causal")
    outputs, metadata = generated(loaded, architectures.TEXTS, 8)
    assert outputs == [architectures.greedy(loaded, text, 8) for text in architectures.TEXTS]
    [strategy] = metadata["engine"]["strategies"]
    assert (strategy["used"], strategy["rows"]) == ("batch", "remain")
    assert metadata["engine"]["fallback"][0].startswith("generation, batch: ")


@pytest.mark.parametrize(("arch", "window"), [("mistral", 16), ("llama4_text", 16), ("gpt_neo", 16)])
def test_state_is_checked_beyond_windows(arch, window):
    """Texts that begin within a window are continued beyond it."""
    loaded = architectures.build(arch, "causal")
    texts = ["O gato", "A casa", "Jutros smo"]
    assert all(len(loaded.tokenizer(text)["input_ids"]) < window for text in texts)
    outputs, metadata = generated(loaded, texts, 24)
    assert outputs == [architectures.greedy(loaded, text, 24) for text in texts]
    [strategy] = metadata["engine"]["strategies"]
    assert strategy["used"] in ("batch", "single", "uncached")
