"""Each protocol from items to results with a tiny random model."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pytest
from support import tiny
from support.engines import score
from support.scoring import build_requests, item, results_of
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS
from vernacular.protocols.registry import OWN
from vernacular.protocols.schema import REQUESTS

QUESTION = item(context="Choveu.", question="Que pasou?", choices=["choveu", "non choveu", "nevou"], gold=[0])
CASES = {
    "letters": ("passage", [QUESTION, item("i2", question="", choices=["a", "b"])], {"option_rotations": 2}),
    "options": ("passage", [QUESTION, item("i2", question="?", choices=["a"])], {}),
    "acceptability": (
        "sentence",
        [
            item(f"s{n}", context=text, extra={"label": str(n % 2)})
            for n, text in enumerate(["Ela canta.", "Ela cantan."])
        ],
        {"min_k_plus_plus": True},
    ),
    "minimal_pair": (
        "pair",
        [item(context="Se chove,", choices=["levo paraugas", "levo sol"], gold=[0])],
        {"min_k_plus_plus": True},
    ),
    "last_word": ("continuation", [item(context="Fun á", target="estación")], {"bow_correction": True}),
    "cloze": (
        "cloze",
        [item(context="Ana __ ben.", choices=["canta", "cantan"], gold=[0])],
        {"score_unfilled_gap": True},
    ),
    "target_word": ("target_word", [item(context="Ela [MASK] ben.", choices=["canta", "cantan", "🙂"], gold=[0])], {}),
    "text": (
        "text",
        [
            item(f"t{n}", context=text, source_row=n)
            for n, text in enumerate(["Ela canta ben.", "Choveu.", "O gato dorme no tellado.", "O gato dorme."])
        ],
        {"overlap": 2, "window": 8, "min_k_plus_plus": True, "order_permutations": 2},
    ),
}


def run(protocol, loaded):
    item_type, items, options = CASES[protocol]
    requests = build_requests(items, item_type, protocol, **options)
    table, _ = score(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))
    rows = results_of(protocol, items, requests, table.to_pylist())
    return rows, {row["metric"]: row for row in aggregate(rows, PROTOCOLS[protocol].METRICS, seed=0, categories=False)}


@pytest.fixture(scope="module")
def causal():
    return tiny.load_model("llama")


@pytest.fixture(scope="module")
def masked():
    return tiny.load_model("bert")


@pytest.mark.parametrize("protocol", CASES)
def test_causal_model_supports_every_protocol(protocol, causal):
    rows, table = run(protocol, causal)
    evaluated = [row for row in rows if not (row["flags"] or "").startswith("error")]
    assert evaluated
    assert all(row["n"] for row in table.values())
    expected = {metric.name for metric in PROTOCOLS[protocol].METRICS if not metric.name.startswith("pseudo_")}
    expected -= {"accuracy_uncond"} if protocol == "letters" else set()  # of the style options-only
    assert expected - set(table) == set()


@pytest.mark.parametrize("protocol", [name for name in CASES if not OWN[name].causal_only])
def test_masked_model_supports_other_protocols(protocol, masked):
    rows, table = run(protocol, masked)
    unknown = "unknown token: part of the scored text is not in the vocabulary"
    assert [row["flags"] for row in rows] == [unknown if protocol == "target_word" else None] * len(rows)
    assert {row["n_flagged"] for row in table.values()} == {len(rows) if protocol == "target_word" else 0}
    assert all(row["n"] for row in table.values())


def with_unknown(value):
    """Append a character that is not in the vocabulary to each text."""
    if isinstance(value, str):
        return f"{value} 🙂"
    return [with_unknown(text) for text in value] if isinstance(value, list) else value


@pytest.mark.parametrize("protocol", sorted(set(CASES) - {"letters"}))  # letters are in every tiny vocabulary
def test_unknown_token_sets_flag_without_changing_values(protocol):
    item_type, items, options = CASES[protocol]
    known = items[0] | {"choices": [choice for choice in items[0]["choices"] if choice != "🙂"]}
    field = "context" if protocol in ("acceptability", "text") else "target" if protocol == "last_word" else "choices"
    items = [known, known | {"item_id": "unknown", field: with_unknown(known[field])}]
    options = {name: value for name, value in options.items() if name != "order_permutations"}  # needs more texts
    requests = build_requests(items, item_type, protocol, **options)
    loaded = tiny.load_model("llama", tokens="wordpiece")
    table, _ = score(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))
    scores = table.to_pylist()
    module = PROTOCOLS[protocol]
    plain, flagged = results_of(protocol, items, requests, scores)
    assert (plain["flags"], flagged["flags"]) == (
        None,
        "unknown token: part of the scored text is not in the vocabulary",
    )
    unflagged = results_of(protocol, items, requests, [row | {"flags": None} for row in scores])
    assert [row | {"flags": None} for row in (plain, flagged)] == unflagged
    values = aggregate([plain, flagged], module.METRICS, seed=0, categories=False)
    unflagged_values = aggregate(unflagged, module.METRICS, seed=0, categories=False)
    assert values == [row | {"n_flagged": 1} for row in unflagged_values]


def test_skipped_items_have_flags_with_reason(causal):
    rows, _ = run("options", causal)
    assert rows[1]["flags"] == "error: fewer than two options"
    rows, _ = run("letters", causal)
    assert rows[1]["flags"] == "error: neither context nor question"
