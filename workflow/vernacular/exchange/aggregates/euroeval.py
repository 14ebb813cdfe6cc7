"""EuroEval's `euroeval_benchmark_results.jsonl`: records of Every Eval Ever since version 17, and its own before.

Values are means over iterations, each over another sample of the items, so that no name of a dataset identifies items.
They are percentages, except bits per character of the correct answers. EuroEval 18.3 states for these that a higher
value is better, and a range of 0 to 100, and for all the number of iterations as that of items: none is used here.
The interval, a radius of 1.96 standard errors of the mean over iterations, is kept as stated; it does not cover the
choice of items, of which a single iteration has the standard error of all.
"""

from collections.abc import Iterator

from vernacular.exchange.aggregates.rows import Z_95, number, objects, part

_OTHER = {"bits_per_character": "answer_bits_per_character", "bpc": "answer_bits_per_character"}
_RESAMPLED = "EuroEval draws its items, and again in each iteration"
_SPEED = "speed"  # tokens per second


def fits(record: dict) -> bool:
    """Return whether a record of either format is of EuroEval, or of ScandEval, its former name."""
    is_own = isinstance(record.get("results"), dict) and {"dataset", "model"} <= record.keys()
    return is_own or str(part(record, "eval_library").get("name")).casefold() in ("euroeval", "scandeval")


def read(record: dict) -> Iterator[dict]:
    """Yield the values of a record."""
    if "results" in record:
        values = part(record, "results", "total") or part(record, "results")
        found = [(name, value, values.get(f"{name}_se")) for name, value in values.items() if not name.endswith("_se")]
        version, stated = record.get("euroeval_version") or record.get("scandeval_version"), record
        model = record.get("model")
    else:
        found = [_stated(each) for each in objects(record.get("evaluation_results"))]
        version, stated = (
            part(record, "eval_library").get("version"),
            part(record, "eval_library", "additional_details"),
        )
        model = part(record, "model_info").get("name")
    labels = {"tool": "EuroEval", "version": version, "model": model, "task": stated.get("dataset")}
    labels |= {"shots": 0 if str(stated.get("few_shot")).casefold() == "false" else None, "other_items": _RESAMPLED}
    labels |= {"uncertainty": "95% interval of the mean over iterations"}
    for name, value, radius in found:
        metric = str(name).removeprefix("test_")
        if _SPEED in metric or metric == "num_failed_instances":
            continue
        row = {"metric": _OTHER.get(metric, metric), "value": value, "higher_is_better": metric not in _OTHER}
        row |= {"scale": 1.0 if metric in _OTHER else 0.01}
        mean, radius = number(value), number(radius)
        if None not in (mean, radius):
            row |= {"se": radius / Z_95, "ci_low": mean - radius, "ci_high": mean + radius}
        yield labels | row


def _stated(result: dict) -> tuple:
    """Return name, value and radius of the interval of a result in the format of Every Eval Ever."""
    score = part(result, "score_details")
    interval = part(score, "uncertainty", "confidence_interval")
    low, high = number(interval.get("lower")), number(interval.get("upper"))
    radius = None if None in (low, high) else (high - low) / 2
    return result.get("evaluation_name", ""), score.get("score"), radius
