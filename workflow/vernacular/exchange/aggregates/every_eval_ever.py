"""Records of Every Eval Ever 0.2 to 0.3, as leaderboards and converters of other tools (lm-eval, Inspect, HELM) write.

Only values are read. Files of samples are not: version 0.3 attaches those of the last task whose name begins with that
of the record's task, so that `xnli_eu` may have the samples of `xnli_eu_native`.
"""

import re
from collections.abc import Iterator
from statistics import NormalDist

from vernacular.exchange.aggregates import euroeval
from vernacular.exchange.aggregates.rows import PROPORTIONS, number, objects, own_name, part, text

_FILTER = re.compile(r"\(filter: (.+)\)$")  # of lm-eval, in the description of a metric


def fits(record: dict) -> bool:
    return isinstance(record.get("evaluation_results"), list) and "model_info" in record


def read(record: dict) -> Iterator[dict]:
    """Yield the values of a record."""
    if euroeval.fits(record):
        yield from euroeval.read(record)
        return
    library, model = part(record, "eval_library"), part(record, "model_info")
    # of Inspect's models `hf/owner/name`, the ID has no name
    labels = {"version": library.get("version"), "model": model.get("name") or model.get("id")}
    labels |= {"tool": library.get("name") or part(record, "source_metadata").get("source_name")}
    for result in objects(record["evaluation_results"]):
        config, source = part(result, "metric_config"), part(result, "source_data")
        score, described = part(result, "score_details"), part(source, "additional_details")
        setting, of_helm = part(result, "generation_config", "additional_details"), part(score, "details")
        name = config.get("metric_name") or config.get("metric_id") or result.get("evaluation_name")
        metric, stated = name if isinstance(name, str) else "", config.get("evaluation_description")
        if filtered := _FILTER.search(stated) if isinstance(stated, str) else None:
            metric = f"{metric},{filtered[1]}"
        is_percent = config.get("max_score") == 100 or config.get("metric_unit") == "percent"
        lower = config.get("lower_is_better")
        row = {"task": result.get("evaluation_name") or source.get("dataset_name"), "metric": metric}
        row |= {"value": score.get("score"), "higher_is_better": not lower if isinstance(lower, bool) else None}
        row |= {"scale": 0.01 if is_percent and own_name(metric.partition(",")[0]) in PROPORTIONS else 1.0}
        row |= {"shots": next((setting[key] for key in ("shots", "num_fewshot", "n_shot") if key in setting), None)}
        row |= {"dataset": source.get("hf_repo"), "split": source.get("hf_split") or of_helm.get("split")}
        if changed := text(of_helm.get("perturbation")):
            row |= {"other_items": f"HELM's items, changed: {changed}"}
        row |= {key: described.get(key) for key in ("configuration", "revision")}
        yield labels | row | _uncertainty(part(score, "uncertainty"))


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
