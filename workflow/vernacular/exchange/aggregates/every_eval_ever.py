"""Records of Every Eval Ever 0.2 to 0.3, as leaderboards and converters of other tools (lm-eval, Inspect, HELM) write.

Only values are read. Files of samples are not: version 0.3 attaches those of the last task whose name begins with that
of the record's task, so that `xnli_eu` may have the samples of `xnli_eu_native`.
"""

import re
from statistics import NormalDist

from vernacular.exchange.aggregates import euroeval
from vernacular.exchange.aggregates.rows import PROPORTIONS, Aggregate, aggregate, number, own_name, part

_FILTER = re.compile(r"\(filter: (.+)\)$")  # of lm-eval, in the description of a metric
_DEFAULT_FILTER = "none"


def is_every_eval_ever(record: dict) -> bool:
    return isinstance(record.get("evaluation_results"), list) and "model_info" in record


def read(record: dict, location: str) -> list[Aggregate | str]:
    """Return the values of a record, a text for each that is not possible."""
    if euroeval.is_euroeval(record):
        return euroeval.read(record, location)
    return [_result(record, each, location) for each in record["evaluation_results"] if isinstance(each, dict)]


def _result(record: dict, result: dict, location: str) -> Aggregate | str:
    library, model = part(record, "eval_library"), part(record, "model_info")
    config, source = part(result, "metric_config"), part(result, "source_data")
    score = part(result, "score_details")
    setting = part(result, "generation_config", "additional_details")
    described = part(source, "additional_details")
    name = config.get("metric_name") or config.get("metric_id") or result.get("evaluation_name")
    metric = name if isinstance(name, str) else ""
    stated = config.get("evaluation_description")
    if filtered := _FILTER.search(stated) if isinstance(stated, str) else None:
        metric = f"{metric},{filtered[1]}"
    is_percent = config.get("max_score") == 100 or config.get("metric_unit") == "percent"
    scale = 0.01 if is_percent and own_name(metric.partition(",")[0]) in PROPORTIONS else 1.0
    lower = config.get("lower_is_better")
    return aggregate(
        location=location,
        tool=library.get("name") or part(record, "source_metadata").get("source_name"),
        version=None if library.get("version") == "unknown" else library.get("version"),
        model=model.get("name") or model.get("id"),  # of Inspect's models `hf/owner/name`, the ID has no name
        task=result.get("evaluation_name") or source.get("dataset_name"),
        metric=metric,
        value=score.get("score"),
        scale=scale,
        higher_is_better=not lower if isinstance(lower, bool) else None,
        **_uncertainty(part(score, "uncertainty")),
        shots=next((setting[key] for key in ("shots", "num_fewshot", "n_shot") if key in setting), None),
        dataset=source.get("hf_repo"),
        configuration=described.get("configuration"),
        split=source.get("hf_split"),
        revision=described.get("revision"),
    )


def _uncertainty(stated: dict) -> dict:
    """Return n, standard error and interval; the standard error of an interval is its half width over its quantile."""
    error, interval = stated.get("standard_error"), part(stated, "confidence_interval")
    error, kind = (error.get("value"), error.get("method")) if isinstance(error, dict) else (error, None)
    found = {"n": stated.get("num_samples"), "se": error}
    found["uncertainty"] = f"standard error ({kind})" if isinstance(kind, str) else "standard error"
    low, high, level = (number(interval.get(name)) for name in ("lower", "upper", "confidence_level"))
    if None in (low, high, level) or not 0.01 <= level <= 0.9999:  # others are no levels of an interval
        return found
    if error is None:
        found |= {"se": (high - low) / 2 / NormalDist().inv_cdf((1 + level) / 2)}
        found["uncertainty"] = f"{level:.0%} interval, converted"
    return found | ({"ci_low": low, "ci_high": high} if level == 0.95 else {})
