"""Consistency of each metric's attributes with its values: name, direction, unit, proportion, headline, resamples."""

import json
import math
import random
from collections import Counter
from functools import cache
from statistics import fmean

import numpy as np
import pytest
from scipy import stats
from support.scoring import build_requests, item, metric_rows, score
from vernacular.metrics.corpus import mcc_cross_validated
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS
from vernacular.protocols.evaluate import evaluate
from vernacular.protocols.registry import GENERATED

CHOICES = ["can", "pan", "luz", "mar"]  # equal lengths: normalization does not change the ranking
QUESTION = {"context": "Choveu.", "question": "Que?", "choices": CHOICES}
PROTOCOL_ITEMS = {
    "options": ("passage", QUESTION, {}),
    "letters": ("passage", QUESTION, {"option_rotations": 4}),
    "minimal_pair": ("pair", {"context": "Se chove,", "choices": CHOICES}, {"min_k_plus_plus": True}),
    "cloze": ("cloze", {"context": "Ana __ ben.", "choices": CHOICES}, {"score_unfilled_gap": True}),
    "target_word": ("target_word", {"context": "Ana [MASK] ben.", "choices": CHOICES}, {}),
    "acceptability": ("sentence", {"context": "Ana canta."}, {"min_k_plus_plus": True}),
    "last_word": ("continuation", {"context": "Fun á", "target": "praia"}, {"bow_correction": True}),
    "text": ("text", {"context": "Ana canta."}, {"min_k_plus_plus": True, "order_permutations": 2}),
    "translation_bits": ("translation", {"context": "Ana sings.", "target": "Ana canta."}, {}),
    "entities_bits": ("entities", {"context": "Ana canta.", "target": '{"PER": ["Ana"], "LOC": []}'}, {}),
}
HEADLINES = {
    "acceptability": {"auc", "difsur"},
    "generation": {"bertscore_accuracy", "cosine_accuracy", "exact_match", "moverscore_accuracy"},
    "last_word": {"surprisal"},
    "text": {"bits_per_byte"},
} | {name: {"accuracy"} for name in ("cloze", "letters", "minimal_pair", "options", "target_word")}
SUFFIXES = ("", "_token", "_char", "_byte")
# neither direction is better
UNDIRECTED = {
    "acceptability": {f"{label}_mean{suffix}" for label in ("good", "bad") for suffix in SUFFIXES},
    "cloze": {"baseline_position", "baseline_shortest"},
    "generation": {"bertscore_mean", "cosine_mean", "moverscore_mean"},
    "letters": {"baseline_letter", "most_chosen_letter", "ece_calibrated", "overconfidence"},
    "options": {"accuracy_uncond"},
    "minimal_pair": {"surprisal_bad", "surprisal_good"},
    "target_word": {"certainty", "entropy", "surprisal_incorrect", "surprisal_incorrect_sentence"},
}
OPTIONS_ONLY = {("letters", "accuracy_uncond")}  # of another style: its prompts have no question
ACCURACIES = {f"accuracy{suffix}" for suffix in SUFFIXES}
SHARES = {  # metrics whose values are shares
    "text": set(),
    "acceptability": {f"auc{suffix}" for suffix in SUFFIXES},
    "cloze": ACCURACIES
    | {f"accuracy_fill{suffix}" for suffix in SUFFIXES}
    | {"accuracy_unfilled"}
    | UNDIRECTED["cloze"],
    "generation": HEADLINES["generation"],
    "last_word": {"coverage", "greedy"},
    "letters": {
        "accuracy",
        "accuracy_orders",
        "ece",
        "ece_adaptive",
        "probability",
        "correct_in_every_order",
        "same_in_every_order",
    }
    | UNDIRECTED["letters"],
    "minimal_pair": ACCURACIES | {"accuracy_bare"},
    "options": ACCURACIES | {"accuracy_pmi", "accuracy_uncond", "probability"},
    "target_word": {"accuracy", "accuracy_sentence", "certainty", "probability"},
}
UNITS = {  # of metrics that are not shares
    "acceptability": {
        f"{name}{suffix}": unit
        for suffix in SUFFIXES
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
    | {f"{name}{level}": "ratio" if name == "asd_normalized" else "bits"
       for level in ("", "_sentence") for name in ("asd", "asd_normalized", "surprisal_correct", "surprisal_incorrect")},
}  # fmt: skip
BITS = {  # of which spans a protocol has bits
    "acceptability": ("",),
    "cloze": ("",),
    "last_word": ("answer_",),
    "minimal_pair": ("", "answer_"),
    "options": ("answer_",),
    "target_word": ("", "answer_"),
    "text": ("",),
    "translation_bits": ("answer_",),
    "entities_bits": ("answer_",),
}
for protocol_name, prefixes in BITS.items():
    names = [f"{prefix}bits{per}" for prefix in prefixes for per in ("", "_per_byte", "_per_character")]
    UNITS[protocol_name] = UNITS.get(protocol_name, {}) | dict.fromkeys(names, "bits")
UNITS["text"] |= dict.fromkeys(("word_perplexity", "byte_perplexity", "token_perplexity"), "score")
for protocol_name in ("acceptability", "minimal_pair", "text"):
    UNITS[protocol_name] |= {"min_20": "nats", "min_20_plus_plus": "score"}
    UNDIRECTED[protocol_name] = UNDIRECTED.get(protocol_name, set()) | {"min_20", "min_20_plus_plus"}
UNITS["text"] |= {"order_difference": "nats", "order_t": "score", "order_p": "score"}
UNDIRECTED["text"] |= {"order_difference", "order_t", "order_p"}
STEPS = {f"found_in_{step}" for step in ("boxed", "last_line", "cue", "letter", "option_line", "option_text")}
HEADLINES["choice"], UNDIRECTED["choice"] = {"accuracy"}, STEPS
SHARES["choice"] = {"accuracy", "accuracy_parsed", "extraction_failed", *STEPS}
HEADLINES |= {"translation": {"chrf2pp"}, "translation_bits": {"answer_bits_per_byte"}}
HEADLINES["entities_bits"] = HEADLINES["translation_bits"]
SHARES |= {"translation": {"copied_source", "empty", "wrong_script"}, "translation_bits": set(), "entities_bits": set()}
UNITS["translation"] = {"chrf2pp": "score", "bleu": "score"}
ENTITY_TYPES = ("PER", "ORG", "LOC", "DATE", "MISC")
ENTITY_SCORES = {"entity_f1", *(f"entity_f1_{name}" for name in ENTITY_TYPES)}
HEADLINES["entities"], SHARES["entities"] = {"entity_f1"}, {*ENTITY_SCORES, "precision", "recall", "unparsable"}
METADATA = {"protocol": "p", "shots": 0, "seed": 0, "style": "default"}


# of responses with reasoning, or of several samples: test_generation_metrics.py; test_translation.py
OTHERS = {
    "spbleu",
    "exact_match_closed",
    "pass_at_k",
    "sample_sd",
    "unclosed",
    "no_reasoning",
    "answer_cut",
    "reasoning_tokens",
}


def metrics_of(protocol):
    """Return the metrics of causal models; the values of masked models have the same definitions and other names."""
    names = {metric.name for metric in PROTOCOLS[protocol].METRICS} - OTHERS - {"reasoning_tokens_p95"}
    return [m for m in PROTOCOLS[protocol].METRICS if m.name in names and not m.name.startswith("pseudo_")]


@cache
def rows_of(protocol, skill):
    """Return rows of 24 items whose correct texts score `skill` (nats or similarity) more than others."""
    rng = random.Random(7)
    if protocol == "generation":
        return generation_rows(rng, skill)
    if protocol == "choice":
        return choice_rows(rng, skill)
    if protocol == "translation":
        return translation_rows(rng, skill)
    if protocol == "entities":
        return entities_rows(rng, skill)
    item_type, fields, options = PROTOCOL_ITEMS[protocol]
    items = [
        item(
            f"i{n}",
            **fields,
            gold=[rng.randrange(4)] if "choices" in fields else [],
            extra=[("label", str(n % 2)), ("target_language", "gl")],
        )
        for n in range(24)
    ]
    requests = build_requests(items, item_type, protocol, **options)
    scores = []
    for request in requests:
        n = int(request["item_id"][1:])
        correct = request["role"] in ("word", "sentence", "text", "reference") and n % 2 == 1
        if ":" in request["role"] and not request["role"].startswith("uncond"):
            correct = int(request["role"].split(":")[1].split("@")[0]) in items[n]["gold"]
        mean = rng.uniform(-9, -7) + (skill if correct else 0)
        fields_of_score = {
            "word_end_logprobs": [-0.5, -0.25],
            "entropy": [2.0],
            "topk_entropy": [1.0],
            "is_greedy": [mean > -7] * 2,
            "logprob_mean": [-2.0, -2.0],
            "logprob_sd": [1.0, 1.0],
        }
        missing = request["role"] == "word" and n == 0 and skill < 0
        scores.append(score(request, [None] if missing else [mean, rng.uniform(-2, -1)], **fields_of_score))
    rows, _ = evaluate(protocol, items, requests, scores, [])
    return rows


def generation_rows(rng, skill):
    # every other item has lm-eval's settings
    extra_fields = [("settings", '{"until": ["\\n"], "filters": [], "exact": {}}'), ("targets", '["pan"]')]
    items = [
        item(f"i{n}", question="?", choices=CHOICES, gold=[1], extra=dict(extra_fields[: n % 2 * 2])) for n in range(24)
    ]
    requests = build_requests(items, "question", "generation")
    generations, similarities = [], []
    for item_row, request in zip(items, requests, strict=True):
        text = ["pan", "pan e", "mar"][min(2, int(rng.uniform(0, 3) * (1 - skill / 4)))]
        generations.append(
            {"item_id": item_row["item_id"], "role": request["role"], "raw_output": text, "output": text, "flags": None}
        )
        for name in ("cosine", "moverscore", "bertscore"):
            scores = [rng.uniform(0.4, 0.6) + (skill / 10 if i == 1 else -skill / 10) for i in range(4)]
            similarities.append({"item_id": item_row["item_id"], "metric": name, "similarities": scores})
    rows, _ = evaluate("generation", items, requests, generations, similarities)
    return rows


def translation_rows(rng, skill):
    reference = "A nena canta na casa con Ana e Xan."
    fields = {"context": "The girl sings at home.", "target": reference, "extra": [("target_language", "gl")]}
    items = [item(f"i{n}", **fields) for n in range(24)]
    requests = build_requests(items, "translation", "translation")
    texts = [reference, *["A nena canta na casa con Eva."] * 2, "the girl sings at home.", "", "Девојчица пева."]
    outputs = [
        {"item_id": r["item_id"], "role": r["role"], "raw_output": text, "output": text, "flags": None}
        for r in requests
        for text in [texts[min(5, int(rng.uniform(0, 6) * (1 - skill / 4)))]]
    ]
    return evaluate("translation", items, requests, outputs, [])[0]


def entities_rows(rng, skill):
    target = json.dumps({name: ["Ana", "Vigo"] for name in ENTITY_TYPES})
    items = [item(f"i{n}", context="Ana e Vigo", target=target) for n in range(24)]
    requests = build_requests(items, "entities", "entities")
    keys = ("persoa", "organización", "lugar", "data", "outros")
    outputs = []
    for request in requests:
        answer = {key: ["Ana" if rng.uniform(0, 4) < 2 + skill / 2 else "Xan"] for key in keys}
        text = json.dumps(answer) if rng.uniform(0, 4) < 3 + skill / 2 else "?"
        outputs.append(
            {name: request[name] for name in ("item_id", "role")} | {"raw_output": text, "output": text, "flags": None}
        )
    return evaluate("entities", items, requests, outputs, [])[0]


def choice_rows(rng, skill):
    items = [item(f"i{n}", question="?", choices=CHOICES, gold=[1]) for n in range(24)]
    requests = build_requests(items, "question", "choice")
    texts = [["B", "A", "?"][min(2, int(rng.uniform(0, 3) * (1 - skill / 4)))] for _ in requests]
    outputs = [
        {"item_id": r["item_id"], "role": r["role"], "raw_output": text, "output": text, "flags": None}
        for r, text in zip(requests, texts, strict=True)
    ]
    return evaluate("choice", items, requests, outputs, [])[0]


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_direction_unit_and_headline_of_every_metric(protocol):
    metrics = metrics_of(protocol)
    better, worse = (
        {row["metric"]: row for row in metric_rows(rows_of(protocol, skill), metrics, METADATA, {})}
        for skill in (2, -2)
    )
    assert list(better) == [metric.name for metric in metrics if (protocol, metric.name) not in OPTIONS_ONLY]
    assert all(metric.about for metric in metrics)
    assert {name for name, row in better.items() if row["headline"]} == HEADLINES[protocol]
    assert {name for name, row in better.items() if row["higher_is_better"] is None} == UNDIRECTED.get(protocol, set())
    assert {name for name, row in better.items() if row["unit"] == "share"} == SHARES[protocol]
    assert {name: row["unit"] for name, row in better.items() if row["unit"] != "share"} == UNITS.get(protocol, {})
    for name, row in better.items():
        change = row["value"] - worse[name]["value"]
        assert row["higher_is_better"] in (None, change > 0), name
        assert change != 0 or row["higher_is_better"] is None, name
        assert row["metric_group"] == ("similarity" if protocol in GENERATED else "surprisal")
        if row["unit"] == "share":
            assert -(name == "overconfidence") <= row["value"] <= 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_proportions_have_binary_values(protocol):
    rows = [row for skill in (2, 0, -2) for row in rows_of(protocol, skill)]
    for metric in metrics_of(protocol):
        if metric.corpus:
            assert not metric.proportion
        else:
            values = {row["metrics"][metric.name] for row in rows if metric.name in row["metrics"]}
            assert metric.proportion == (values <= {0.0, 1.0}), metric.name


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_corpus_metrics_of_several_rows_match_single_calls(protocol):
    rows = rows_of(protocol, 0)
    for metric in metrics_of(protocol):
        if metric.corpus is None:
            continue
        complete = [row["metrics"] for row in rows if all(name in row["metrics"] for name in metric.needs)]
        indices = np.random.default_rng(0).integers(0, len(complete), (3, len(complete)))
        arrays = [np.array([values[name] for values in complete])[indices] for name in metric.needs]
        expected = [float(metric.corpus(*(array[k] for array in arrays))) for k in range(3)]
        assert len(set(expected)) > 1 or metric.name == "entropy", metric.name
        assert metric.corpus(*arrays).tolist() == pytest.approx(expected), metric.name
        assert all(map(math.isfinite, expected))


def bits(name):
    return lambda v: fmean(v[name]) / math.log(2)


def mean_of_label(name, label):
    return lambda v: fmean(x for x, y in zip(v[name], v["label"], strict=True) if y == label)


def percent(good, bad):
    return lambda v: 100 * (bad(v) - good(v)) / max(bad(v), good(v))


def mean(name):
    return lambda v: fmean(v[name])


def auc(name):
    def share(v):
        good, bad = ([x for x, y in zip(v[name], v["label"], strict=True) if y == label] for label in (1, 0))
        return fmean((x < y) + (x == y) / 2 for x in good for y in bad)

    return share


def most_common(name):
    return lambda v: Counter(v[name]).most_common(1)[0][1] / len(v[name])


def calibration(v):
    gaps = Counter()
    for confidence, correct in zip(v["confidence"], v["accuracy"], strict=True):
        gaps[math.ceil(confidence * 10)] += confidence - correct
    return sum(map(abs, gaps.values())) / len(v["confidence"])


def calibrated(v):
    variances = Counter()
    for confidence in v["confidence"]:
        variances[math.ceil(confidence * 10)] += confidence * (1 - confidence)
    return sum(math.sqrt(2 * variance / math.pi) for variance in variances.values()) / len(v["confidence"])


def adaptive(v):
    gaps = [
        c - right for c, right in sorted(zip(v["confidence"], v["accuracy"], strict=True), key=lambda pair: pair[0])
    ]
    return sum(abs(math.fsum(part)) for part in np.array_split(gaps, 5)) / len(gaps)


def acceptability_formulas(suffix):
    name = f"surprisal{suffix}"
    return {
        f"good_mean{suffix}": mean_of_label(name, 1),
        f"bad_mean{suffix}": mean_of_label(name, 0),
        f"difsur{suffix}": percent(mean_of_label(name, 1), mean_of_label(name, 0)),
        f"auc{suffix}": auc(name),
        f"mcc{suffix}": lambda v: mcc_cross_validated(*(np.array(v[column]) for column in (name, "label", "fold"))),
    }


def target_word_formulas(level):
    correct, incorrect = f"surprisal_correct{level}", f"surprisal_incorrect{level}"
    return {
        correct: bits(correct),
        incorrect: bits(incorrect),
        f"asd{level}": lambda v: bits(incorrect)(v) - bits(correct)(v),
        f"asd_normalized{level}": lambda v: fmean(v[incorrect]) / fmean(v[correct]) - 1,
    }


def sum_ratio(numerator, denominator):
    return lambda v: math.fsum(v[numerator]) / math.fsum(v[denominator])


def bits_formulas(prefix):
    return {
        f"{prefix}bits_per_{unit}": sum_ratio(f"{prefix}bits", f"{prefix}{unit}s") for unit in ("byte", "character")
    }


def perplexity_of(length):
    return lambda v: 2 ** (math.fsum(v["bits"]) / math.fsum(v[length]))


def f1_of(name):
    return lambda v: 2 * sum(v[f"{name}#0"]) / (sum(v[f"{name}#1"]) + sum(v[f"{name}#2"]))


DEFINITIONS = {
    "options": {},
    "text": {
        **{f"{length}_perplexity": perplexity_of(f"{length}s") for length in ("word", "byte", "token")},
        "order_t": lambda v: stats.ttest_1samp(v["order_difference"], 0, alternative="greater").statistic,
        "order_p": lambda v: stats.ttest_1samp(v["order_difference"], 0, alternative="greater").pvalue,
    },
    "acceptability": {name: formula for suffix in SUFFIXES for name, formula in acceptability_formulas(suffix).items()},
    "cloze": {"baseline_position": most_common("gold_position")},
    "translation_bits": {},
    "entities_bits": {},
    "entities": {
        **{name: f1_of(name) for name in ENTITY_SCORES},
        "precision": sum_ratio("entity_f1#0", "entity_f1#1"),
        "recall": sum_ratio("entity_f1#0", "entity_f1#2"),
    },
    "last_word": {"perplexity": lambda v: math.prod(map(math.exp, v["surprisal"])) ** (1 / len(v["surprisal"]))},
    "letters": {
        "ece": calibration,
        "ece_calibrated": calibrated,
        "ece_adaptive": adaptive,
        "overconfidence": lambda v: fmean(v["confidence"]) - fmean(v["accuracy"]),
        "most_chosen_letter": most_common("chosen_position"),
        "baseline_letter": most_common("gold_position"),
    },
    "minimal_pair": {
        f"difsur{bare}": percent(mean(f"surprisal_good{bare}"), mean(f"surprisal_bad{bare}")) for bare in ("", "_bare")
    },
    "target_word": target_word_formulas("") | target_word_formulas("_sentence") | {"entropy": bits("entropy")},
}

for protocol_name, prefixes in BITS.items():
    DEFINITIONS[protocol_name] |= {
        name: formula for prefix in prefixes for name, formula in bits_formulas(prefix).items()
    }


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("protocol", DEFINITIONS)
def test_corpus_metrics_match_reference_formulas(protocol):
    rows, metrics = rows_of(protocol, 1), metrics_of(protocol)
    columns = {
        name: [other["metrics"][name] for other in rows if name in other["metrics"]]
        for row in rows
        for name in row["metrics"]
    }
    values = {row["metric"]: row["value"] for row in metric_rows(rows, metrics, METADATA, {})}
    assert DEFINITIONS[protocol].keys() == {metric.name for metric in metrics if metric.corpus}
    for name, formula in DEFINITIONS[protocol].items():
        assert values[name] == pytest.approx(formula(columns)), name
