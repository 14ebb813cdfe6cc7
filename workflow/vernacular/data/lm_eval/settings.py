"""Translation of an lm-eval task file to a source of this workflow and the settings that render its rows.

Each lm-eval key is supported, ignored because it has no effect here, or rejected with an error.
"""

import os
import re
from pathlib import Path

from vernacular.core import validate
from vernacular.core.errors import ConfigError
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.lm_eval import task_file, templates
from vernacular.data.lm_eval.functions import is_function
from vernacular.data.lm_eval.items import FUNCTIONS
from vernacular.data.lm_eval.task_file import dataset_source, first_split, unsupported

_SCHEMA = WORKFLOW / "schemas" / "lm_eval.schema.yaml"
PROTOCOLS = {"multiple_choice": "options", "loglikelihood": "last_word", "generate_until": "generation"}
MAX_GEN_TOKS = 256  # lm-eval's default
_SUPPORTED_FILTERS = ("remove_whitespace", "lowercase", "uppercase", "take_first")
_EXACT_MATCH_OPTIONS = ("ignore_case", "ignore_punctuation", "ignore_numbers", "regexes_to_ignore")
# keys that are used below, or that affect neither the prompt nor the rows
_SUPPORTED_KEYS = {
    "task", "task_alias", "tag", "metadata", "version", "num_fewshot", "should_decontaminate", "group_alias",
    "doc_to_decontamination_query", "higher_is_better", "fewshot_split", "training_split", "validation_split",
    "test_split", "output_type", "target_delimiter", "fewshot_delimiter", "description", "gen_prefix",
    "dataset_path", "dataset_name", "dataset_kwargs", "fewshot_config", "generation_kwargs", "metric_list",
    "filter_list", "process_results", "repeats", "unsafe_code", *FUNCTIONS,
}  # fmt: skip
_FEWSHOT_KEYS = {
    "sampler", "split", "process_docs", "samples", "doc_to_text", "doc_to_choice", "doc_to_target", "gen_prefix",
    "fewshot_delimiter", "target_delimiter",
}  # fmt: skip
_SUPPORTED_METRICS = (
    "acc",
    "acc_norm",
    "acc_bytes",
    "acc_mutual_info",
    "exact_match",
    "perplexity",
)  # computed here, too


def translate(source: dict, directory: Path) -> tuple[dict, dict]:
    """Translate a source `{lm-eval: …, trust_functions: …}` to (source as in other tasks, settings for `build_items`).

    Both are JSON values that include everything the file defines.

    Raises:
        ConfigError: The file is missing or invalid, or has an unsupported key; with file and key.
    """
    content, path = task_file.read(source["lm-eval"], directory)
    validate.check(_to_plain_text(content), {}, validate.schema(_SCHEMA), path)
    _check_keys(content, path, trusted=source.get("trust_functions", False))
    settings = _settings(content, path)
    data_source = dataset_source(content, path, few_shot_split=settings["few_split"])
    data_source |= {"revision": source["revision"]} if "revision" in source else {}
    if "file" in data_source:
        data_source |= {
            key: os.path.relpath(data_source[key], directory) for key in ("file", "few_shot") if key in data_source
        }
    return data_source, _make_paths_relative(settings, directory, path)


def _settings(content: dict, path: Path) -> dict:
    output_type = content.get("output_type", "generate_until")
    fewshot_config = _fewshot_config(content)
    few_split = fewshot_config["split"] or (
        None if fewshot_config["samples"] else first_split(content, "training", "validation", "test")
    )
    return {
        "file": source_name(path),
        "task": content.get("task"),
        "output_type": output_type,
        **{key: _dict_to_list(content.get(key)) for key in (*FUNCTIONS, "process_results")},
        "description": content.get("description") or "",
        "gen_prefix": content.get("gen_prefix"),
        "target_delimiter": content.get("target_delimiter", " "),
        "fewshot_config": fewshot_config,
        "split": first_split(content, "test", "validation"),
        "few_split": few_split,
        # lm-eval compares the two names, and two missing names are equal
        "exclude": fewshot_config["split"] == content.get("test_split"),
        "num_fewshot": content.get("num_fewshot"),
        "pmi": any(_metric(entry) == "acc_mutual_info" for entry in content.get("metric_list") or ()),
        **(_generation(content, path) if output_type == "generate_until" else {}),
        "notes": _notes(content, path),
    }


def source_name(path: Path) -> str:
    """Return the file's name with the directory of its task family: `galician_bench/paws_gl.yaml`."""
    return "/".join(path.parts[-2:])


def _fewshot_config(content: dict) -> dict:
    """Return `fewshot_config`, completed with the values that it inherits."""
    settings = content.get("fewshot_config") or {}
    inherited = {key: content.get(key) for key in ("gen_prefix", *FUNCTIONS)}
    inherited |= {"fewshot_delimiter": content.get("fewshot_delimiter", "\n\n")}
    inherited |= {"target_delimiter": content.get("target_delimiter", " ")}
    inherited |= {"sampler": "default", "samples": None, "split": content.get("fewshot_split")}
    config = inherited | settings
    return config | {key: _dict_to_list(config[key]) for key in FUNCTIONS}


def _dict_to_list(value):
    return list(value.values()) if isinstance(value, dict) and not is_function(value) else value


def _generation(content: dict, path: Path) -> dict:
    kwargs = dict(content.get("generation_kwargs") or {})
    until = kwargs.pop("until", content.get("fewshot_delimiter", "\n\n"))
    names = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    lengths = [kwargs.pop(name, None) for name in names]
    do_sample, temperature = kwargs.pop("do_sample", None), float(kwargs.pop("temperature", None) or 0)
    if do_sample or (do_sample is None and temperature > 0):
        raise unsupported(path, "generation_kwargs.do_sample", "outputs are decoded greedily")
    if kwargs:
        raise unsupported(path, f"generation_kwargs.{next(iter(kwargs))}")
    return {
        "until": [str(stop_string) for stop_string in (until if isinstance(until, list) else [until]) if stop_string],
        "max_gen_toks": int(next((length for length in lengths if length is not None), MAX_GEN_TOKS)),
        "exact": _exact_match_options(content, path),
        "filters": _filters(content, path),
    }


def _exact_match_options(content: dict, path: Path) -> dict:
    """Return the options of lm-eval's exact_match; {} if the file does not list this metric."""
    entry = next((metric for metric in content.get("metric_list") or () if _metric(metric) == "exact_match"), {})
    options = {key: value for key, value in entry.items() if key not in ("metric", "aggregation", "higher_is_better")}
    for key in options:
        if key not in _EXACT_MATCH_OPTIONS:
            raise unsupported(path, f"metric_list.exact_match.{key}")
    for pattern in options.get("regexes_to_ignore") or ():
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            location = f"{display_path(path)}: metric_list.exact_match.regexes_to_ignore"
            raise ConfigError(f'{location}: "{pattern}" is not a regular expression ({error}).') from None
    return options


def _filters(content: dict, path: Path) -> list[str]:
    pipelines = content.get("filter_list") or []
    names = [step["function"] for pipeline in pipelines[:1] for step in pipeline["filter"]]
    for name in names:
        if name not in _SUPPORTED_FILTERS:
            raise unsupported(path, f"filter_list: the filter {name}", f"supported: {', '.join(_SUPPORTED_FILTERS)}")
    if len(pipelines) > 1:
        raise unsupported(path, "filter_list with several pipelines")
    return [name for name in names if name != "take_first"]  # there is only one output


def _notes(content: dict, path: Path) -> list[str]:
    """Return a sentence for each metric of lm-eval that is not computed, or computed in another way."""
    notes = []
    metrics = dict.fromkeys(name for entry in content.get("metric_list") or () if (name := _metric(entry)))
    if metrics := [name for name in metrics if name not in _SUPPORTED_METRICS]:
        label = f"metric {metrics[0]} is" if len(metrics) == 1 else f"metrics {', '.join(metrics)} are"
        notes.append(f"{source_name(path)}: its {label} not computed as in lm-eval.")
    if results := content.get("process_results"):
        name = results["function"] if is_function(results) else results
        if content.get("output_type") == "multiple_choice":
            effect = "only determines the correct options; its acc may be Vernacular's probability (TruthfulQA's MC2)"
        else:
            effect = "is not run; Vernacular's metrics are computed instead"
        notes.append(f"{source_name(path)}: process_results ({name}) {effect}.")
    return notes


def _metric(entry: dict) -> str | None:
    name = entry.get("metric")
    return name["function"] if is_function(name) else name


def _check_keys(content: dict, path: Path, *, trusted: bool) -> None:
    for key, value in content.items():
        if key not in _SUPPORTED_KEYS and value not in (None, False, "", [], {}):
            raise unsupported(path, key)
    if content.get("unsafe_code"):
        raise unsupported(path, "unsafe_code", "generated code is never run")
    if (content.get("repeats") or 1) != 1:
        raise unsupported(path, "repeats")
    output_type = content.get("output_type", "generate_until")
    if output_type not in PROTOCOLS:
        raise unsupported(path, f"output_type: {output_type}", f"supported: {', '.join(PROTOCOLS)}")
    fewshot_config = content.get("fewshot_config") or {}
    for key in fewshot_config:
        if key not in _FEWSHOT_KEYS:
            raise unsupported(path, f"fewshot_config.{key}")
    if fewshot_config.get("sampler", "default") not in ("default", "first_n"):
        raise unsupported(path, "fewshot_config.sampler", "supported: default and first_n")
    if fewshot_config.get("samples") is not None and not isinstance(fewshot_config["samples"], list):
        raise unsupported(path, "fewshot_config.samples", "supported: a list of rows")
    required_keys = ("doc_to_text", "doc_to_target", *(["doc_to_choice"] if output_type == "multiple_choice" else []))
    for key in required_keys:
        if content.get(key) is None:
            raise ConfigError(f'{display_path(path)}: the key "{key}" is missing.')
    fields = [(key, content.get(key)) for key in FUNCTIONS] + [
        (f"fewshot_config.{key}", fewshot_config.get(key)) for key in FUNCTIONS
    ]
    fields += [("process_results", content.get("process_results"))] if output_type == "multiple_choice" else []
    fields += [(key, content.get(key)) for key in ("description", "gen_prefix")]
    fields += [("fewshot_config.gen_prefix", fewshot_config.get("gen_prefix"))]
    for key, value in fields:
        _check_field(key, value, path, trusted=trusted)


def _check_field(key: str, value, path: Path, *, trusted: bool) -> None:
    if is_function(value) and not trusted:
        raise ConfigError(
            f"{display_path(path)}: {key} is the Python function {value['function']}, which would be run on this "
            "machine.\nIf you trust it, set trust_functions: true in the source, next to lm-eval."
        )
    if key.endswith(("process_docs", "process_results")) and isinstance(value, str):
        raise ConfigError(f"{display_path(path)}: {key}: expected !function module.name without quotes, got text.")
    if isinstance(value, str) and (error := templates.check(value)):
        raise ConfigError(f"{display_path(path)}: {key} is not a valid Jinja template ({error}).")


def _to_plain_text(value):
    """Return `value` for validation by the schema: keys as text, and functions as written in the file."""
    if is_function(value):
        return f"!function {value['function']}"
    if isinstance(value, dict):
        return {str(key): _to_plain_text(v) for key, v in value.items()}
    return [_to_plain_text(v) for v in value] if isinstance(value, list) else value


def _make_paths_relative(value, directory: Path, path: Path):
    """Return `value` with files of functions relative to `directory`, so that it is the same in every clone."""
    if is_function(value):
        return value | {"file": value["file"] and os.path.relpath(value["file"], directory)}
    if isinstance(value, dict):
        return {str(key): _make_paths_relative(v, directory, path) for key, v in value.items()}
    if isinstance(value, list):
        return [_make_paths_relative(v, directory, path) for v in value]
    if value is None or isinstance(value, str | int | float):
        return value
    type_name = type(value).__name__
    raise ConfigError(f"{display_path(path)}: expected text, got {value} (for YAML a {type_name}); put it in quotes.")
