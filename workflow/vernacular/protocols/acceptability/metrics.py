"""acceptability (CoLA): comparison of the surprisals of acceptable and unacceptable sentences.

Surprisals are in nats per sentence, token, character and byte, because the two sets differ in length.
"""

from vernacular.core.fingerprint import fingerprint
from vernacular.metrics.corpus import FOLDS, auc, bad_mean, difsur_of_labels, good_mean, mcc_cross_validated
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import asked, extra, result
from vernacular.types import Item, Request, Result, Score

UNITS = {"surprisal": "sum", "surprisal_token": "token", "surprisal_char": "char", "surprisal_byte": "byte"}


def _metrics() -> list[Metric]:
    metrics = []
    for value in UNITS:
        suffix = value.removeprefix("surprisal")
        per = f" per {suffix[1:]}" if suffix else ""
        needs = {"needs": (value, "label"), "vectorised": True}
        first = not suffix
        metrics += [
            Metric(f"good_mean{suffix}", "nats", None, "surprisal", corpus=good_mean, **needs,
                   about=f"mean surprisal{per} of acceptable sentences"),
            Metric(f"bad_mean{suffix}", "nats", None, "surprisal", corpus=bad_mean, **needs,
                   about=f"mean surprisal{per} of unacceptable sentences"),
            Metric(f"difsur{suffix}", "percent", True, "surprisal", corpus=difsur_of_labels, headline=first, **needs,
                   about=f"100 (bad - good) / max(bad, good) of mean surprisals{per} (Simil-Eval)"),
            Metric(f"auc{suffix}", "share", True, "surprisal", corpus=auc, headline=first, **needs,
                   about=f"an acceptable sentence is less surprising{per} than an unacceptable one (ROC-AUC)"),
            Metric(f"mcc{suffix}", "score", True, "surprisal", corpus=mcc_cross_validated,
                   needs=(value, "label", "fold"),
                   about=f"Matthews correlation at the best threshold of surprisal{per}, ten-fold cross-validated"),
        ]  # fmt: skip
    return metrics


METRICS = _metrics()


def per_item(items: list[Item], requests: list[Request], scores: list[Score]) -> list[Result]:
    """Return a row per sentence: `surprisal` (nats), `surprisal_token|char|byte`, `label` (1: acceptable), `fold`.

    An item whose label is missing or neither 0 nor 1 has a surprisal and a flag, and is excluded from all comparisons.
    """
    rows = []
    for item, spans in asked(items, requests, scores):
        values = {"fold": int(fingerprint(item["item_id"])[:8], 16) % FOLDS}
        if "sentence" in spans and spans["sentence"].loglik is not None:
            values |= {name: -spans["sentence"].per(unit) for name, unit in UNITS.items()}
        label = extra(item).get("label")
        known = label in ("0", "1")
        if known:
            values["label"] = int(label)
        flag = None if known else f"error: label {label!r} is neither 0 nor 1"
        rows.append(result(item, spans, values=values, prompt=item["context"], flag=flag))
    return rows
