from vernacular.protocols.registry import PROTOCOLS
from vernacular.report.item_details import Asked


def request(role, prefix, before, span, kind="score", messages=None):
    start = len(prefix + before)
    return {"item_id": "a", "role": role, "kind": kind, "prefix": prefix, "text": before + span, "messages": messages,
            "span_start": None if kind == "generate" else start,
            "span_end": None if kind == "generate" else start + len(span)}  # fmt: skip


def item(prompt, options=()):
    return {"item_id": "a", "category": None, "prompt": prompt, "choices": list(options), "gold": [0]}


def asked(requests, prompt, options=(), drawn=("choice",)):
    found = Asked(drawn)
    found.add_requests(requests)
    found.add_items([item(prompt, options)])
    return found


def test_a_prompt_sent_as_it_stands_is_not_stored_twice():
    found = asked([request("choice:0", "shots\n", "Q:", " yes"), request("choice:1", "shots\n", "Q:", " no")], "Q:")
    assert found.items == [["a", "", "Q:", [], [0], None, 0, None, [["choice:0", " yes"], ["choice:1", " no"]]]]
    assert found.prefixes == ["shots\n"]


def test_what_was_sent_in_another_wording_is_kept_beside_the_prompt():
    assert asked([request("response", "", "Say: Q", "", "generate")], "Q").items[0][5] == "Say: Q"


def test_the_few_shot_block_stands_once_for_all_items_and_models():
    found = Asked()
    rows = [request("choice:0", "shots\n", "Q:", " yes") | {"item_id": name} for name in "abc"]
    found.add_requests(rows)
    for _ in range(2):  # two models
        found.add_items([item("Q:") | {"item_id": name} for name in "abc"])
    assert [entry[6] for entry in found.items] == [0, 0, 0]
    assert found.prefixes == ["shots\n"]


def test_the_same_text_scored_without_its_context_is_not_drawn():
    found = asked([request("choice:0", "", "Q", " yes"), request("uncond:0", "", "A:", " yes")], "Q")
    assert found.roles == {"choice:0"}


def test_a_masked_word_is_drawn_in_its_sentence_where_that_was_scored():
    both = [request("token:0", "", "ido u ", "skolu"), request("sentence:0", "", "", "ido u skolu")]
    assert asked(both, "ido u [MASK]", drawn=PROTOCOLS["target_word"].drawn).roles == {"sentence:0"}
    assert asked(both[:1], "ido u [MASK]", drawn=PROTOCOLS["target_word"].drawn).roles == {"token:0"}


def test_an_item_that_was_not_asked_has_no_prompt_but_its_own():
    stand_in = {"item_id": "a", "role": "skipped: no gap", "kind": "score", "prefix": "", "text": "-", "messages": None,
                "span_start": 1, "span_end": 1}  # fmt: skip
    assert asked([stand_in], "Q").items[0][5:] == [None, None, None, []]


def test_a_chat_template_wraps_the_last_turn():
    messages = [{"role": "user", "content": "Finish it.\nQ"}]
    found = asked([request("response", "", "Q", "", "generate", messages)], "Q")
    assert found.own_text("a") == "Finish it.\nQ"
