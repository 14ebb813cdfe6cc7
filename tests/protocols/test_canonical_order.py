"""Canonical-order test of a dataset: its requests, statistic, and p-value; nothing without the option."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from support import tiny
from support.engines import score as score_requests
from support.request_builder import build_requests, item
from support.scoring import metric_rows, score
from vernacular.core.errors import DataError
from vernacular.metrics.contamination import ORDER_METRICS, order_p, order_t
from vernacular.protocols.evaluate import evaluate, signature_conditions
from vernacular.protocols.schema import REQUESTS

METADATA = {"protocol": "text", "shots": 0, "seed": 0, "style": "default"}
LINES = ["Unha.", "Dúas casas.", "Tres.", "Catro gatos na rúa.", "Cinco.", "Seis cans.", "Sete.", "Oito."]


def items_of(lines=LINES):
    rows = [item(f"i{n}", context=line, source_row=n, category="c") for n, line in enumerate(lines)]
    return rows[3:] + rows[:3]  # the published order is that of the source


def orders_of(requests):
    return [request for request in requests if request["role"].startswith("order:")]


def values_of(items, requests, outputs, **options):
    rows, metrics = evaluate("text", items, requests, outputs, [], **options)
    return rows, {(row["metric"], row["category"]): row for row in metric_rows(rows, metrics, METADATA, {})}


def outputs_of(requests, differences, *, other=-20.0, flags=None):
    """Return outputs whose published orders are more probable than the others by these differences."""
    shards = list(dict.fromkeys(request["item_id"] for request in orders_of(requests)))
    outputs = []
    for request in requests:
        difference = differences[shards.index(request["item_id"])] if request["role"] == "order:0" else 0
        outputs.append(score(request, other + difference, flags=flags if request["role"] == "order:1" else None))
    return outputs


def test_worked_example():
    """Sample standard deviation; that of a population gives 2.0412, as in the authors' code."""
    differences = np.array([1.2, 0.3, -0.4, 0.9, 0.5])
    assert float(order_t(differences)) == pytest.approx(1.8257, abs=5e-5)
    assert float(order_p(differences)) == pytest.approx(0.0710, abs=5e-5)
    assert float(order_t(differences)) == pytest.approx(2.0412 * math.sqrt(4 / 5), abs=5e-5)
    expected = stats.ttest_1samp(differences, 0, alternative="greater")
    assert (float(order_t(differences)), float(order_p(differences))) == pytest.approx(tuple(expected))
    assert order_p(np.stack([differences, differences])).shape == (2,)


@pytest.mark.parametrize("differences", [[0.3] * 5, [0.0] * 5, [1.0]])
def test_equal_differences_have_no_value(differences):
    assert math.isnan(order_t(np.array(differences)))
    assert math.isnan(order_p(np.array(differences)))


def test_p_values_are_uniform_if_the_order_does_not_matter():
    """The published value and the shuffled ones are drawn from one distribution."""
    values = np.random.default_rng(0).normal(-1000, 30, size=(1000, 50, 26))
    p = order_p(values[..., 0] - values[..., 1:].mean(axis=-1))
    assert 0.034 <= (p < 0.05).mean() <= 0.066
    assert stats.kstest(p, "uniform").pvalue > 0.001


def test_requests_join_consecutive_texts():
    requests, _ = build_requests(items_of(), "text", "text", order_permutations=3, order_shards=2, overlap=8)
    orders = orders_of(requests)
    assert [(r["item_id"], r["role"]) for r in orders] == [(i, f"order:{n}") for i in ("i0", "i4") for n in range(4)]
    assert orders[0]["text"] == "\n\n".join(LINES[:4])
    assert orders[4]["text"] == "\n\n".join(LINES[4:])
    for request in orders[1:4]:
        assert Counter(request["text"].split("\n\n")) == Counter(LINES[:4])
    assert len({request["text"] for request in orders[:4]}) > 1
    assert {tuple(request["extras"]) for request in orders} == {("rolling", "causal_only", "overlap:8")}
    assert all((r["span_start"], r["span_end"]) == (0, len(r["text"])) for r in orders)
    again, _ = build_requests(items_of()[::-1], "text", "text", order_permutations=3, order_shards=2, overlap=8)
    assert {r["request_id"] for r in orders_of(again)} == {r["request_id"] for r in orders}, "no other shuffles"


def test_orders_are_drawn_uniformly():
    requests, _ = build_requests(
        items_of(["a", "b", "c", "d", "e", "f"]), "text", "text", order_permutations=600, order_shards=2
    )
    drawn = Counter(r["text"] for r in orders_of(requests) if r["item_id"] == "i0" and r["role"] != "order:0")
    assert len(drawn) == 6
    assert stats.chisquare(list(drawn.values())).pvalue > 0.001


def test_shards_are_of_similar_size():
    lines = [f"liña {n}" for n in range(23)]
    requests, _ = build_requests(items_of(lines), "text", "text", order_permutations=1)
    published = [r["text"].split("\n\n") for r in orders_of(requests) if r["role"] == "order:0"]
    assert [len(shard) for shard in published] == [4, 5, 4, 5, 5], "by default, of four texts or more"
    assert [line for shard in published for line in shard] == lines


def test_too_few_texts_are_an_error():
    with pytest.raises(DataError, match="expected at least 10 texts for 5 shards, got 8"):
        build_requests(items_of(), "text", "text", order_permutations=1, order_shards=5)
    with pytest.raises(DataError, match="expected at least 4 texts for 2 shards, got 3"):
        build_requests(items_of(["a", "b", " ", "c"]), "text", "text", order_permutations=1)


def test_nothing_is_added_or_computed_without_the_option():
    """With it, (order_permutations + 1) × shards requests more, of which equal orders are computed once."""
    loaded = tiny.load_model("gpt2")
    plain, _ = build_requests(items_of(), "text", "text")
    asked, _ = build_requests(items_of(), "text", "text", order_permutations=3, order_shards=2)
    assert asked[: len(plain)] == plain, "the others are the same requests"
    assert not orders_of(plain)
    assert len(asked) - len(plain) == (3 + 1) * 2
    tables, counters = {}, {}
    for name, rows in {"plain": plain, "asked": asked}.items():
        table, metadata = score_requests(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema))
        tables[name], counters[name] = table.to_pylist(), metadata["counters"]
    assert counters["plain"]["requests"] == len(LINES)
    assert counters["asked"]["requests"] == len(LINES) + len({r["text"] for r in orders_of(asked)})
    assert counters["plain"]["tokens_computed"] < counters["asked"]["tokens_computed"]
    _, values = values_of(items_of(), plain, tables["plain"])
    assert not {metric.name for metric in ORDER_METRICS} & {name for name, _ in values}
    _, more_values = values_of(items_of(), asked, tables["asked"])
    assert more_values["order_p", ""]["n"] == 2
    for key, row in values.items():
        assert more_values[key]["value"] == pytest.approx(row["value"], rel=1e-5)


def test_difference_equals_that_of_transformers():
    import torch

    loaded = tiny.load_model("llama")
    requests, _ = build_requests(items_of(), "text", "text", order_permutations=3, order_shards=2)
    outputs = score_requests(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))[0].to_pylist()
    rows, values = values_of(items_of(), requests, outputs)
    logliks = {}
    for request in orders_of(requests):
        ids = torch.tensor([loaded.tokenizer(request["text"])["input_ids"]])  # begins with BOS
        with torch.inference_mode():
            logprobs = loaded.model(ids).logits[0, :-1].double().log_softmax(-1)
        logliks[request["item_id"], request["role"]] = float(logprobs.gather(1, ids[0, 1:, None]).sum())
    expected = [
        logliks[shard, "order:0"] - sum(logliks[shard, f"order:{n}"] for n in (1, 2, 3)) / 3 for shard in ("i0", "i4")
    ]
    actual = {row["item_id"]: row["metrics"].get("order_difference") for row in rows}
    assert [actual["i0"], actual["i4"]] == pytest.approx(expected, abs=1e-3)
    assert sum(value is not None for value in actual.values()) == 2
    assert values["order_difference", ""]["value"] == pytest.approx(sum(expected) / 2, abs=1e-3)


def test_values_state_the_test_and_nothing_else():
    requests, _ = build_requests(items_of(), "text", "text", order_permutations=3, order_shards=4)
    rows, values = values_of(items_of(), requests, outputs_of(requests, [1.2, 0.3, -0.4, 0.9]))
    for name in ("order_difference", "order_t", "order_p"):
        row = values[name, ""]
        assert (row["ci_low"], row["ci_high"], row["headline"], row["higher_is_better"]) == (None, None, False, None)
        assert row["n"] == 4
        assert (name, "c") not in values, "not by category"
    assert values["order_difference", ""]["value"] == pytest.approx(0.5)
    assert ("bits_per_byte", "c") in values
    assert {row["flags"] for row in rows} == {None}
    about = next(metric.about for metric in ORDER_METRICS if metric.name == "order_p")
    assert "no verdict" in about


def test_order_without_effect_has_no_p_value():
    """A difference below the resolution of float32 is none."""
    requests, _ = build_requests(items_of(), "text", "text", order_permutations=3, order_shards=4)
    outputs = outputs_of(requests, [3e-6, -1e-6, 2e-6, 0], other=-20.0)
    _, values = values_of(items_of(), requests, outputs)
    assert values["order_difference", ""]["value"] == 0
    assert (values["order_t", ""]["value"], values["order_p", ""]["value"]) == (None, None)


def test_shard_that_could_not_be_scored_is_flagged_and_excluded():
    requests, _ = build_requests(items_of(), "text", "text", order_permutations=2, order_shards=4)
    outputs = outputs_of(requests, [1.0, 2.0, 3.0, 4.0])
    outputs = [
        output | ({"flags": "error: out of memory"} if (output["item_id"], output["role"]) == ("i2", "order:1") else {})
        for output in outputs
    ]
    rows, values = values_of(items_of(), requests, outputs)
    assert values["order_t", ""]["n"] == 3
    [flagged] = [row for row in rows if row["flags"]]
    assert (flagged["item_id"], flagged["flags"]) == ("i2", "order test: error: out of memory")
    assert "bits" in flagged["metrics"], "its own text was scored"


def test_masked_models_compute_no_orders():
    loaded = tiny.load_model("bert")
    requests, _ = build_requests(items_of(), "text", "text", order_permutations=3, order_shards=2)
    plain, _ = build_requests(items_of(), "text", "text")
    outputs, metadata = score_requests(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))
    _, plain_metadata = score_requests(loaded, pa.Table.from_pylist(plain, schema=REQUESTS.schema))
    for name in ("forwards", "tokens_computed"):
        assert metadata["counters"][name] == plain_metadata["counters"][name] > 0
    rows, values = values_of(items_of(), requests, outputs.to_pylist(), masked=True)
    assert {row["flags"] for row in rows} <= {None, "unknown token: part of the scored text is not in the vocabulary"}
    assert not [name for name, _ in values if name.startswith("order")]


def test_only_signatures_of_the_test_contain_its_settings():
    options = {"order_permutations": 3, "order_shards": 2}
    requests, _ = build_requests(items_of(), "text", "text", **options)
    rows, metrics = evaluate("text", items_of(), requests, outputs_of(requests, [1.0, 2.0]), [])
    conditions = signature_conditions("text", options, "auto")
    signatures = {r["metric"]: r["signature"] for r in metric_rows(rows, metrics, METADATA, {}, conditions)}
    assert "|order_permutations:3|order_shards:2|" in signatures["order_p"]
    assert [name for name, text in signatures.items() if "order_permutations" in text] == [
        m.name for m in ORDER_METRICS
    ]
    assert signature_conditions("text", {}, "auto") == {"overlap": 0, "window": "model", "bos": "auto"}
