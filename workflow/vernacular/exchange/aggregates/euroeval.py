"""EuroEval's `euroeval_benchmark_results.jsonl`: records of Every Eval Ever since version 17, and its own before.

Values are means over iterations, each over another sample of the items, so that no name of a dataset identifies items.
They are percentages, except bits per character of the correct answers. EuroEval 18.3 states for these that a higher
value is better, and a range of 0 to 100, and for all the number of iterations as that of items: none is used here.
The interval, a radius of 1.96 standard errors of the mean over iterations, is kept as stated; it does not cover the
choice of items, of which a single iteration has the standard error of all.
"""

from vernacular.exchange.aggregates.rows import Z_95, Aggregate, aggregate, number, part

_OTHER = {"bits_per_character": "answer_bits_per_character", "bpc": "answer_bits_per_character"}
_RESAMPLED = "EuroEval draws its items, and again in each iteration"
_SPEED = "speed"  # tokens per second


def is_euroeval(record: dict) -> bool:
    """Return whether a record of either format is of EuroEval, or of ScandEval, its former name."""
    is_own = isinstance(record.get("results"), dict) and {"dataset", "model"} <= record.keys()
    return is_own or str(part(record, "eval_library").get("name")).casefold() in ("euroeval", "scandeval")


def read(record: dict, location: str) -> list[Aggregate | str]:
    """Return the values of a record, a text for each that is not possible."""
    library, stated = part(record, "eval_library"), part(record, "eval_library", "additional_details")
    if "results" in record:
        values = part(record, "results", "total") or part(record, "results")
        found = [(name, value, values.get(f"{name}_se")) for name, value in values.items() if not name.endswith("_se")]
        version = record.get("euroeval_version") or record.get("scandeval_version")
        model, dataset, few_shot = record.get("model"), record.get("dataset"), record.get("few_shot")
    else:
        results = record.get("evaluation_results")
        found = [_stated(each) for each in results if isinstance(each, dict)] if isinstance(results, list) else []
        version, few_shot = library.get("version"), stated.get("few_shot")
        model, dataset = part(record, "model_info").get("name"), stated.get("dataset")
    rows = []
    for name, value, radius in found:
        metric = str(name).removeprefix("test_")
        if _SPEED in metric or metric == "num_failed_instances":
            continue
        scale = 1.0 if metric in _OTHER else 0.01
        mean, radius = number(value), number(radius)
        is_number = None not in (mean, radius)
        rows.append(
            aggregate(
                location=location,
                tool="EuroEval",
                version=None if version == "unknown" else version,
                model=model,
                task=dataset,
                metric=_OTHER.get(metric, metric),
                value=value,
                scale=scale,
                higher_is_better=metric not in _OTHER,
                se=radius / Z_95 if is_number else None,
                ci_low=mean - radius if is_number else None,
                ci_high=mean + radius if is_number else None,
                uncertainty="95% interval of the mean over iterations",
                shots=0 if str(few_shot).casefold() == "false" else None,
                other_items=_RESAMPLED,
            )
        )
    return rows


def _stated(result: dict) -> tuple:
    """Return name, value and radius of the interval of a result in the format of Every Eval Ever."""
    score = part(result, "score_details")
    interval = part(score, "uncertainty", "confidence_interval")
    low, high = number(interval.get("lower")), number(interval.get("upper"))
    radius = None if None in (low, high) else (high - low) / 2
    return result.get("evaluation_name", ""), score.get("score"), radius
