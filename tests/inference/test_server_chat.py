"""Letters in chats: with the model's template through token IDs, and as the answer of a server that only chats."""

import copy
from dataclasses import replace

import pyarrow as pa
import pytest
from support import served
from support.engines import score
from support.engines import score as score_locally
from support.scoring import build_requests, item
from vernacular.inference.server.served import open_server
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
