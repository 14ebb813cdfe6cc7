from vernacular.protocols.registry import PROTOCOLS
from vernacular.report.item_details import EvaluationItems


def request(role, prefix, context, span, kind="score", messages=None):
    start = len(prefix + context)
    return {"item_id": "a", "role": role, "kind": kind, "prefix": prefix, "text": context + span, "messages": messages,
            "span_start": None if kind == "generate" else start,
            "span_end": None if kind == "generate" else start + len(span)}  # fmt: skip


def item(prompt, options=()):
    return {"item_id": "a", "category": None, "prompt": prompt, "choices": list(options), "gold": [0]}


def make_items(requests, prompt, options=(), displayed_roles=("choice",)):
    items = EvaluationItems(displayed_roles)
    items.add_requests(requests)
    items.add_items([item(prompt, options)])
    return items


def test_unchanged_prompt_is_stored_once():
    items = make_items(
        [request("choice:0", "shots\n", "Q:", " yes"), request("choice:1", "shots\n", "Q:", " no")], "Q:"
    )
    assert items.items == [("a", "", "Q:", [], [0], None, 0, None, [("choice:0", " yes"), ("choice:1", " no")])]
    assert items.prefixes == ["shots\n"]


def test_text_sent_is_stored_if_it_differs_from_prompt():
    assert make_items([request("response", "", "Say: Q", "", "generate")], "Q").items[0].sent == "Say: Q"


def test_few_shot_prefix_is_stored_once():
    items = EvaluationItems()
    rows = [request("choice:0", "shots\n", "Q:", " yes") | {"item_id": name} for name in "abc"]
    items.add_requests(rows)
    for _ in range(2):  # two models
        items.add_items([item("Q:") | {"item_id": name} for name in "abc"])
    assert [entry.prefix for entry in items.items] == [0, 0, 0]
    assert items.prefixes == ["shots\n"]


def test_unconditional_scores_are_not_displayed():
    items = make_items([request("choice:0", "", "Q", " yes"), request("uncond:0", "", "A:", " yes")], "Q")
    assert {role for _, role in items.spans} == {"choice:0"}


def test_masked_word_is_displayed_in_its_sentence_if_scored():
    requests = [request("token:0", "", "ido u ", "skolu"), request("sentence:0", "", "", "ido u skolu")]
    roles = PROTOCOLS["target_word"].displayed_roles
    assert {role for _, role in make_items(requests, "ido u [MASK]", displayed_roles=roles).spans} == {"sentence:0"}
    assert {role for _, role in make_items(requests[:1], "ido u [MASK]", displayed_roles=roles).spans} == {"token:0"}


def test_skipped_item_has_only_its_prompt():
    skipped = {"item_id": "a", "role": "skipped: no gap", "kind": "score", "prefix": "", "text": "-", "messages": None,
                "span_start": 1, "span_end": 1}  # fmt: skip
    assert make_items([skipped], "Q").items[0][5:] == (None, None, None, [])


def test_wrapped_text_is_last_chat_turn():
    messages = [{"role": "user", "content": "Finish it.\nQ"}]
    items = make_items([request("response", "", "Q", "", "generate", messages)], "Q")
    assert items.wrapped_text("a") == "Finish it.\nQ"


def test_prompt_that_is_not_sent_is_distinguished_from_an_unchanged_one():
    requests = [request("sentence:0", "", "", "ido u skolu"), request("sentence:1", "", "", "ido u skola")]
    items = make_items(requests, "ido u [MASK]", ["skolu", "skola"], displayed_roles=("sentence",))
    assert items.items[0].sent == ""
    assert [text for _, text in items.items[0].spans] == ["ido u skolu", "ido u skola"]
