from vernacular.protocols.registry import PROTOCOLS
from vernacular.report.item_details import shown_items, wrapped_text


def request(role, prefix, context, span, kind="score", messages=None):
    start = len(prefix + context)
    return {"item_id": "a", "role": role, "kind": kind, "prefix": prefix, "text": context + span, "messages": messages,
            "span_start": None if kind == "generate" else start,
            "span_end": None if kind == "generate" else start + len(span)}  # fmt: skip


def item(prompt, options=()):
    return {"item_id": "a", "category": None, "prompt": prompt, "choices": list(options), "gold": [0]}


def make_items(requests, prompt, options=(), displayed_roles=("choice",)):
    prefixes: dict[str, int] = {}
    [shown], spans = shown_items([item(prompt, options)], requests, displayed_roles, prefixes)
    return shown, {role for _, role in spans}, list(prefixes)


def test_unchanged_prompt_is_stored_once():
    shown, _, prefixes = make_items(
        [request("choice:0", "shots\n", "Q:", " yes"), request("choice:1", "shots\n", "Q:", " no")], "Q:"
    )
    assert shown == ("a", "", "Q:", [], [0], None, 0, None, [("choice:0", " yes"), ("choice:1", " no")])
    assert prefixes == ["shots\n"]


def test_text_sent_is_stored_if_it_differs_from_prompt():
    assert make_items([request("response", "", "Say: Q", "", "generate")], "Q")[0].sent == "Say: Q"


def test_few_shot_prefix_is_stored_once():
    rows = [request("choice:0", "shots\n", "Q:", " yes") | {"item_id": name} for name in "abc"]
    prefixes = {}
    for part in ("ab", "c"):  # of the items
        items, _ = shown_items([item("Q:") | {"item_id": name} for name in part], rows, (), prefixes)
        assert [entry.prefix for entry in items] == [0] * len(part)
    assert prefixes == {"shots\n": 0}


def test_unconditional_scores_are_not_displayed():
    _, roles, _ = make_items([request("choice:0", "", "Q", " yes"), request("uncond:0", "", "A:", " yes")], "Q")
    assert roles == {"choice:0"}


def test_masked_word_is_displayed_in_its_sentence_if_scored():
    requests = [request("token:0", "", "ido u ", "skolu"), request("sentence:0", "", "", "ido u skolu")]
    roles = PROTOCOLS["target_word"].displayed_roles
    assert make_items(requests, "ido u [MASK]", displayed_roles=roles)[1] == {"sentence:0"}
    assert make_items(requests[:1], "ido u [MASK]", displayed_roles=roles)[1] == {"token:0"}


def test_skipped_item_has_only_its_prompt():
    skipped = {"item_id": "a", "role": "skipped: no gap", "kind": "score", "prefix": "", "text": "-", "messages": None,
                "span_start": 1, "span_end": 1}  # fmt: skip
    assert make_items([skipped], "Q")[0][5:] == (None, None, None, [])


def test_wrapped_text_is_last_chat_turn():
    messages = [{"role": "user", "content": "Finish it.\nQ"}]
    shown, _, _ = make_items([request("response", "", "Q", "", "generate", messages)], "Q")
    assert wrapped_text(shown) == "Finish it.\nQ"


def test_prompt_that_is_not_sent_is_distinguished_from_an_unchanged_one():
    requests = [request("sentence:0", "", "", "ido u skolu"), request("sentence:1", "", "", "ido u skola")]
    shown, _, _ = make_items(requests, "ido u [MASK]", ["skolu", "skola"], displayed_roles=("sentence",))
    assert shown.sent == ""
    assert [text for _, text in shown.spans] == ["ido u skolu", "ido u skola"]
