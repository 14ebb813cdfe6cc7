"""Task files: one benchmark each, with all its languages; `workflow/tasks/*.yaml` and user-provided ones."""

from collections.abc import Collection
from pathlib import Path

from vernacular.core import validate, yaml
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.fields import as_list
from vernacular.core.languages import base_language, is_unspaced, prompts_file
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.columns import NOT_COLUMNS, columns_of, is_template
from vernacular.data.treebank import patterns as treebank_patterns

_SOURCE_TYPES = ("hub", "url", "file", "treebank")  # of sources
_SCHEMA = WORKFLOW / "schemas" / "task.schema.yaml"
_SHARED = ("columns", "source", "license", "expected_rows", "join", "benchmark")  # keys of all languages, or of one
_IN_ORDER = {"letters", "choice", "generation"}  # protocols that show the options in the order of the dataset
_ORDERED_TYPES = {"question", "passage", "story"}

_LM_EVAL = "a task of lm-eval needs no task file: use {lm_eval: NAME} in evaluations of the config (docs/lm-eval.md)."
_REMOVED_TYPES = ("lm_eval", "verbatim")

# item_type: the keys that `columns` requires; a tuple lists alternatives, of which one suffices
REQUIRED_COLUMNS = {
    "question": ("question", "choices"),
    "passage": ("context", "question", "choices"),
    "story": ("context", "choices"),
    "multi_answer": ("question", ("correct_answers incorrect_answers", "choices")),
    "open_question": ("question", "targets"),
    "summary": ("context", "target"),
    "continuation": ("context", "target"),
    "pair": (("good bad", "choices"),),
    "sentence": ("context", "label"),
    "cloze": ("context", "choices", "gold"),
    "target_word": ("good", "bad"),
    "text": ("context",),
    "translation": ("context", "target"),
    "entities": ("tokens", "tags", "types"),
}


def shows_order(task: dict) -> bool:
    """Return whether options are shown in the order of the dataset, by some protocol of the task."""
    return task["item_type"] in _ORDERED_TYPES and bool(_IN_ORDER & set(task["protocols"]))


def load_task(path, protocols: Collection[str] = ()) -> dict:
    """Read a task file, and expand the settings that all languages share for each language.

    Every `languages[code]` has `columns`, `license`, `expected_rows`, and `source`, a list of sources to try; where
    needed, `join`, the other language with its sources and columns, and `lacks`, wordings that its prompts file does
    not have. `directory` is the file's. `protocols`: the allowed names. Raises ConfigError with file, line, key,
    found and allowed values.
    """
    path = Path(path)
    content, lines = yaml.read(path)
    if isinstance(content, dict) and str(content.get("item_type")) in _REMOVED_TYPES:
        raise validate.mistake(path, lines, ("item_type",), _LM_EVAL)
    schema = validate.schema(_SCHEMA)
    if protocols:
        schema = validate.with_values(schema, ("properties", "protocols", "items"), protocols)
    validate.check(content, lines, schema, path)
    if content["task"] != path.stem:
        expected = f'expected the file\'s name, "{path.stem}", got "{content["task"]}".'
        raise validate.mistake(path, lines, ("task",), expected)
    content = _with_languages_of(content, path, lines)
    task = {k: v for k, v in content.items() if k not in _SHARED}
    task["directory"] = str(path.parent)
    task["languages"] = {
        language: _language(content, language, {"code": entry} if isinstance(entry, str) else entry or {}, path, lines)
        for language, entry in content["languages"].items()
    }
    _check_shown_order(content, path, lines)
    _join(content, task["languages"], path, lines)
    if content["item_type"] == "translation":
        task["languages"] = _with_translations(task["languages"], content.get("join"), path, lines)
    return task


def _with_translations(languages: dict[str, dict], other: str | None, path, lines) -> dict[str, dict]:
    """Return the languages without the one that they are joined with; raise ConfigError if a source is the target."""
    languages = {tag: entry for tag, entry in languages.items() if base_language(tag) != base_language(other or "")}
    for tag, entry in languages.items():
        source, target = (entry["columns"][key] for key in ("source_language", "target_language"))
        if source == target:
            expected = f"expected source_language or target_language other than {tag}, got {source}."
            raise validate.mistake(path, lines, ("columns",), expected)
    return languages


def _with_languages_of(content: dict, path: Path, lines) -> dict:
    """Return the content of a task file with what it takes from that under `languages_of`."""
    if (name := content.get("languages_of")) is None:
        if "languages" not in content:
            raise ConfigError(f'{display_path(path)}: the key "languages" is missing (or languages_of).')
        return content
    others = {file.stem: file for file in path.parent.glob("*.yaml") if file != path}
    if name not in others:
        reason = f'task file "{name}.yaml" not found beside this one.{suggest(name, others)}'
        raise validate.mistake(path, lines, ("languages_of",), reason)
    base, base_lines = yaml.read(others[name])
    validate.check(base, base_lines, validate.schema(_SCHEMA), others[name])
    shared = {key: base[key] for key in ("source", "license", "expected_rows") if key in base}
    return shared | content | {"languages": base.get("languages", {}) | content.get("languages", {})}


def task_names(directories) -> dict[str, Path]:
    """Return the task files in `directories` by name; of two with the same name, the one in the later directory."""
    task_files: dict[str, Path] = {}
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise ConfigError(f"{directory}: directory of task files not found.")
        task_files |= {file.stem: file for file in sorted(directory.glob("*.yaml"))}
    return task_files


def _check_shown_order(content: dict, path, lines) -> None:
    """Raise ConfigError if the correct option is shown in the same place of every item."""
    if not shows_order(content):
        return
    columns = {("columns",): content.get("columns", {})}
    entries = {language: entry for language, entry in content["languages"].items() if isinstance(entry, dict)}
    columns |= {("languages", code, "columns"): entry.get("columns", {}) for code, entry in entries.items()}
    for key_path, mapping in columns.items():
        if isinstance(mapping.get("gold"), dict) and "value" in mapping["gold"]:
            shown = ", ".join(sorted(_IN_ORDER & set(content["protocols"])))
            reason = f"the correct option would have one place in all items of {shown}."
            advice = "Use item_type: multi_answer, which shuffles the options, or another protocol."
            raise validate.mistake(path, lines, (*key_path, "gold"), f"{reason} {advice}")


def _join(content: dict, languages: dict[str, dict], path, lines) -> None:
    """Add to each language with `join` the sources and columns of the other one; raise ConfigError if it is unknown."""
    for language, entry in languages.items():
        own = content["languages"][language]
        key_path = ("languages", language, "join") if isinstance(own, dict) and "join" in own else ("join",)
        other = own["join"] if key_path[1:] else content.get("join")
        if other is None:
            continue
        location = validate.error_location(path, lines, key_path)
        if other not in languages:
            raise ConfigError(f'{location}: language "{other}" not found in this file.{suggest(other, languages)}')
        if "id" not in entry["columns"]:
            raise ConfigError(f'{location}: columns: "id" is missing, by which the languages are joined.')
        columns = {"id": languages[other]["columns"].get("id")}
        entry["join"] = {"language": other, "source": languages[other]["source"], "columns": columns}


def _language(content: dict, code: str, entry: dict, path, lines) -> dict:
    key_path = ("languages", code)
    location = validate.error_location(path, lines, key_path)
    sources = entry.get("source", content.get("source"))
    if sources is None:
        raise ConfigError(f'{location}: the key "source" is missing ({", ".join(_SOURCE_TYPES)}).')
    if "{code}" in str(sources) and "code" not in entry:
        raise ConfigError(f'{location}: the key "code" is missing, which its source contains as {{code}}.')
    names = {"language": code, "code": entry.get("code", "")}
    sources = [_fill(source, names) for source in as_list(sources)]
    place = validate.error_location(path, lines, (*key_path, "source") if "source" in entry else ("source",))
    for source in sources:
        source_types = [source_type for source_type in _SOURCE_TYPES if source_type in source]
        if len(source_types) != 1:
            given_types = " and ".join(source_types) or "none of them"
            raise ConfigError(f"{place}: expected one of {', '.join(_SOURCE_TYPES)}, got {given_types}.")
        _check_paths(source, place)
    sources = [treebank_patterns.resolve(source, path.parent, content["item_type"], place) for source in sources]
    columns = content.get("columns", {}) | entry.get("columns", {})
    if any("treebank" in source for source in sources):
        columns = treebank_patterns.COLUMNS.get(content["item_type"], {}) | columns
    if not columns:
        raise ConfigError(f'{display_path(path)}: the key "columns" is missing.')
    benchmark = entry.get("benchmark", content.get("benchmark"))
    columns, lacking = _with_wordings(columns, code, path.parent)
    if content["item_type"] == "translation":
        columns = {"source_language": code, "target_language": code} | columns
    if content["item_type"] == "entities":
        columns = columns | {"joiner": "" if is_unspaced(code) else " "}
    _check_columns(columns, content["item_type"], location)
    for field, value in columns.items():
        if field not in (*NOT_COLUMNS, "where", "extra"):
            _check_specs(value, f"{location}: columns.{field}")
    return {
        "source": sources,
        "columns": columns,
        "expected_rows": entry.get("expected_rows", content.get("expected_rows")),
        "license": entry.get("license", content.get("license")),
        **({"lacks": lacking} if lacking else {}),
        **({"benchmark": _fill(benchmark, names)} if benchmark else {}),
    }


def _check_specs(value, location: str) -> None:
    """Raise ConfigError for a template that cannot be filled, and for a mapping with contradictory keys."""
    for spec in as_list(value):
        if isinstance(spec, dict) and len(spec.keys() & {"column", "value", "labels", "wording"}) != 1:
            raise ConfigError(f"{location}: expected one of column, value, labels, wording, got {_listed(spec)}.")
        if isinstance(spec, dict) and (alone := spec.keys() & {"values", "repair"}) and "column" not in spec:
            raise ConfigError(f'{location}: {min(alone)} requires the key "column".')
        if isinstance(spec, str):
            try:
                columns_of(spec)
            except ValueError as error:
                raise ConfigError(f'{location}: invalid template "{spec}" ({error}).') from None


def _listed(names) -> str:
    return ", ".join(map(str, names)) or "none of them"


def _with_wordings(columns: dict, language: str, directory: Path) -> tuple[dict, list[str]]:
    """Return `columns` with the words of the language (`wordings` of its prompts file), and names of missing ones."""
    needed = any(isinstance(value, dict) and value.keys() & {"labels", "wording"} for value in columns.values())
    wordings = _wordings(language, directory) if needed else {}
    filled, lacking = dict(columns), []
    for field, spec in columns.items():
        # pairs: their order is that of the options, and rules sort the keys of mappings
        if isinstance(spec, dict) and isinstance(spec.get("labels"), dict):
            filled[field] = {"labels": [[name, text] for name, text in spec["labels"].items()]}
        elif isinstance(spec, dict) and "labels" in spec:
            filled[field] = {"labels": [[name, wordings.get(name, name)] for name in spec["labels"]]}
            lacking += [name for name in spec["labels"] if name not in wordings]
        elif isinstance(spec, dict) and "wording" in spec and spec["wording"] in wordings:
            text = wordings[spec["wording"]]
            filled[field] = text if is_template(text) else {"value": text}
        elif isinstance(spec, dict) and "wording" in spec:
            lacking.append(spec["wording"])
    return filled, lacking


def _wordings(language: str, directory: Path) -> dict[str, str]:
    wordings: dict[str, str] = {}
    for each in (WORKFLOW / "prompts", directory / "prompts"):
        path = prompts_file(language, each)
        content, lines = yaml.read(path) if path else ({}, {})
        own = content.get("wordings", {}) if isinstance(content, dict) else {}
        if not isinstance(own, dict) or not all(isinstance(text, str) and text.strip() for text in own.values()):
            expected = "expected a mapping with one `name: text` per row."
            raise validate.mistake(path, lines, ("wordings",), expected)
        wordings |= own
    return wordings


def _check_paths(value, location: str) -> None:
    """Raise ConfigError for a path in the home directory of an unknown user, before any file is searched for."""
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_paths(entry, location)
    if isinstance(value, str):
        try:
            Path(value).expanduser()
        except RuntimeError:
            raise ConfigError(f"{location}: {value!r} is not a valid file name on this system.") from None


def _check_columns(columns: dict, item_type: str, location: str) -> None:
    for requirement in REQUIRED_COLUMNS[item_type]:
        alternatives = requirement if isinstance(requirement, tuple) else (requirement,)
        if not any(all(key in columns for key in keys.split()) for keys in alternatives):
            missing = " or ".join(f'"{keys.replace(" ", " and ")}"' for keys in alternatives)
            raise ConfigError(f"{location}: columns: {missing} is missing, which item_type: {item_type} requires.")
    if "gold" in columns and "gold_format" not in columns:
        raise ConfigError(
            f'{location}: columns: "gold" requires "gold_format" (letter, number, index, text or labels).'
        )


def _fill(value, names: dict[str, str]):
    """Return `value` with {language} and {code} replaced in all its texts."""
    if isinstance(value, dict):
        return {k: _fill(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, names) for v in value]
    for name, text in names.items():
        value = value.replace(f"{{{name}}}", text) if isinstance(value, str) else value
    return value
