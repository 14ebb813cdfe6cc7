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
from vernacular.data.lm_eval.task_file import first_split, source_of, unsupported

_SCHEMA = WORKFLOW / "schemas" / "lm_eval.schema.yaml"
PROTOCOLS = {"multiple_choice": "options", "loglikelihood": "last_word", "generate_until": "generation"}
MAX_GEN_TOKS = 256  # lm-eval's default
_FILTERS = ("remove_whitespace", "lowercase", "uppercase", "take_first")
_EXACT = ("ignore_case", "ignore_punctuation", "ignore_numbers", "regexes_to_ignore")
# keys that are used below, or that affect neither the prompt nor the rows
_IDLE = {
    "task", "task_alias", "tag", "metadata", "version", "num_fewshot", "should_decontaminate", "group_alias",
    "doc_to_decontamination_query", "higher_is_better", "fewshot_split", "training_split", "validation_split",
    "test_split", "output_type", "target_delimiter", "fewshot_delimiter", "description", "gen_prefix",
    "dataset_path", "dataset_name", "dataset_kwargs", "fewshot_config", "generation_kwargs", "metric_list",
    "filter_list", "process_results", "repeats", "unsafe_code", *FUNCTIONS,
}  # fmt: skip
_FEW = {
    "sampler", "split", "process_docs", "samples", "doc_to_text", "doc_to_choice", "doc_to_target", "gen_prefix",
    "fewshot_delimiter", "target_delimiter",
}  # fmt: skip
_NUMBERS = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "perplexity")  # computed here, too


def translate(source: dict, folder: Path) -> tuple[dict, dict]:
    """Translate a source `{lm-eval: …, trust_functions: …}` to (a source as in other tasks, settings for `lay_out`).

    Both are JSON values that include everything the file defines.

    Raises:
        ConfigError: The file is missing or invalid, or has an unsupported key; with file and key.
    """
    content, path = task_file.read(source["lm-eval"], folder)
    validate.check(_plain(content), {}, validate.schema(_SCHEMA), path)
    _check_keys(content, path, trusted=source.get("trust_functions", False))
    settings = _settings(content, path)
    data = source_of(content, path, few_shot=settings["few_split"])
    data |= {"revision": source["revision"]} if "revision" in source else {}
    if "file" in data:
        data |= {key: os.path.relpath(data[key], folder) for key in ("file", "few_shot") if key in data}
    return data, _portable(settings, folder, path)


def _settings(content: dict, path: Path) -> dict:
    kind = content.get("output_type", "generate_until")
    few = _few(content)
    pool = few["split"] or (None if few["samples"] else first_split(content, "training", "validation", "test"))
    return {
        "file": source_name(path),
        "task": content.get("task"),
        "output_type": kind,
        **{key: _field(content.get(key)) for key in (*FUNCTIONS, "process_results")},
        "description": content.get("description") or "",
        "gen_prefix": content.get("gen_prefix"),
        "target_delimiter": content.get("target_delimiter", " "),
        "few": few,
        "split": first_split(content, "test", "validation"),
        "few_split": pool,
        # lm-eval compares the two names, and two missing names are equal
        "exclude": few["split"] == content.get("test_split"),
        "num_fewshot": content.get("num_fewshot"),
        "pmi": any(_metric(entry) == "acc_mutual_info" for entry in content.get("metric_list") or ()),
        **(_generation(content, path) if kind == "generate_until" else {}),
        "notes": _notes(content, path),
    }


def source_name(path: Path) -> str:
    """Return the file's name with the directory of its task family: `galician_bench/paws_gl.yaml`."""
    return "/".join(path.parts[-2:])


def _few(content: dict) -> dict:
    """Return `fewshot_config`, completed with the values that it inherits."""
    given = content.get("fewshot_config") or {}
    inherited = {key: content.get(key) for key in ("gen_prefix", *FUNCTIONS)}
    inherited |= {"fewshot_delimiter": content.get("fewshot_delimiter", "\n\n")}
    inherited |= {"target_delimiter": content.get("target_delimiter", " ")}
    inherited |= {"sampler": "default", "samples": None, "split": content.get("fewshot_split")}
    found = inherited | given
    return found | {key: _field(found[key]) for key in FUNCTIONS}


def _field(value):
    return list(value.values()) if isinstance(value, dict) and not is_function(value) else value


def _generation(content: dict, path: Path) -> dict:
    given = dict(content.get("generation_kwargs") or {})
    until = given.pop("until", content.get("fewshot_delimiter", "\n\n"))
    names = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    lengths = [given.pop(name, None) for name in names]
    sampled, temperature = given.pop("do_sample", None), float(given.pop("temperature", None) or 0)
    if sampled or (sampled is None and temperature > 0):
        raise unsupported(path, "generation_kwargs.do_sample", "outputs are decoded greedily")
    if given:
        raise unsupported(path, f"generation_kwargs.{next(iter(given))}")
    return {
        "until": [str(stop) for stop in (until if isinstance(until, list) else [until]) if stop],
        "max_gen_toks": int(next((length for length in lengths if length is not None), MAX_GEN_TOKS)),
        "exact": _exact(content, path),
        "filters": _filters(content, path),
    }


def _exact(content: dict, path: Path) -> dict:
    """Return the options of lm-eval's exact_match; {} if the file does not list this metric."""
    entry = next((e for e in content.get("metric_list") or () if _metric(e) == "exact_match"), {})
    given = {key: v for key, v in entry.items() if key not in ("metric", "aggregation", "higher_is_better")}
    for key in given:
        if key not in _EXACT:
            raise unsupported(path, f"metric_list.exact_match.{key}")
    for pattern in given.get("regexes_to_ignore") or ():
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            at = f"{display_path(path)}: metric_list.exact_match.regexes_to_ignore"
            raise ConfigError(f'{at}: "{pattern}" is not a regular expression ({error}).') from None
    return given


def _filters(content: dict, path: Path) -> list[str]:
    pipelines = content.get("filter_list") or []
    names = [step["function"] for pipeline in pipelines[:1] for step in pipeline["filter"]]
    for name in names:
        if name not in _FILTERS:
            raise unsupported(path, f"filter_list: the filter {name}", f"supported: {', '.join(_FILTERS)}")
    if len(pipelines) > 1:
        raise unsupported(path, "filter_list with several pipelines")
    return [name for name in names if name != "take_first"]  # there is only one output


def _notes(content: dict, path: Path) -> list[str]:
    """Return a sentence for each metric of lm-eval that is not computed, or computed in another way."""
    notes = []
    absent = dict.fromkeys(name for entry in content.get("metric_list") or () if (name := _metric(entry)))
    if absent := [name for name in absent if name not in _NUMBERS]:
        metrics = f"metric {absent[0]} is" if len(absent) == 1 else f"metrics {', '.join(absent)} are"
        notes.append(f"{source_name(path)}: its {metrics} not computed as in lm-eval.")
    if results := content.get("process_results"):
        name = results["function"] if is_function(results) else results
        if content.get("output_type") == "multiple_choice":
            use = "only determines the correct options; its acc may be Vernacular's probability (TruthfulQA's MC2)"
        else:
            use = "is not run; Vernacular's metrics are computed instead"
        notes.append(f"{source_name(path)}: process_results ({name}) {use}.")
    return notes


def _metric(entry: dict) -> str | None:
    name = entry.get("metric")
    return name["function"] if is_function(name) else name


def _check_keys(content: dict, path: Path, *, trusted: bool) -> None:
    for key, value in content.items():
        if key not in _IDLE and value not in (None, False, "", [], {}):
            raise unsupported(path, key)
    if content.get("unsafe_code"):
        raise unsupported(path, "unsafe_code", "generated code is never run")
    if (content.get("repeats") or 1) != 1:
        raise unsupported(path, "repeats")
    kind = content.get("output_type", "generate_until")
    if kind not in PROTOCOLS:
        raise unsupported(path, f"output_type: {kind}", f"supported: {', '.join(PROTOCOLS)}")
    few = content.get("fewshot_config") or {}
    for key in few:
        if key not in _FEW:
            raise unsupported(path, f"fewshot_config.{key}")
    if few.get("sampler", "default") not in ("default", "first_n"):
        raise unsupported(path, "fewshot_config.sampler", "supported: default and first_n")
    if few.get("samples") is not None and not isinstance(few["samples"], list):
        raise unsupported(path, "fewshot_config.samples", "supported: a list of rows")
    needed = ("doc_to_text", "doc_to_target", *(["doc_to_choice"] if kind == "multiple_choice" else []))
    for key in needed:
        if content.get(key) is None:
            raise ConfigError(f'{display_path(path)}: the key "{key}" is missing.')
    run = [(key, content.get(key)) for key in FUNCTIONS] + [(f"fewshot_config.{k}", few.get(k)) for k in FUNCTIONS]
    run += [("process_results", content.get("process_results"))] if kind == "multiple_choice" else []
    run += [(key, content.get(key)) for key in ("description", "gen_prefix")]
    run += [("fewshot_config.gen_prefix", few.get("gen_prefix"))]
    for key, value in run:
        _check_field(key, value, path, trusted=trusted)


def _check_field(key: str, value, path: Path, *, trusted: bool) -> None:
    if is_function(value) and not trusted:
        raise ConfigError(
            f"{display_path(path)}: {key} is the Python function {value['function']}, which would be run on this "
            "machine.\nIf you trust it, set trust_functions: true in the source, next to lm-eval."
        )
    if key.endswith(("process_docs", "process_results")) and isinstance(value, str):
        raise ConfigError(f"{display_path(path)}: {key}: expected !function module.name without quotes, got text.")
    if isinstance(value, str) and (wrong := templates.check(value)):
        raise ConfigError(f"{display_path(path)}: {key} is not a valid Jinja template ({wrong}).")


def _plain(value):
    """Return `value` for validation by the schema: keys as text, and functions as written in the file."""
    if is_function(value):
        return f"!function {value['function']}"
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _portable(value, folder: Path, path: Path):
    """Return `value` with files of functions relative to `folder`, so that it is the same in every clone."""
    if is_function(value):
        return value | {"file": value["file"] and os.path.relpath(value["file"], folder)}
    if isinstance(value, dict):
        return {str(key): _portable(v, folder, path) for key, v in value.items()}
    if isinstance(value, list):
        return [_portable(v, folder, path) for v in value]
    if value is None or isinstance(value, str | int | float):
        return value
    kind = type(value).__name__
    raise ConfigError(f"{display_path(path)}: expected text, got {value} (for YAML a {kind}); put it in quotes.")
