"""acceptability (CoLA): comparison of the surprisals of acceptable and unacceptable sentences.

Surprisals are in nats per sentence, token, character and byte, because the two sets differ in length.
"""

from vernacular.core.fingerprint import fingerprint
from vernacular.metrics.bits import bits_metrics, sizes
from vernacular.metrics.contamination import SIGNALS, signals
from vernacular.metrics.corpus import FOLDS, auc, bad_mean, difsur_of_labels, good_mean, mcc_cross_validated
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, extra, result
from vernacular.types import Item, Result

UNITS = {"surprisal": "sum", "surprisal_token": "token", "surprisal_char": "char", "surprisal_byte": "byte"}


def _metrics() -> list[Metric]:
    metrics = []
    for value in UNITS:
        suffix = value.removeprefix("surprisal")
        unit = f" per {suffix[1:]}" if suffix else ""
        kwargs = {"needs": (value, "label")}
        is_main = not suffix
        metrics += [
            Metric(f"good_mean{suffix}", "nats", None, "surprisal", corpus=good_mean, **kwargs,
                   about=f"mean surprisal{unit} of acceptable sentences"),
            Metric(f"bad_mean{suffix}", "nats", None, "surprisal", corpus=bad_mean, **kwargs,
                   about=f"mean surprisal{unit} of unacceptable sentences"),
            Metric(f"difsur{suffix}", "percent", True, "surprisal", corpus=difsur_of_labels, headline=is_main, **kwargs,
                   about=f"100 (bad - good) / max(bad, good) of mean surprisals{unit} (Simil-Eval)"),
            Metric(f"auc{suffix}", "share", True, "surprisal", corpus=auc, headline=is_main, **kwargs,
                   about=f"an acceptable sentence is less surprising{unit} than an unacceptable one (ROC-AUC)"),
            Metric(f"mcc{suffix}", "score", True, "surprisal", corpus=mcc_cross_validated,
                   needs=(value, "label", "fold"),
                   about=f"Matthews correlation at the best threshold of surprisal{unit}, ten-fold cross-validated"),
        ]  # fmt: skip
    return [*metrics, *bits_metrics(""), *SIGNALS]


METRICS = _metrics()


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return the row of a sentence: `surprisal` (nats), `surprisal_token|char|byte`, `label` (1: acceptable), `fold`.

    An item whose label is neither 0 nor 1 has a surprisal and a flag, and is excluded from all comparisons.
    """
    values = {"fold": int(fingerprint(item["item_id"])[:8], 16) % FOLDS}
    if "sentence" in spans and spans["sentence"].loglik is not None:
        values |= {name: -spans["sentence"].normalized_loglik(unit) for name, unit in UNITS.items()}
    label = extra(item).get("label")
    is_known = label in ("0", "1")
    if is_known:
        values["label"] = int(label)
    if label == "1":
        values |= sizes(spans.get("sentence"), "") | signals(spans.get("sentence"))
    flag = None if is_known else f"error: label {label!r} is neither 0 nor 1"
    return result(item, spans, values=values, prompt=item["context"], flag=flag)
