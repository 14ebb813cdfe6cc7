"""Letters in chats: with the model's template through token IDs, and as the answer of a server that only chats."""

import copy
from dataclasses import replace

import pyarrow as pa
import pytest
from support import served
from support.engines import generate, score
from support.engines import score as score_locally
from support.scoring import build_requests, item, results_of
from vernacular.inference.server.served import open_server
from vernacular.protocols.prompts import answer_words
from vernacular.protocols.schema import REQUESTS

ITEMS = [
    item(context="Choveu.", question="Que pasou?", choices=["choveu", "non choveu", "nevou"], gold=[0]),
    item("ka", context="დღეს", question="სად წავედით?", choices=["ბაზარში", "სახლში"], gold=[0]),
    item("ar", context="أكلت القطة", question="ماذا أكلت؟", choices=["السمك", "اللحم", "الخبز"], gold=[0]),
]
TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
COMPARED = ("request_id", "tokens", "offsets", "is_greedy", "n_prompt_tokens", "rendered", "flags")


@pytest.fixture(scope="module")
def model():
    """The tiny model with a chat template, which is applied to all requests."""
    trained = served.trained_model()
    tokenizer = copy.deepcopy(trained.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return replace(trained, tokenizer=tokenizer, record=trained.record | {"chat": True})


@pytest.fixture(scope="module")
def requests():
    return pa.Table.from_pylist(build_requests(ITEMS, "passage", "letters"), schema=REQUESTS.schema)


@pytest.mark.parametrize("form", ["vllm", "sglang", "echo"])
def test_letters_after_the_models_template_equal_local_scores(model, requests, form, tmp_path):
    expected = score_locally(model, requests)[0].to_pylist()
    with served.Server(model, form) as server:
        record = served.record(server, tmp_path, tokenizer=model, chat=True)
        actual = score(open_server(record), requests)[0].to_pylist()
    assert [[row[name] for name in COMPARED] for row in actual] == [
        [row[name] for name in COMPARED] for row in expected
    ]
    assert all(row["rendered"].startswith("[user] ") for row in actual)
    for row, expected_row in zip(actual, expected, strict=True):
        assert row["logprobs"] == pytest.approx(expected_row["logprobs"], abs=1e-4)


def lists_letters(server, original, body: dict) -> dict:
    """Answer a chat with the model's log-probabilities of the first two letters among the listed tokens."""
    content = original(body)
    if body.get("logprobs"):
        row = server.logprobs(server.encode("\n".join(turn["content"] for turn in body["messages"])))[-1]
        top = content["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        listed = [entry for entry in top if entry["token"] not in ("A", "B", "C")]
        letters = [
            {"token": letter, "logprob": float(row[server.loaded.tokenizer.convert_tokens_to_ids(letter)])}
            for letter in ("A", "B")
        ]
        top[:] = listed[: body["top_logprobs"] - 2] + letters
    return content


def test_letters_are_those_listed_as_the_answer_of_a_chat(model, requests, tmp_path):
    with served.Server(model, "chat", lie={"chat": lists_letters}) as server:
        record = served.record(server, tmp_path, chat=True)
        assert record.server.forms.labels == "top 20 texts of a chat"
        table, metadata = score(open_server(record), requests)
        sent = [row["messages"] for row in requests.to_pylist()]
        prompts = [server.encode("\n".join(turn["content"] for turn in turns)) for turns in sent]
        letters = [row["text"][row["span_start"] : row["span_end"]].strip() for row in requests.to_pylist()]
        ids = model.tokenizer.convert_tokens_to_ids(letters)
        expected = [float(server.logprobs(prompt)[-1][token]) for prompt, token in zip(prompts, ids, strict=True)]
    assert set(letters) == {"A", "B", "C"}
    for row, letter, value in zip(table.to_pylist(), letters, expected, strict=True):
        if letter == "C":
            assert row["logprobs"] is None
            assert row["flags"].startswith("error: not answerable: ")
        else:
            assert row["tokens"] == [letter]
            assert row["logprobs"] == pytest.approx([value], abs=1e-4)
    assert metadata["counters"]["calls"] == len(ITEMS)
    assert metadata["counters"]["coverage"] == pytest.approx(6 / 8)


def test_chat_only_servers_answer_letters_in_chats_only(model, tmp_path):
    with served.Server(model, "chat") as server:
        record = served.record(server, tmp_path)
    assert record.server.forms.labels is None
    assert record.server.reasons["labels"].endswith("set chat: true to score letters as the answer of a chat")


def preferred_letter(server, prompt: str) -> str | None:
    """Return the letter of an option in the prompt that the model finds most probable; None without options."""
    letters = [letter for letter in "ABC" if f"\n{letter}. " in prompt]
    row = server.logprobs(server.encode(prompt))[-1]
    ids = map(server.loaded.tokenizer.convert_tokens_to_ids, letters)
    return max(zip(row[list(ids)].tolist(), letters, strict=True))[1] if letters else None


def in_words(server, original, body: dict) -> dict:
    """Answer a question with options in words, the letter of another option before that of the model's choice."""
    content = original(body)
    if (letter := preferred_letter(server, body["messages"][-1]["content"])) is not None:
        other = "B" if letter == "A" else "A"
        content["choices"][0]["message"]["content"] = f"Ao principio pensei en {other}.\n\nResposta: **{letter}**"
        content["choices"][0]["finish_reason"] = "stop"
    return content


@pytest.mark.parametrize("form", ["chat", "strict"])
def test_choices_in_words_of_a_server_that_only_chats(model, tmp_path, form):
    rows = [row | {"max_new_tokens": 16} for row in build_requests(ITEMS, "passage", "choice")]
    with served.Server(model, form, lie={"chat": in_words}) as server:
        record = served.record(server, tmp_path)
        assert record.server.reasons["labels"], "letters cannot be scored without a chat template"
        outputs = generate(open_server(record), pa.Table.from_pylist(rows, schema=REQUESTS.schema))[0].to_pylist()
        expected = [preferred_letter(server, row["messages"][-1]["content"]) for row in rows]
    results = results_of("choice", ITEMS, rows, outputs, answers=answer_words("gl"))
    assert [row["prediction"] for row in results] == expected
    assert [row["correct"] for row in results] == [letter == "A" for letter in expected]
    assert not any(row["flags"] for row in results)


def test_responses_of_a_server_without_an_answer_are_abstentions(model, tmp_path):
    rows = [row | {"max_new_tokens": 16} for row in build_requests(ITEMS, "passage", "choice")]
    with served.Server(model, "chat") as server:  # a tiny model writes no letter after a cue
        outputs = generate(open_server(served.record(server, tmp_path)), pa.Table.from_pylist(rows, REQUESTS.schema))
    results = results_of("choice", ITEMS, rows, outputs[0].to_pylist(), answers=answer_words("gl"))
    assert all(row["raw_output"] for row in outputs[0].to_pylist())
    assert [row["metrics"]["extraction_failed"] for row in results] == [1.0] * len(ITEMS)
    assert [row["metrics"]["accuracy"] for row in results] == [0.0] * len(ITEMS)
