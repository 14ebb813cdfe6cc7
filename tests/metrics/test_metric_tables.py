"""What each metric says of itself holds of its values: name, direction, unit, proportion, headline, resamples."""

import math
import random
from collections import Counter
from functools import cache
from statistics import fmean

import numpy as np
import pytest
from support.scoring import ask, item, score
from vernacular.metrics.corpus import mcc_cross_validated
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS
from vernacular.protocols.evaluate import evaluate, values

CHOICES = ["can", "pan", "luz", "mar"]  # of one length: normalised, they rank as they are
QUESTION = {"context": "Choveu.", "question": "Que?", "choices": CHOICES}
LAYOUTS = {
    "options": ("passage", QUESTION, {}),
    "letters": ("passage", QUESTION, {"option_rotations": 4}),
    "minimal_pair": ("pair", {"context": "Se chove,", "choices": CHOICES}, {}),
    "cloze": ("cloze", {"context": "Ana __ ben.", "choices": CHOICES}, {"score_unfilled_gap": True}),
    "target_word": ("target_word", {"context": "Ana [MASK] ben.", "choices": CHOICES}, {}),
    "acceptability": ("sentence", {"context": "Ana canta."}, {}),
    "last_word": ("continuation", {"context": "Fun á", "target": "praia"}, {"bow_correction": True}),
}
HEADLINES = {
    "acceptability": {"auc", "difsur"},
    "generation": {"bertscore_accuracy", "cosine_accuracy", "exact_match", "moverscore_accuracy"},
    "last_word": {"surprisal"},
} | {name: {"accuracy"} for name in ("cloze", "letters", "minimal_pair", "options", "target_word")}
BY = ("", "_token", "_char", "_byte")
# neither direction is better
NEITHER = {
    "acceptability": {f"{label}_mean{by}" for label in ("good", "bad") for by in BY},
    "cloze": {"baseline_position", "baseline_shortest"},
    "generation": {"bertscore_mean", "cosine_mean", "moverscore_mean"},
    "letters": {"baseline_letter", "most_chosen_letter"},
    "minimal_pair": {"surprisal_bad", "surprisal_good"},
    "target_word": {"certainty", "entropy", "surprisal_incorrect", "surprisal_incorrect_sentence"},
}
ACCURACIES = {f"accuracy{by}" for by in BY}
SHARES = {  # metrics whose values are shares
    "acceptability": {f"auc{by}" for by in BY},
    "cloze": ACCURACIES | {f"accuracy_fill{by}" for by in BY} | {"accuracy_unfilled"} | NEITHER["cloze"],
    "generation": HEADLINES["generation"] | {"verbatim_match"},
    "last_word": {"coverage", "greedy"},
    "letters": {"accuracy", "accuracy_orders", "ece", "probability", "right_in_every_order", "same_in_every_order"}
    | NEITHER["letters"],
    "minimal_pair": ACCURACIES | {"accuracy_bare"},
    "options": ACCURACIES | {"accuracy_pmi", "probability"},
    "target_word": {"accuracy", "accuracy_sentence", "certainty", "probability"},
}
UNITS = {  # of the others
    "acceptability": {
        f"{name}{by}": unit
        for by in BY
        for name, unit in {"good_mean": "nats", "bad_mean": "nats", "difsur": "percent", "mcc": "score"}.items()
    },
    "generation": {f"{name}_{part}": "cosine" if name == "cosine" else "score"
                   for name in ("cosine", "moverscore", "bertscore") for part in ("mean", "correct", "incorrect", "margin")}
    | {"token_f1": "score", "chrf": "score"},
    "last_word": {"surprisal": "nats", "surprisal_max": "nats", "surprisal_corrected": "nats", "perplexity": "score"},
    "letters": {"brier": "score"},
    "minimal_pair": {"difference": "nats", "surprisal_good": "nats", "surprisal_bad": "nats"}
    | dict.fromkeys(("difsur", "difsur_bare", "difsur_item"), "percent"),
    "options": {"surprisal_correct": "nats"},
    "target_word": {"entropy": "bits"}
    | {f"{name}{level}": "ratio" if name == "asd_normalised" else "bits"
       for level in ("", "_sentence") for name in ("asd", "asd_normalised", "surprisal_correct", "surprisal_incorrect")},
}  # fmt: skip
FACTS = {"protocol": "p", "shots": 0, "seed": 0, "style": "default"}


@cache
def rows_of(protocol, skill):
    """Rows of 24 items that a model answers which gives right texts `skill` more than others, in nats or similarity."""
    draw = random.Random(7)
    if protocol == "generation":
        return generated(draw, skill)
    layout, fields, options = LAYOUTS[protocol]
    items = [
        item(f"i{n}", **fields, gold=[draw.randrange(4)] if "choices" in fields else [], extra=[("label", str(n % 2))])
        for n in range(24)
    ]
    requests = ask(items, layout, protocol, **options)
    scores = []
    for request in requests:
        n = int(request["item_id"][1:])
        right = request["role"] in ("word", "sentence") and n % 2 == 1
        if ":" in request["role"] and not request["role"].startswith("uncond"):
            right = int(request["role"].split(":")[1].split("@")[0]) in items[n]["gold"]
        mean = draw.uniform(-9, -7) + (skill if right else 0)
        more = {
            "word_end_logprobs": [-0.5, -0.25],
            "entropy": [2.0],
            "topk_entropy": [1.0],
            "is_greedy": [mean > -7] * 2,
        }
        missing = request["role"] == "word" and n == 0 and skill < 0
        scores.append(score(request, [None] if missing else [mean, draw.uniform(-2, -1)], **more))
    rows, _ = evaluate(protocol, items, requests, scores, [])
    return rows


def generated(draw, skill):
    # every other item brings lm-eval's wording along
    wording = [("ask", '{"until": ["\\n"], "filters": [], "exact": {}}'), ("targets", '["pan"]')]
    items = [item(f"i{n}", question="?", choices=CHOICES, gold=[1], extra=wording[: n % 2 * 2]) for n in range(24)]
    requests = ask(items, "question", "generation")
    answers, similar = [], []
    for one, request in zip(items, requests, strict=True):
        text = ["pan", "pan e", "mar"][min(2, int(draw.uniform(0, 3) * (1 - skill / 4)))]
        answers.append(
            {"item_id": one["item_id"], "role": request["role"], "raw_output": text, "output": text, "flags": None}
        )
        for name in ("cosine", "moverscore", "bertscore"):
            found = [draw.uniform(0.4, 0.6) + (skill / 10 if i == 1 else -skill / 10) for i in range(4)]
            similar.append({"item_id": one["item_id"], "metric": name, "similarities": found})
    rows, _ = evaluate("generation", items, requests, answers, similar)
    return rows


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_metric_goes_the_way_it_says_and_has_its_unit(protocol):
    metrics = PROTOCOLS[protocol].METRICS
    better, worse = (
        {row["metric"]: row for row in values(rows_of(protocol, skill), metrics, FACTS, {})} for skill in (2, -2)
    )
    assert list(better) == [metric.name for metric in metrics]
    assert all(metric.about for metric in metrics)
    assert {name for name, row in better.items() if row["headline"]} == HEADLINES[protocol]
    assert {name for name, row in better.items() if row["higher_is_better"] is None} == NEITHER.get(protocol, set())
    assert {name for name, row in better.items() if row["unit"] == "share"} == SHARES[protocol]
    assert {name: row["unit"] for name, row in better.items() if row["unit"] != "share"} == UNITS.get(protocol, {})
    for name, row in better.items():
        change = row["value"] - worse[name]["value"]
        assert row["higher_is_better"] in (None, change > 0), name
        assert change != 0 or row["higher_is_better"] is None, name
        assert row["metric_group"] == ("similarity" if protocol == "generation" else "surprisal")
        if row["unit"] == "share":
            assert 0 <= row["value"] <= 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_proportions_are_those_whose_items_are_right_or_wrong(protocol):
    rows = [row for skill in (2, 0, -2) for row in rows_of(protocol, skill)]
    for metric in PROTOCOLS[protocol].METRICS:
        if metric.corpus:
            assert not metric.proportion
        else:
            assert not metric.vectorised
            found = {row["metrics"][metric.name] for row in rows if metric.name in row["metrics"]}
            assert metric.proportion == (found <= {0.0, 1.0}), metric.name


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_number_of_all_items_is_the_same_for_many_resamples_at_once(protocol):
    rows = rows_of(protocol, 0)
    for metric in PROTOCOLS[protocol].METRICS:
        if metric.corpus is None:
            continue
        whole = [row["metrics"] for row in rows if all(name in row["metrics"] for name in metric.needs)]
        draws = np.random.default_rng(0).integers(0, len(whole), (3, len(whole)))
        arrays = [np.array([each[name] for each in whole])[draws] for name in metric.needs]
        alone = [float(metric.corpus(*(array[k] for array in arrays))) for k in range(3)]
        assert len(set(alone)) > 1 or metric.name == "entropy", metric.name
        if metric.vectorised:
            assert metric.corpus(*arrays).tolist() == pytest.approx(alone), metric.name
        else:
            assert metric.name.startswith("mcc")
        assert all(map(math.isfinite, alone))


def bits(name):
    return lambda v: fmean(v[name]) / math.log(2)


def where(name, label):
    return lambda v: fmean(x for x, y in zip(v[name], v["label"], strict=True) if y == label)


def percent(good, bad):
    return lambda v: 100 * (bad(v) - good(v)) / max(bad(v), good(v))


def mean(name):
    return lambda v: fmean(v[name])


def right_pairs(name):
    def share(v):
        good, bad = ([x for x, y in zip(v[name], v["label"], strict=True) if y == label] for label in (1, 0))
        return fmean((x < y) + (x == y) / 2 for x in good for y in bad)

    return share


def most_common(name):
    return lambda v: Counter(v[name]).most_common(1)[0][1] / len(v[name])


def calibration(v):
    off = Counter()
    for confidence, right in zip(v["confidence"], v["accuracy"], strict=True):
        off[math.ceil(confidence * 10)] += confidence - right
    return sum(map(abs, off.values())) / len(v["confidence"])


def of_sentences(by):
    name = f"surprisal{by}"
    return {
        f"good_mean{by}": where(name, 1),
        f"bad_mean{by}": where(name, 0),
        f"difsur{by}": percent(where(name, 1), where(name, 0)),
        f"auc{by}": right_pairs(name),
        f"mcc{by}": lambda v: mcc_cross_validated(*(np.array(v[each]) for each in (name, "label", "fold"))),
    }


def of_forms(level):
    right, wrong = f"surprisal_correct{level}", f"surprisal_incorrect{level}"
    return {
        right: bits(right),
        wrong: bits(wrong),
        f"asd{level}": lambda v: bits(wrong)(v) - bits(right)(v),
        f"asd_normalised{level}": lambda v: fmean(v[wrong]) / fmean(v[right]) - 1,
    }


DEFINITIONS = {
    "acceptability": {name: formula for by in BY for name, formula in of_sentences(by).items()},
    "cloze": {"baseline_position": most_common("gold_position")},
    "last_word": {"perplexity": lambda v: math.prod(map(math.exp, v["surprisal"])) ** (1 / len(v["surprisal"]))},
    "letters": {
        "ece": calibration,
        "most_chosen_letter": most_common("chosen_position"),
        "baseline_letter": most_common("gold_position"),
    },
    "minimal_pair": {
        f"difsur{bare}": percent(mean(f"surprisal_good{bare}"), mean(f"surprisal_bad{bare}")) for bare in ("", "_bare")
    },
    "target_word": of_forms("") | of_forms("_sentence") | {"entropy": bits("entropy")},
}


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("protocol", DEFINITIONS)
def test_numbers_of_all_items_are_their_definitions(protocol):
    rows, metrics = rows_of(protocol, 1), PROTOCOLS[protocol].METRICS
    columns = {
        name: [r["metrics"][name] for r in rows if name in r["metrics"]] for row in rows for name in row["metrics"]
    }
    found = {row["metric"]: row["value"] for row in values(rows, metrics, FACTS, {})}
    assert DEFINITIONS[protocol].keys() == {metric.name for metric in metrics if metric.corpus}
    for name, formula in DEFINITIONS[protocol].items():
        assert found[name] == pytest.approx(formula(columns)), name
