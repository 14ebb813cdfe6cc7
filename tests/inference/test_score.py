"""Scores table: flags, truncation, chat, extras, counters and the strategy used."""

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import architectures, tiny
from support.engines import score
from support.soak import examples
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring.execute import build_path
from vernacular.inference.scoring.prepare import prepare_all
from vernacular.inference.scoring.strategy import check

EXAMPLES = [
    f"Question: {word} on the roof of the house?\nAnswer: the cat\n\n" for word in ("Who", "Which", "What", "Why")
]
PREFIX = "".join(EXAMPLES)


def run_score(loaded, texts, **options):
    table, metadata = score(loaded, tiny.score_requests(texts, **options))
    return table.to_pylist(), metadata


def few_shot(items, continuations):
    texts = []
    for item in range(items):
        stem = f"Question: Who sleeps in house number {item}, the dog or the cat?\nAnswer:"
        for continuation in continuations:
            texts.append((*EXAMPLES, stem + continuation, len(PREFIX + stem), len(PREFIX + stem + continuation)))
    return texts


@pytest.mark.parametrize(
    "continuations", [(" A", " B", " C", " D"), (" the cat in the house", " nobody", " the dog", " a bird of the sea")]
)
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_few_shot_choices_compute_few_more_tokens_than_trie(arch, continuations):
    _, metadata = run_score(tiny.load_model(arch, tokens="bytes-bos"), few_shot(30, continuations))
    counters = metadata["counters"]
    assert metadata["engine"]["strategy"] == "tree"
    assert counters["tokens_trie"] <= counters["tokens_computed"] <= 1.10 * counters["tokens_trie"]


def test_answer_letters_share_one_pass_over_question():
    expected_row, _ = run_score(tiny.load_model(tokens="bytes-bos"), few_shot(1, [" A"]))
    _, first = run_score(tiny.load_model(tokens="bytes-bos"), few_shot(1, [" A"]))
    rows, letters_metadata = run_score(tiny.load_model(tokens="bytes-bos"), few_shot(1, [" A", " B", " C", " D"]))
    assert letters_metadata["counters"]["tokens_computed"] <= first["counters"]["tokens_computed"] + 1
    assert rows[0]["logprobs"] == pytest.approx(expected_row[0]["logprobs"], abs=1e-5)


def test_last_token_is_not_computed_and_equal_requests_are_scored_once():
    loaded = tiny.load_model(tokens="bytes-bos")
    text = "the cat"
    rows, metadata = run_score(loaded, [(text, 0, len(text)), (text, 0, len(text))])
    assert metadata["counters"]["tokens_computed"] == len(loaded.tokenizer(text)["input_ids"]) - 1
    assert metadata["counters"]["requests"] == 1
    assert rows[0]["logprobs"] == rows[1]["logprobs"]
    assert [row["item_id"] for row in rows] == ["i0", "i1"]


def test_table_is_a_valid_artifact(tmp_path):
    table, metadata = score(
        tiny.load_model(), tiny.score_requests(few_shot(2, [" A", " B"]), extras=["entropy", "rank"])
    )
    artifacts.write(tmp_path / "scores.parquet", SCORES, table, metadata)
    assert artifacts.read(tmp_path / "scores.parquet", SCORES).num_rows == 4


def test_span_without_token_is_flagged_and_not_scored():
    rows, metadata = run_score(tiny.load_model("qwen3"), [("abc", 1, 1), ("", 0, 0), ("gato ", 4, 5), ("gato", 0, 4)])
    assert [row["flags"] for row in rows] == ["empty", "empty", None, None]
    assert rows[0]["logprobs"] is rows[1]["logprobs"] is None
    assert metadata["flags"] == {"empty": 2}


def test_first_token_is_not_scored_without_bos():
    loaded = tiny.load_model("qwen3", bos="never")
    rows, metadata = run_score(loaded, [("the cat", 0, 7), ("A", 0, 1)])
    assert rows[0]["logprobs"][0] is None
    assert all(value < 0 for value in rows[0]["logprobs"][1:])
    assert rows[1]["logprobs"] is None
    assert rows[1]["flags"] == "error: no token precedes the only token, so it cannot be predicted"
    assert metadata["tokenizer"]["unscored_first_tokens"] == 1


def test_token_crossing_span_edge_is_scored_and_flagged():
    rows, _ = run_score(tiny.load_model("qwen3"), [("O gato", 3, 6)])
    assert rows[0]["flags"] == "boundary"
    assert rows[0]["offsets"][0][0] < 3


UNKNOWN = "unknown token: part of the scored text is not in the vocabulary"


@pytest.mark.parametrize(("arch", "tokens"), [("llama", "wordpiece"), ("bert", "wordpiece"), ("llama", "metaspace")])
def test_unknown_token_is_flagged_without_changing_logprobs(arch, tokens):
    """The log-probability of the unknown token is the same whichever text it replaces."""
    loaded, without_unk = tiny.load_model(arch, tokens=tokens), tiny.load_model(arch, tokens=tokens)
    without_unk.tokenizer = copy.deepcopy(without_unk.tokenizer)
    without_unk.tokenizer.unk_token = None
    text = "the cat 🙂 sleeps"
    texts = [(text, 8, 9), (text, 0, len(text)), (text, 0, 7), (text, 10, len(text))]
    rows, metadata = run_score(loaded, texts)
    assert loaded.tokenizer.unk_token in rows[0]["tokens"]
    assert [row["flags"] for row in rows] == [UNKNOWN, UNKNOWN, None, None]
    assert metadata["flags"] == {"unknown token": 2}
    expected_rows, _ = run_score(without_unk, texts)
    assert [row["flags"] for row in expected_rows] == [None] * 4
    assert [row["logprobs"] for row in rows] == [row["logprobs"] for row in expected_rows]


def test_byte_tokens_are_never_unknown():
    rows, metadata = run_score(tiny.load_model("llama"), [("the cat 🙂", 0, 9), ("მელა", 0, 4)])
    assert [row["flags"] for row in rows] == [None, None]
    assert metadata["flags"] == {}


def test_long_prompt_drops_few_shot_examples_first():
    texts = few_shot(1, [" the cat"])
    unlimited = tiny.load_model(tokens="bytes-bos")
    size = len(unlimited.tokenizer(PREFIX + texts[0][-3])["input_ids"])
    loaded = tiny.load_model(tokens="bytes-bos", max_length=size - 20)
    [row], _ = run_score(loaded, texts)
    assert row["flags"].startswith("truncated: 1 few-shot example dropped")
    text, shift = PREFIX[len(EXAMPLES[0]) :] + texts[0][-3], len(EXAMPLES[0])
    [shorter], _ = run_score(unlimited, [(text, texts[0][-2] - shift, texts[0][-1] - shift)])
    assert row["logprobs"] == pytest.approx(shorter["logprobs"], abs=1e-5)
    full_text = PREFIX + texts[0][-3]
    assert "".join(full_text[a:b] for a, b in row["offsets"]) == " the cat"


def test_long_text_is_truncated_from_left_without_losing_span():
    loaded = tiny.load_model(tokens="bytes-bos", max_length=16)
    text = "the keys to the cabinet are on the table of the house, and nobody has seen the cat"
    start = len(text) - 8
    [row], _ = run_score(loaded, [(text, start, len(text))])
    assert row["flags"].startswith("truncated: ")
    assert row["n_prompt_tokens"] + len(row["tokens"]) - 1 == 16
    ids = loaded.tokenizer(text)["input_ids"]
    truncated_ids = torch.tensor([[ids[0], *ids[-16:]]])
    expected = loaded.model(input_ids=truncated_ids[:, :-1]).logits[0].log_softmax(-1)
    expected_logprobs = [expected[i - 1, truncated_ids[0, i]].item() for i in range(17 - len(row["tokens"]), 17)]
    assert row["logprobs"] == pytest.approx(expected_logprobs, abs=1e-4)


def test_oversized_span_fails_its_row_only():
    loaded = tiny.load_model(tokens="bytes-bos", max_length=8)
    long = "the keys to the cabinet are on the table of the house"
    rows, _ = run_score(loaded, [(long, 0, len(long)), ("the cat", 0, 7)])
    assert rows[0]["flags"].startswith("error: expected a span of at most 8 tokens")
    assert rows[0]["logprobs"] is None
    assert rows[1]["flags"] is None


def test_extras_are_computed_from_full_distribution():
    loaded = tiny.load_model(tokens="bytes-bos")
    [row], _ = run_score(loaded, [("the cat sleeps", 3, 7)], extras=["entropy", "rank", "word_end_logprobs"])
    ids = loaded.tokenizer("the cat sleeps")["input_ids"]
    first, size = row["n_prompt_tokens"], len(row["tokens"])
    logits = loaded.model(input_ids=torch.tensor([ids])).logits[0].double()
    starts_word = [
        n.startswith(("Ġ", "Ċ", "ĉ", "č")) for n in loaded.tokenizer.convert_ids_to_tokens(range(logits.shape[1]))
    ]
    starts_word[loaded.eos_id] = True
    for index in range(size + 1):
        probabilities = logits[first - 1 + index].softmax(-1)
        assert row["word_end_logprobs"][index] == pytest.approx(
            math.log(probabilities[torch.tensor(starts_word)].sum()), abs=1e-4
        )
        if index == size:
            break
        target = ids[first + index]
        top = probabilities.topk(100).values
        top = top / top.sum()
        assert row["entropy"][index] == pytest.approx(-(probabilities * probabilities.log()).sum().item(), abs=1e-4)
        assert row["topk_entropy"][index] == pytest.approx(-(top * top.log()).sum().item(), abs=1e-4)
        assert row["rank"][index] == 1 + int((probabilities > probabilities[target]).sum())
        assert row["is_greedy"][index] == (row["rank"][index] == 1)


def test_extras_not_requested_are_null():
    [row], _ = run_score(tiny.load_model(), [("the cat", 0, 7)])
    assert (row["entropy"], row["topk_entropy"], row["rank"], row["word_end_logprobs"]) == (None,) * 4


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def chat_requests():
    table = tiny.score_requests(
        [
            (
                *EXAMPLES[:2],
                "Question: Who?\nAnswer: the dog",
                len("".join(EXAMPLES[:2])) + 22,
                len("".join(EXAMPLES[:2])) + 30,
            )
        ]
    )
    messages = [
        {"role": role, "content": text}
        for role, text in [("user", "Who?"), ("assistant", "the cat")] * 2 + [("user", "Who?")]
    ]
    rows = [{**row, "messages": messages} for row in table.to_pylist()]
    return tiny.pa.Table.from_pylist(rows, schema=table.schema)


def chat_model():
    loaded = tiny.load_model(tokens="bytes-bos", chat=True)
    loaded.tokenizer = copy.deepcopy(loaded.tokenizer)  # other tests use it without a template
    loaded.tokenizer.chat_template = TEMPLATE
    return loaded


def test_chat_scores_continuation_in_assistant_turn():
    loaded = chat_model()
    [row] = score(loaded, chat_requests())[0].to_pylist()
    assert row["rendered"].endswith("<user>Who?\n<assistant>the dog")
    assert "".join(row["rendered"][a:b] for a, b in row["offsets"]) == "the dog"
    text = row["rendered"]
    without_bos = tiny.load_model(tokens="bytes-bos", bos="never")
    [expected], _ = run_score(without_bos, [(text, len(text) - 7, len(text))])
    assert row["logprobs"] == pytest.approx(expected["logprobs"], abs=1e-5)


def test_chat_drops_few_shot_examples_as_turn_pairs():
    loaded = chat_model()
    [row] = score(loaded, chat_requests())[0].to_pylist()
    loaded.max_length = row["n_prompt_tokens"] + len(row["tokens"]) - 4
    [shorter] = score(loaded, chat_requests())[0].to_pylist()
    assert shorter["flags"] == "truncated: 1 few-shot example dropped"
    assert shorter["rendered"].count("<user>") == row["rendered"].count("<user>") - 1


def test_single_chat_message_drops_its_examples():
    loaded = chat_model()
    [request] = chat_requests().to_pylist()
    request["messages"] = [{"role": "user", "content": request["prefix"] + "Who?"}]
    table = tiny.pa.Table.from_pylist([request], schema=chat_requests().schema)
    [row] = score(loaded, table)[0].to_pylist()
    loaded.max_length = row["n_prompt_tokens"] + len(row["tokens"]) - 4
    [shorter] = score(loaded, table)[0].to_pylist()
    assert shorter["flags"] == "truncated: 1 few-shot example dropped"
    assert shorter["rendered"] == row["rendered"].replace(EXAMPLES[0], "", 1)


def test_chat_without_template_raises():
    with pytest.raises(ModelError, match="no chat template"):
        score(tiny.load_model(chat=True), chat_requests())


def test_chat_auto_follows_tokenizer():
    [row] = score(tiny.load_model(chat="auto"), chat_requests())[0].to_pylist()
    assert row["rendered"] is None


@pytest.mark.parametrize("arch", ["bloom", "gpt_neo", "mamba"])
def test_unsupported_architectures_fall_back_and_the_self_check_would_detect_them(arch):
    loaded = tiny.load_model(arch)
    rows, metadata = run_score(loaded, few_shot(8, [" the cat in the house", " the dog"]))
    assert metadata["engine"]["strategy"] != "tree"
    assert metadata["engine"]["fallback"][0].startswith("tree: ")
    requests = tiny.score_requests(few_shot(8, [" the cat in the house", " the dog"]))
    paths = [build_path(loaded, request) for request in prepare_all(loaded, requests)]
    name, outcome = check(loaded, "tree", paths, 10_000)
    assert (name, outcome.agrees) == ("tree", False)
    expected, _ = score(
        tiny.load_model(arch), tiny.score_requests(few_shot(8, [" the cat in the house", " the dog"])), strategy="plain"
    )
    for row, expected_row in zip(rows, expected.to_pylist(), strict=True):
        assert row["logprobs"] == pytest.approx(expected_row["logprobs"], abs=1e-4)


@pytest.mark.parametrize("options", [[" A", " the dog"], [" A", " the dog", " O gato dorme"], [" the dog", " O gato"]])
def test_self_check_reads_options_after_a_common_question(options):
    loaded = tiny.load_model("bloom")  # whose positions are those of a row
    questions = [tiny.LINES[n] + tiny.LINES[2] for n in range(2)]
    requests = tiny.score_requests([(q + o, len(q), len(q + o)) for q in questions for o in options])
    paths = [build_path(loaded, request) for request in prepare_all(loaded, requests)]
    assert not check(loaded, "tree", paths, 10)[1].agrees


@pytest.mark.parametrize(("arch", "kind"), [("moshi", "causal"), ("fnet", "masked")])
def test_self_check_of_one_text_does_not_hold_for_several(arch, kind):
    loaded, texts = architectures.build(arch, kind), [(text, 0, len(text)) for text in tiny.LINES[:9]]
    expected = [run_score(loaded, [text])[0][0]["logprobs"] for text in texts]
    for values, row in zip(expected, run_score(loaded, texts)[0], strict=True):
        assert row["logprobs"] == pytest.approx(values, abs=1e-4)


def test_self_check_of_one_text_reads_it_in_passes():
    loaded, text = architectures.build("blt", "causal"), " ".join(tiny.LINES[:4])
    loaded.record |= {"max_batch_tokens": 16}
    [row], metadata = run_score(loaded, [(text, 0, len(text))])
    assert row["flags"] is None
    assert metadata["engine"]["strategy"] == "prefix"  # whose beginnings no other text shares


def test_self_check_is_run_once_per_load():
    loaded, passes = tiny.load_model(), []
    tiny.on_forward(loaded, passes.append)
    _, first = run_score(loaded, few_shot(4, [" A", " B"]))
    assert len(passes) > first["counters"]["forwards"]
    passes.clear()
    _, second = run_score(loaded, few_shot(4, [" A", " C"]))
    assert first["engine"]["self_check"] == second["engine"]["self_check"]
    assert (first["counters"]["loads"], second["counters"]["loads"]) == (1, 0)
    assert len(passes) == second["counters"]["forwards"]


def test_inseparable_head_runs_with_full_model():
    """One that reads the tokens again."""
    loaded = tiny.load_model("mamba")

    def scale(module, arguments, options, output):
        ids = options["input_ids"][:, -output.logits.shape[1] :]
        output.logits = output.logits * (1 + ids[..., None] % 5)

    loaded.model.register_forward_hook(scale, with_kwargs=True)
    _, metadata = run_score(loaded, few_shot(2, [" A"]))
    assert metadata["engine"]["head"] == "full"


@pytest.mark.parametrize("arch", ["mllama", "llama4_text"])
def test_model_whose_body_transformers_does_not_find(arch):
    """Its `get_decoder` returns the model itself, and outputs of the first row of a batch were those of all rows."""
    loaded = architectures.build(arch, "causal")
    run_score(loaded, [(tiny.LINES[2], 0, len(tiny.LINES[2]))])  # of which the self-check has one row, too
    for text, row in zip(tiny.LINES[:9], run_score(loaded, [(t, 0, len(t)) for t in tiny.LINES[:9]])[0], strict=True):
        ids = torch.tensor([loaded.tokenizer(text)["input_ids"]])
        logprobs = loaded.model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        assert row["logprobs"] == pytest.approx(logprobs.tolist(), abs=1e-4)


def test_invalid_requests_raise():
    requests = tiny.score_requests([("the cat", 0, 7)])
    column = requests.schema.get_field_index("kind")
    with pytest.raises(ArtifactError, match='expected kind "score", got "generate"'):
        score(tiny.load_model(), requests.set_column(column, "kind", [["generate"]]))
    requests_with_same_id = tiny.pa.concat_tables([requests, tiny.score_requests([("the dog", 0, 7)])])
    column = requests.schema.get_field_index("request_id")
    with pytest.raises(ArtifactError, match="two rows with this ID"):
        score(tiny.load_model(), requests_with_same_id.set_column(column, "request_id", [["same", "same"]]))


def test_no_requests_give_an_empty_table():
    table, metadata = score(tiny.load_model(), tiny.score_requests([]))
    assert table.num_rows == 0
    assert metadata["counters"]["forwards"] == 0


TEXT_PARTS = ["the cat", "O gato", "rúa", "🙂", "a", " ", "\n", "مطبخ", "Answer:", "on the roof"]
text_lists = st.lists(
    st.lists(st.sampled_from(TEXT_PARTS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=8
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text_lists, st.sampled_from(["llama", "gemma3", "bloom", "mamba"]), st.integers(16, 300), st.randoms(), st.data()
)
def test_logprobs_are_independent_of_order_budget_and_strategy(texts, arch, budget, random, data):
    requests = []
    for text in texts:
        start = data.draw(st.integers(0, len(text) - 1))
        requests.append((text, start, data.draw(st.integers(start + 1, len(text)))))
    reference = score(LOADED[arch], tiny.score_requests(requests), strategy="plain")[0].to_pylist()
    shuffled = list(enumerate(requests))
    random.shuffle(shuffled)
    loaded = LOADED[arch]
    loaded.record |= {"max_batch_tokens": budget}
    rows = score(loaded, tiny.score_requests([text for _, text in shuffled]))[0].to_pylist()
    loaded.record |= {"max_batch_tokens": None}
    for (index, _), row in zip(shuffled, rows, strict=True):
        expected = reference[index]
        assert (row["flags"], row["tokens"], row["offsets"]) == (
            expected["flags"],
            expected["tokens"],
            expected["offsets"],
        )
        assert row["logprobs"] == pytest.approx(expected["logprobs"], abs=1e-4)


LOADED = {arch: tiny.load_model(arch) for arch in ("llama", "gemma3", "bloom", "mamba")}


@pytest.mark.parametrize("arch", ["llama", "gemma3", "bert"])
def test_half_precision_keeps_its_strategy(arch):
    loaded = tiny.load_model(arch)
    loaded.model.bfloat16()
    rows, metadata = run_score(loaded, few_shot(4, [" the cat in the house", " the dog"]))
    assert metadata["engine"]["strategy"] == ("plain" if arch == "bert" else "tree")
    assert metadata["model"]["dtype"] == "bfloat16"
    float32_rows, _ = run_score(tiny.load_model(arch), few_shot(4, [" the cat in the house", " the dog"]))
    for row, expected_row in zip(rows, float32_rows, strict=True):
        assert row["logprobs"] == pytest.approx(expected_row["logprobs"], abs=1.0)


def test_model_returning_nan_raises():
    loaded = tiny.load_model("llama")
    loaded.model.model.norm.weight[0] = float("nan")
    with pytest.raises(ModelError, match="returns NaN for all tested tokens"):
        run_score(loaded, few_shot(2, [" A"]))


def test_self_check_uses_shorter_texts_when_out_of_memory():
    loaded = tiny.load_model(tokens="bytes-bos")
    memory = tiny.Memory(loaded, tokens=70)
    _, metadata = run_score(loaded, few_shot(150, [" the cat in the house", " the dog", " nobody of the sea"]))
    assert metadata["engine"]["strategy"] == "tree"
    assert metadata["engine"]["self_check"]["tree"]["tokens"] <= 70 < memory.failures[0][1]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=30), st.sampled_from(["bytes", "prepend", "metaspace", "bare"]), st.data())
def test_any_text_is_scored_or_flagged(text, kind, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    [row] = score(BY_TOKENIZER[kind], tiny.score_requests([(text, start, end)]))[0].to_pylist()
    if row["logprobs"] is None:
        assert row["flags"].startswith(("empty", "boundary; empty", "error: no token precedes the only token"))
        return
    assert len(row["logprobs"]) == len(row["tokens"]) == len(row["offsets"]) == len(row["is_greedy"]) > 0
    assert all(value is not None and value <= 0 for value in row["logprobs"][1:])
    assert (row["logprobs"][0] is None) == (kind == "bare" and row["n_prompt_tokens"] == 0)
    covered = {index for a, b in row["offsets"] for index in range(a, b)}
    assert {index for index in range(start, end) if not text[index].isspace()} <= covered or kind == "metaspace"


BY_TOKENIZER = {kind: tiny.load_model(tokens=kind) for kind in ("bytes", "prepend", "metaspace", "bare")}
