"""What a scores table says: flags, truncation, chat, extras, counters, and the strategy that was used."""

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import tiny
from support.soak import examples
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring import strategy
from vernacular.inference.scoring.score import score

SHOTS = [
    f"Question: {words} on the roof of the house?\nAnswer: the cat\n\n" for words in ("Who", "Which", "What", "Why")
]
BLOCK = "".join(SHOTS)


def ask(loaded, texts, **options):
    table, metadata = score(loaded, tiny.score_requests(texts, **options))
    return table.to_pylist(), metadata


def few_shot(items, tails):
    found = []
    for item in range(items):
        stem = f"Question: Who sleeps in house number {item}, the dog or the cat?\nAnswer:"
        for tail in tails:
            found.append((*SHOTS, stem + tail, len(BLOCK + stem), len(BLOCK + stem + tail)))
    return found


@pytest.mark.parametrize(
    "tails", [(" A", " B", " C", " D"), (" the cat in the house", " nobody", " the dog", " a bird of the sea")]
)
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_few_shot_choices_compute_what_the_trie_needs_and_hardly_more(arch, tails):
    _, metadata = ask(tiny.loaded(arch, tokens="bytes-bos"), few_shot(30, tails))
    counters = metadata["counters"]
    assert metadata["engine"]["strategy"] == "tree"
    assert counters["tokens_trie"] <= counters["tokens_computed"] <= 1.10 * counters["tokens_trie"]


def test_letters_of_a_question_cost_one_pass_over_it():
    one, _ = ask(tiny.loaded(tokens="bytes-bos"), few_shot(1, [" A"]))
    _, first = ask(tiny.loaded(tokens="bytes-bos"), few_shot(1, [" A"]))
    rows, four = ask(tiny.loaded(tokens="bytes-bos"), few_shot(1, [" A", " B", " C", " D"]))
    assert four["counters"]["tokens_computed"] <= first["counters"]["tokens_computed"] + 1
    assert rows[0]["logprobs"] == pytest.approx(one[0]["logprobs"], abs=1e-5)


def test_last_token_is_not_fed_and_equal_requests_are_asked_once():
    loaded = tiny.loaded(tokens="bytes-bos")
    text = "the cat"
    rows, metadata = ask(loaded, [(text, 0, len(text)), (text, 0, len(text))])
    assert metadata["counters"]["tokens_computed"] == len(loaded.tokenizer(text)["input_ids"]) - 1
    assert metadata["counters"]["requests"] == 1
    assert rows[0]["logprobs"] == rows[1]["logprobs"]
    assert [row["item_id"] for row in rows] == ["i0", "i1"]


def test_table_is_a_valid_artifact(tmp_path):
    table, metadata = score(tiny.loaded(), tiny.score_requests(few_shot(2, [" A", " B"]), extras=["entropy", "rank"]))
    artifacts.write(tmp_path / "scores.parquet", SCORES, table, metadata)
    assert artifacts.read(tmp_path / "scores.parquet", SCORES).num_rows == 4


def test_span_without_a_token_is_flagged_and_has_no_number():
    rows, metadata = ask(tiny.loaded("qwen3"), [("abc", 1, 1), ("", 0, 0), ("gato ", 4, 5), ("gato", 0, 4)])
    assert [row["flags"] for row in rows] == ["empty", "empty", None, None]
    assert rows[0]["logprobs"] is rows[1]["logprobs"] is None
    assert metadata["flags"] == {"empty": 2}


def test_without_bos_the_first_token_has_no_number():
    loaded = tiny.loaded("qwen3", bos="never")
    rows, metadata = ask(loaded, [("the cat", 0, 7), ("A", 0, 1)])
    assert rows[0]["logprobs"][0] is None
    assert all(value < 0 for value in rows[0]["logprobs"][1:])
    assert rows[1]["logprobs"] is None
    assert rows[1]["flags"] == "error: no token precedes the only token, so it cannot be predicted"
    assert metadata["tokenizer"]["unscored_first_tokens"] == 1


def test_straddling_token_is_scored_whole_and_flagged():
    rows, _ = ask(tiny.loaded("qwen3"), [("O gato", 3, 6)])
    assert rows[0]["flags"] == "boundary"
    assert rows[0]["offsets"][0][0] < 3


UNKNOWN = "unknown token: part of the scored text is not in the vocabulary"


@pytest.mark.parametrize(("arch", "tokens"), [("llama", "wordpiece"), ("bert", "wordpiece"), ("llama", "metaspace")])
def test_unknown_token_in_a_span_is_flagged_and_changes_no_number(arch, tokens):
    """All that a vocabulary lacks is one token: the log-probability is of "something unknown", whichever it was."""
    loaded, unaware = tiny.loaded(arch, tokens=tokens), tiny.loaded(arch, tokens=tokens)
    unaware.tokenizer = copy.deepcopy(unaware.tokenizer)
    unaware.tokenizer.unk_token = None
    text = "the cat 🙂 sleeps"
    texts = [(text, 8, 9), (text, 0, len(text)), (text, 0, 7), (text, 10, len(text))]
    rows, metadata = ask(loaded, texts)
    assert loaded.tokenizer.unk_token in rows[0]["tokens"]
    assert [row["flags"] for row in rows] == [UNKNOWN, UNKNOWN, None, None]
    assert metadata["flags"] == {"unknown token": 2}
    plain, _ = ask(unaware, texts)
    assert [row["flags"] for row in plain] == [None] * 4
    assert [row["logprobs"] for row in rows] == [row["logprobs"] for row in plain]


def test_bytes_are_never_unknown():
    rows, metadata = ask(tiny.loaded("llama"), [("the cat 🙂", 0, 9), ("მელა", 0, 4)])
    assert [row["flags"] for row in rows] == [None, None]
    assert metadata["flags"] == {}


def test_long_prompt_sheds_whole_demonstrations_first():
    texts = few_shot(1, [" the cat"])
    roomy = tiny.loaded(tokens="bytes-bos")
    size = len(roomy.tokenizer(BLOCK + texts[0][-3])["input_ids"])
    loaded = tiny.loaded(tokens="bytes-bos", max_length=size - 20)
    [row], _ = ask(loaded, texts)
    assert row["flags"].startswith("truncated: 1 few-shot example dropped")
    text, shift = BLOCK[len(SHOTS[0]) :] + texts[0][-3], len(SHOTS[0])
    [shorter], _ = ask(roomy, [(text, texts[0][-2] - shift, texts[0][-1] - shift)])
    assert row["logprobs"] == pytest.approx(shorter["logprobs"], abs=1e-5)
    whole = BLOCK + texts[0][-3]
    assert "".join(whole[a:b] for a, b in row["offsets"]) == " the cat"


def test_text_too_long_without_demonstrations_loses_its_left_never_its_span():
    loaded = tiny.loaded(tokens="bytes-bos", max_length=16)
    text = "the keys to the cabinet are on the table of the house, and nobody has seen the cat"
    start = len(text) - 8
    [row], _ = ask(loaded, [(text, start, len(text))])
    assert row["flags"].startswith("truncated: ")
    assert row["n_prompt_tokens"] + len(row["tokens"]) - 1 == 16
    ids = loaded.tokenizer(text)["input_ids"]
    kept = torch.tensor([[ids[0], *ids[-16:]]])
    expected = loaded.model(input_ids=kept[:, :-1]).logits[0].log_softmax(-1)
    numbers = [expected[i - 1, kept[0, i]].item() for i in range(17 - len(row["tokens"]), 17)]
    assert row["logprobs"] == pytest.approx(numbers, abs=1e-4)


def test_span_that_does_not_fit_is_an_error_on_its_row_alone():
    loaded = tiny.loaded(tokens="bytes-bos", max_length=8)
    long = "the keys to the cabinet are on the table of the house"
    rows, _ = ask(loaded, [(long, 0, len(long)), ("the cat", 0, 7)])
    assert rows[0]["flags"].startswith("error: expected a span of at most 8 tokens")
    assert rows[0]["logprobs"] is None
    assert rows[1]["flags"] is None


def test_extras_are_those_of_the_whole_distribution():
    loaded = tiny.loaded(tokens="bytes-bos")
    [row], _ = ask(loaded, [("the cat sleeps", 3, 7)], extras=["entropy", "rank", "word_end_logprobs"])
    ids = loaded.tokenizer("the cat sleeps")["input_ids"]
    first, size = row["n_prompt_tokens"], len(row["tokens"])
    logits = loaded.model(input_ids=torch.tensor([ids])).logits[0].double()
    begins = [
        n.startswith(("Ġ", "Ċ", "ĉ", "č")) for n in loaded.tokenizer.convert_ids_to_tokens(range(logits.shape[1]))
    ]
    begins[loaded.eos_id] = True
    for slot in range(size + 1):
        probabilities = logits[first - 1 + slot].softmax(-1)
        assert row["word_end_logprobs"][slot] == pytest.approx(
            math.log(probabilities[torch.tensor(begins)].sum()), abs=1e-4
        )
        if slot == size:
            break
        target = ids[first + slot]
        top = probabilities.topk(100).values
        top = top / top.sum()
        assert row["entropy"][slot] == pytest.approx(-(probabilities * probabilities.log()).sum().item(), abs=1e-4)
        assert row["topk_entropy"][slot] == pytest.approx(-(top * top.log()).sum().item(), abs=1e-4)
        assert row["rank"][slot] == 1 + int((probabilities > probabilities[target]).sum())
        assert row["is_greedy"][slot] == (row["rank"][slot] == 1)


def test_extras_that_nobody_asked_for_are_null():
    [row], _ = ask(tiny.loaded(), [("the cat", 0, 7)])
    assert (row["entropy"], row["topk_entropy"], row["rank"], row["word_end_logprobs"]) == (None,) * 4


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def chat_requests():
    table = tiny.score_requests(
        [(*SHOTS[:2], "Question: Who?\nAnswer: the dog", len("".join(SHOTS[:2])) + 22, len("".join(SHOTS[:2])) + 30)]
    )
    messages = [
        {"role": role, "content": text}
        for role, text in [("user", "Who?"), ("assistant", "the cat")] * 2 + [("user", "Who?")]
    ]
    rows = [{**row, "messages": messages} for row in table.to_pylist()]
    return tiny.pa.Table.from_pylist(rows, schema=table.schema)


def test_chat_scores_the_answer_in_the_models_own_turn(monkeypatch):
    loaded = tiny.loaded(tokens="bytes-bos", chat=True)
    monkeypatch.setattr(loaded.tokenizer, "chat_template", TEMPLATE)
    [row] = score(loaded, chat_requests())[0].to_pylist()
    assert row["rendered"].endswith("<user>Who?\n<assistant>the dog")
    assert "".join(row["rendered"][a:b] for a, b in row["offsets"]) == "the dog"
    text = row["rendered"]
    plain = tiny.loaded(tokens="bytes-bos", bos="never")
    [expected], _ = ask(plain, [(text, len(text) - 7, len(text))])
    assert row["logprobs"] == pytest.approx(expected["logprobs"], abs=1e-5)


def test_chat_drops_demonstrations_as_pairs_of_turns(monkeypatch):
    loaded = tiny.loaded(tokens="bytes-bos", chat=True)
    monkeypatch.setattr(loaded.tokenizer, "chat_template", TEMPLATE)
    [row] = score(loaded, chat_requests())[0].to_pylist()
    loaded.max_length = row["n_prompt_tokens"] + len(row["tokens"]) - 4
    [shorter] = score(loaded, chat_requests())[0].to_pylist()
    assert shorter["flags"] == "truncated: 1 few-shot example dropped"
    assert shorter["rendered"].count("<user>") == row["rendered"].count("<user>") - 1


def test_a_single_chat_message_loses_its_own_examples(monkeypatch):
    loaded = tiny.loaded(tokens="bytes-bos", chat=True)
    monkeypatch.setattr(loaded.tokenizer, "chat_template", TEMPLATE)
    [request] = chat_requests().to_pylist()
    request["messages"] = [{"role": "user", "content": request["prefix"] + "Who?"}]
    table = tiny.pa.Table.from_pylist([request], schema=chat_requests().schema)
    [row] = score(loaded, table)[0].to_pylist()
    loaded.max_length = row["n_prompt_tokens"] + len(row["tokens"]) - 4
    [shorter] = score(loaded, table)[0].to_pylist()
    assert shorter["flags"] == "truncated: 1 few-shot example dropped"
    assert shorter["rendered"] == row["rendered"].replace(SHOTS[0], "", 1)


def test_chat_without_a_template_is_refused():
    with pytest.raises(ModelError, match="no chat template"):
        score(tiny.loaded(chat=True), chat_requests())


def test_chat_auto_follows_the_tokenizer():
    [row] = score(tiny.loaded(chat="auto"), chat_requests())[0].to_pylist()
    assert row["rendered"] is None


@pytest.mark.parametrize("arch", ["bloom", "gpt_neo", "mamba"])
def test_self_check_catches_what_the_list_of_architectures_would_miss(arch, monkeypatch):
    monkeypatch.setattr(strategy, "incapable", lambda loaded, strategy: None)
    monkeypatch.setattr("vernacular.inference.scoring.strategy.incapable", lambda loaded, strategy: None)
    loaded = tiny.loaded(arch)
    rows, metadata = ask(loaded, few_shot(8, [" the cat in the house", " the dog"]))
    assert metadata["engine"]["strategy"] != "tree"
    assert metadata["engine"]["fallback"][0].startswith("tree: ")
    assert not metadata["engine"]["self_check"]["tree"]["agrees"]
    expected, _ = score(
        tiny.loaded(arch), tiny.score_requests(few_shot(8, [" the cat in the house", " the dog"])), strategy="plain"
    )
    for row, one in zip(rows, expected.to_pylist(), strict=True):
        assert row["logprobs"] == pytest.approx(one["logprobs"], abs=1e-4)


def test_self_check_is_run_once_per_load(monkeypatch):
    loaded = tiny.loaded()
    _, first = ask(loaded, few_shot(4, [" A", " B"]))
    monkeypatch.setattr(strategy, "_one_by_one", None)
    _, second = ask(loaded, few_shot(4, [" A", " C"]))
    assert first["engine"]["self_check"] == second["engine"]["self_check"]
    assert (first["counters"]["loads"], second["counters"]["loads"]) == (1, 0)


def test_head_that_cannot_be_fed_by_itself_is_used_whole(monkeypatch):
    loaded = tiny.loaded("mamba")
    monkeypatch.setattr(
        "vernacular.inference.scoring.head.Head._logits",
        broken := (lambda self, rows, output: rows * float("nan") if not self.whole else rows.float()),
    )
    assert broken
    _, metadata = ask(loaded, few_shot(2, [" A"]))
    assert metadata["engine"]["head"] == "whole"


def test_unknown_strategy_and_foreign_rows_are_refused():
    requests = tiny.score_requests([("the cat", 0, 7)])
    with pytest.raises(ModelError, match="expected auto, tree, prefix or plain as strategy"):
        score(tiny.loaded(), requests, strategy="fast")
    column = requests.schema.get_field_index("kind")
    with pytest.raises(ArtifactError, match='expected kind "score", got "generate"'):
        score(tiny.loaded(), requests.set_column(column, "kind", [["generate"]]))
    two = tiny.pa.concat_tables([requests, tiny.score_requests([("the dog", 0, 7)])])
    column = requests.schema.get_field_index("request_id")
    with pytest.raises(ArtifactError, match="two rows with this ID"):
        score(tiny.loaded(), two.set_column(column, "request_id", [["same", "same"]]))


def test_no_requests_give_an_empty_table():
    table, metadata = score(tiny.loaded(), tiny.score_requests([]))
    assert table.num_rows == 0
    assert metadata["counters"]["forwards"] == 0


WORDS = ["the cat", "O gato", "rúa", "🙂", "a", " ", "\n", "مطبخ", "Answer:", "on the roof"]
some_texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=8)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    some_texts, st.sampled_from(["llama", "gemma3", "bloom", "mamba"]), st.integers(16, 300), st.randoms(), st.data()
)
def test_order_budget_and_strategy_never_change_a_number(texts, arch, budget, random, data):
    requests = []
    for text in texts:
        start = data.draw(st.integers(0, len(text) - 1))
        requests.append((text, start, data.draw(st.integers(start + 1, len(text)))))
    reference = score(LOADED[arch], tiny.score_requests(requests), strategy="plain")[0].to_pylist()
    shuffled = list(enumerate(requests))
    random.shuffle(shuffled)
    other = LOADED[arch]
    other.record["max_batch_tokens"] = budget
    found = score(other, tiny.score_requests([text for _, text in shuffled]))[0].to_pylist()
    other.record["max_batch_tokens"] = None
    for (place, _), row in zip(shuffled, found, strict=True):
        expected = reference[place]
        assert (row["flags"], row["tokens"], row["offsets"]) == (
            expected["flags"],
            expected["tokens"],
            expected["offsets"],
        )
        assert row["logprobs"] == pytest.approx(expected["logprobs"], abs=1e-4)


LOADED = {arch: tiny.loaded(arch) for arch in ("llama", "gemma3", "bloom", "mamba")}


@pytest.mark.parametrize("arch", ["llama", "gemma3", "bert"])
def test_half_precision_keeps_its_strategy(arch):
    loaded = tiny.loaded(arch)
    loaded.model.bfloat16()
    rows, metadata = ask(loaded, few_shot(4, [" the cat in the house", " the dog"]))
    assert metadata["engine"]["strategy"] == ("plain" if arch == "bert" else "tree")
    assert metadata["model"]["dtype"] == "bfloat16"
    exact, _ = ask(tiny.loaded(arch), few_shot(4, [" the cat in the house", " the dog"]))
    for row, one in zip(rows, exact, strict=True):
        assert row["logprobs"] == pytest.approx(one["logprobs"], abs=1.0)


def test_model_that_says_nan_is_refused():
    loaded = tiny.loaded("llama")
    loaded.model.model.norm.weight[0] = float("nan")
    with pytest.raises(ModelError, match="returns NaN for all tested tokens"):
        ask(loaded, few_shot(2, [" A"]))


def test_check_that_runs_out_of_memory_takes_shorter_texts(monkeypatch):
    loaded, length = tiny.loaded(tokens="bytes-bos"), []
    one_by_one = strategy._one_by_one

    def limited(loaded, path):
        length.append(len(path.tokens))
        if len(path.tokens) > 70:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return one_by_one(loaded, path)

    monkeypatch.setattr(strategy, "_one_by_one", limited)
    _, metadata = ask(loaded, few_shot(150, [" the cat in the house", " the dog", " nobody of the sea"]))
    assert metadata["engine"]["strategy"] == "tree"
    assert metadata["engine"]["self_check"]["tree"]["tokens"] <= 70 < max(length)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=30), st.sampled_from(["bytes", "prepend", "metaspace", "bare"]), st.data())
def test_any_text_gets_numbers_or_a_flag(text, kind, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    [row] = score(BY_TOKENIZER[kind], tiny.score_requests([(text, start, end)]))[0].to_pylist()
    if row["logprobs"] is None:
        assert row["flags"].startswith(("empty", "boundary; empty", "error: no token precedes the only token"))
        return
    assert len(row["logprobs"]) == len(row["tokens"]) == len(row["offsets"]) == len(row["is_greedy"]) > 0
    assert all(value is not None and value <= 0 for value in row["logprobs"][1:])
    assert (row["logprobs"][0] is None) == (kind == "bare" and row["n_prompt_tokens"] == 0)
    covered = {place for a, b in row["offsets"] for place in range(a, b)}
    assert {place for place in range(start, end) if not text[place].isspace()} <= covered or kind == "metaspace"


BY_TOKENIZER = {kind: tiny.loaded(tokens=kind) for kind in ("bytes", "prepend", "metaspace", "bare")}
