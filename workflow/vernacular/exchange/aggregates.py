"""Values that other tools state without results per item: which files hold them, and a reader for each format.

A value keeps what identifies its items (dataset, configuration, split, revision, shots): a name alone identifies none.
Files are those of strangers: what is missing or of another type is None, and a value that is not possible is left out.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from vernacular.core.errors import DataError, first_of, format_count
from vernacular.core.names import displayable, quoted
from vernacular.core.paths import display_path
from vernacular.data.readers import located_rows, parse_json, read_text
from vernacular.metrics.metric import value_problem

Z_95 = NormalDist().inv_cdf(0.975)
_NAMES = {"acc": "accuracy", "em": "exact_match", "matthews_correlation": "mcc"}  # of the same metric here
STANDARD_ERROR = "_stderr"  # end of the name of a metric's standard error in lm-eval and lighteval
PROPORTIONS = ("accuracy", "exact_match", "macro_f1", "micro_f1", "f1", "token_f1", "mcc")  # at most 1
_MAX_BYTES, _MAX_ROWS = 50_000_000, 100_000


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """A value over all items of a dataset, as a file states it, in the unit of this workflow; None: not stated."""

    file: str
    tool: str
    version: str | None = None
    model: str | None = None
    task: str  # as the tool names it
    metric: str
    value: float
    higher_is_better: bool | None = None
    n: int | None = None  # items
    se: float | None = None  # standard error
    ci_low: float | None = None
    ci_high: float | None = None
    uncertainty: str | None = None  # kind of standard error or interval, as stated or converted
    shots: int | None = None
    dataset: str | None = None  # repository on the Hub, or another name of the source
    configuration: str | None = None
    split: str | None = None
    revision: str | None = None  # commit or hash
    other_items: str | None = None  # why the items are not those of the dataset


def aggregate(file: str, *, metric, value, scale: float = 1.0, **stated) -> Aggregate | str:
    """Return an aggregate; if its value is not a number, or is impossible, which value this is, for a message.

    What is stated may have any types; `scale` converts the value, its standard error and its interval.
    """
    name = own_name(text(metric) or "not stated")
    message = f"{text(stated.get('task'))}, {text(metric)}: {quoted(value)}"
    if (value := number(value, scale)) is None or value_problem(name, value, None):
        return message
    if name in PROPORTIONS and not -1 - 1e-6 <= value <= 1 + 1e-6:
        return message
    se, low, high = (number(stated.pop(key, None), scale) for key in ("se", "ci_low", "ci_high"))
    n, shots, better = (
        count(stated.pop("n", None)),
        count(stated.pop("shots", None)),
        stated.pop("higher_is_better", None),
    )
    found = {"se": None if se is None or se < 0 else se, "ci_low": None, "ci_high": None, "n": n or None}
    if None not in (low, high) and low <= value <= high:
        found |= {"ci_low": low, "ci_high": high}
    found |= {"shots": shots, "higher_is_better": better if isinstance(better, bool) else None}
    texts = {key: text(each) for key, each in stated.items()}
    texts |= {key: texts.get(key) or "not stated" for key in ("task", "tool")}
    texts |= {"version": None} if texts.get("version") in ("?", "unknown") else {}
    texts |= {"uncertainty": None} if found["se"] is None and found["ci_low"] is None else {}
    return Aggregate(file=file, metric=name, value=value, **found, **texts)


def own_name(metric: str) -> str:
    """Return the name of a metric here, by that of other tools."""
    return _NAMES.get(metric, metric)


def number(value, scale: float = 1.0) -> float | None:
    """Return a finite number; None for other types, also for numbers as text, and for integers without a float.

    >>> number(50, 0.01), number("0.5"), number(True), number(10**400), number(float("nan"))
    (0.5, None, None, None, None)
    """
    try:
        found = float(value) * scale if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count(value) -> int | None:
    """Return a count, which some formats write as text.

    >>> count(5), count("5"), count(5.0), count(True), count(-1), count("five")
    (5, 5, 5, None, None, None)
    """
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def text(value) -> str | None:
    """Return a text, or a number as text, that can be in a table; None if there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return displayable(str(value)) or None if str(value).strip() else None


def part(value, *keys: str) -> dict:
    """Return the object below keys of an object; an empty one if there is none, or it is of another type."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def parts(value) -> Iterator[tuple[str, dict]]:
    """Yield the objects in an object, by key."""
    for key, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            yield key, each


def objects(value) -> list[dict]:
    """Return the objects in a list; none if it is of another type."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_FILTER = re.compile(r"\(filter: (.+)\)$")  # of lm-eval, in the description of a metric


def _is_every_eval_ever(record: dict) -> bool:
    return isinstance(record.get("evaluation_results"), list) and "model_info" in record


def _every_eval_ever(record: dict) -> Iterator[dict]:
    """Yield the values of a record of version 0.2 to 0.3, as leaderboards and converters (lm-eval, Inspect) write.

    Only values are read. Files of samples are not: version 0.3 attaches those of the last task whose name begins with
    that of the record's task, so that `xnli_eu` may have the samples of `xnli_eu_native`.
    """
    if _is_euroeval(record):
        yield from _euroeval(record)
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


_EUROEVAL_BITS = {"bits_per_character": "answer_bits_per_character", "bpc": "answer_bits_per_character"}
_RESAMPLED = "EuroEval draws its items, and again in each iteration"
_SPEED = "speed"  # tokens per second


def _is_euroeval(record: dict) -> bool:
    """Return whether a record of its own format or Every Eval Ever is of EuroEval, or ScandEval, its former name."""
    is_own = isinstance(record.get("results"), dict) and {"dataset", "model"} <= record.keys()
    return is_own or str(part(record, "eval_library").get("name")).casefold() in ("euroeval", "scandeval")


def _euroeval(record: dict) -> Iterator[dict]:
    """Yield the values of a line: a record of Every Eval Ever since version 17, of its own format before.

    Values are means over iterations, each over another sample of the items, so that no name of a dataset identifies
    items. They are percentages, except bits per character of the correct answers. EuroEval 18.3 states for these that a
    higher value is better, and a range of 0 to 100, and for all the number of iterations as that of items: none is used
    here. The interval, a radius of 1.96 standard errors of the mean over iterations, is kept as stated; it does not
    cover the choice of items, of which a single iteration has the standard error of all.
    """
    if "results" in record:
        values = part(record, "results", "total") or part(record, "results")
        found = [(name, value, values.get(f"{name}_se")) for name, value in values.items() if not name.endswith("_se")]
        version, stated = record.get("euroeval_version") or record.get("scandeval_version"), record
        model = record.get("model")
    else:
        found = [_euroeval_result(each) for each in objects(record.get("evaluation_results"))]
        library = part(record, "eval_library")
        version, stated = library.get("version"), part(library, "additional_details")
        model = part(record, "model_info").get("name")
    labels = {"tool": "EuroEval", "version": version, "model": model, "task": stated.get("dataset")}
    labels |= {"shots": 0 if str(stated.get("few_shot")).casefold() == "false" else None, "other_items": _RESAMPLED}
    labels |= {"uncertainty": "95% interval of the mean over iterations"}
    for name, value, radius in found:
        metric = str(name).removeprefix("test_")
        if _SPEED in metric or metric == "num_failed_instances":
            continue
        is_bits = metric in _EUROEVAL_BITS
        row = {"metric": _EUROEVAL_BITS.get(metric, metric), "value": value, "higher_is_better": not is_bits}
        row |= {"scale": 1.0 if is_bits else 0.01}
        mean, radius = number(value), number(radius)
        if None not in (mean, radius):
            row |= {"se": radius / Z_95, "ci_low": mean - radius, "ci_high": mean + radius}
        yield labels | row


def _euroeval_result(result: dict) -> tuple:
    """Return name, value and radius of the interval of a result in the format of Every Eval Ever."""
    score = part(result, "score_details")
    interval = part(score, "uncertainty", "confidence_interval")
    low, high = number(interval.get("lower")), number(interval.get("upper"))
    radius = None if None in (low, high) else (high - low) / 2
    return result.get("evaluation_name", ""), score.get("score"), radius


def _is_lighteval(content: dict) -> bool:
    return isinstance(content.get("results"), dict) and "config_general" in content


def _lighteval(content: dict) -> Iterator[dict]:
    """Yield the values by `task|shots`, before 0.11 `suite|task|shots|truncation`; not means over tasks (`all`, …)."""
    general, configs = part(content, "config_general"), dict(parts(content.get("config_tasks")))
    configs = {key.replace("|", ":"): each for key, each in configs.items()}
    labels = {"tool": "lighteval", "version": general.get("lighteval_sha")}
    labels |= {"model": part(general, "model_config").get("model_name") or general.get("model_name")}
    for task, values in parts(content["results"]):
        if task == "all" or ":_average" in task:
            continue
        numbers = [name for name in task.split("|") if name.isdecimal()]
        words = ":".join(name for name in task.split("|") if not name.isdecimal())
        own = configs.get(task.replace("|", ":")) or configs.get(words) or {}
        splits, shots = own.get("evaluation_splits"), numbers[0] if numbers else own.get("num_fewshots")
        row = labels | {"task": task, "n": own.get("effective_num_docs"), "shots": shots}
        row |= {"dataset": own.get("hf_repo"), "configuration": own.get("hf_subset")}
        row |= {"split": splits[0] if isinstance(splits, list) and len(splits) == 1 else None}
        row |= {"revision": own.get("hf_revision"), "uncertainty": "standard error"}
        better = {str(each.get("metric_name")): each.get("higher_is_better") for each in objects(own.get("metrics"))}
        for metric in values:
            if not metric.endswith(STANDARD_ERROR):
                row |= {"higher_is_better": better.get(metric)}
                yield row | {"metric": metric, "value": values[metric], "se": values.get(f"{metric}{STANDARD_ERROR}")}


_ABOUT = ("alias", "name", "samples", "sample_len", "sample_count", " ")  # of a task, not values


def _is_lm_eval(content: dict) -> bool:
    """Return whether this is a file of lm-evaluation-harness; lighteval's have `config_general` instead of `config`."""
    return isinstance(content.get("results"), dict) and "config" in content and "versions" in content


def _lm_eval(content: dict) -> Iterator[dict]:
    """Yield the values by `metric,filter`, before 0.4 by `metric`; not those of groups, which are means over tasks."""
    config, groups = part(content, "config"), part(content, "group_subtasks")
    means = part(content, "groups")  # in files without the subtasks
    arguments = config.get("model_args")
    if not isinstance(arguments, dict):
        arguments = dict(each.partition("=")[::2] for each in str(arguments or "").split(","))
    labels = {"tool": "lm-eval" if config.get("model") != "vernacular" else "vernacular"}
    labels |= {"model": arguments.get("pretrained") or content.get("model_name") or arguments.get("model")}
    labels |= {"version": content.get("lm_eval_version") or content.get("git_hash"), "uncertainty": "standard error"}
    for task, values in parts(content["results"]):
        if groups.get(task) or task in means:
            continue
        own, n = part(content, "configs", task), part(content, "n-samples", task)
        shots = part(content, "n-shot").get(task, own.get("num_fewshot", config.get("num_fewshot")))
        row = labels | {"task": task, "shots": shots, "dataset": own.get("dataset_path")}
        row |= {"n": n.get("effective") or values.get("sample_len") or values.get("samples")}
        row |= {"configuration": own.get("dataset_name"), "split": own.get("test_split") or own.get("validation_split")}
        row |= {"revision": part(own, "dataset_kwargs").get("revision")}
        for key, value in values.items():
            metric, _, filtered = key.partition(",")
            if key not in _ABOUT and not metric.endswith(STANDARD_ERROR):
                named = metric if filtered in ("", "none") else key
                better = part(content, "higher_is_better", task).get(metric)
                error = values.get(f"{metric}{STANDARD_ERROR}" + (f",{filtered}" if filtered else ""))
                yield row | {"metric": named, "value": value, "higher_is_better": better, "se": error}


def _is_olmo_eval(content: dict) -> bool:
    tasks = content.get("tasks")
    return isinstance(tasks, list) and all(isinstance(each, dict) and "metrics" in each for each in tasks)


def _olmo_eval(content: dict) -> Iterator[dict]:
    """Yield the values by metric and, since 2026, by scorer; olmo-eval states no standard errors."""
    for entry in content["tasks"]:
        own = part(entry, "config")
        source = own.get("data_source")
        source = {"path": source} if isinstance(source, str) else part(own, "data_source")
        path = source.get("path")
        row = {"tool": "olmo-eval", "model": entry.get("model") or part(content, "config").get("model")}
        row |= {"task": entry.get("task") or entry.get("task_name"), "n": entry.get("num_instances")}
        row |= {"dataset": path.removeprefix("hf://") if isinstance(path, str) else None}
        row |= {"shots": own.get("num_fewshot")}
        row |= {"configuration": source.get("subset"), "split": source.get("split"), "revision": source.get("revision")}
        for metric, values in part(entry, "metrics").items():
            scorers = values if isinstance(values, dict) else {"": values}
            for scorer, value in scorers.items():
                yield row | {"metric": f"{metric},{scorer}" if len(scorers) > 1 else metric, "value": value}


_READERS = (  # whether an object is of a format, and its values
    (_is_every_eval_ever, _every_eval_ever),
    (_is_lighteval, _lighteval),
    (_is_lm_eval, _lm_eval),
    (_is_olmo_eval, _olmo_eval),
    (_is_euroeval, _euroeval),
)
_FORMATS = "Every Eval Ever, EuroEval, lm-eval, lighteval, olmo-eval"


def is_aggregates(file: Path) -> bool:
    """Return whether a file, an object of JSON or a line for each, is of a format of values without items."""
    if file.suffix not in (".json", ".jsonl") or not file.is_file() or file.stat().st_size > _MAX_BYTES:
        return False
    with open(file, "rb") as content:
        first = content.read() if file.suffix == ".json" else next((line for line in content if line.strip()), b"")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):  # reported where the file is read
        return False
    return isinstance(record, dict) and any(fits(record) for fits, _ in _READERS)


def read_aggregates(file: Path) -> tuple[list[Aggregate], list[str]]:
    """Return the values of a file, and a note on those that are not used.

    Raises:
        DataError: The file, or a line of it, is of no known format.
    """
    name = display_path(file)
    used: list[Aggregate] = []
    unusable: list[str] = []
    for location, content in located_rows(file, "jsonl", name=name) if file.suffix == ".jsonl" else _content(file):
        read = next((read for fits, read in _READERS if fits(content)), None)
        if read is None:
            keys = first_of(list(content), 8)
            raise DataError(f"{location}: not a file of results of {_FORMATS} (keys: {keys or 'none'}).")
        for found in (aggregate(name, **stated) for stated in read(content)):
            (unusable if isinstance(found, str) else used).append(found)
        if len(used) + len(unusable) > _MAX_ROWS:
            raise DataError(f"{name}: has more than {_MAX_ROWS:,} values.")
    if unusable:
        problem = f"{format_count(len(unusable), 'value')} not used ({first_of(unusable, 4)})"
        return used, [f"{name}: {problem}: no number, or outside of the range of the metric."]
    return used, [] if used else [f"{name}: no values."]


def _content(file: Path) -> list[tuple[str, dict]]:
    name = display_path(file)
    content = parse_json(read_text(file, name, "json"), name)  # with NaN, which Python's writers write
    if not isinstance(content, dict):
        raise DataError(f"{name}: expected an object of results of {_FORMATS}, got a {type(content).__name__}.")
    return [(name, content)]
