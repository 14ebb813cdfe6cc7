"""Task files: one benchmark each, with all its languages; `workflow/tasks/*.yaml` and user-provided ones."""

from collections.abc import Collection
from pathlib import Path

from vernacular.core import validate, yaml
from vernacular.core.errors import ConfigError
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.treebank import patterns as treebank_patterns

_SOURCE_TYPES = ("hub", "url", "file", "treebank")  # of sources
_SCHEMA = WORKFLOW / "schemas" / "task.schema.yaml"

_LM_EVAL = "a task of lm-eval needs no task file: use {lm_eval: NAME} in evaluations of the config (docs/lm-eval.md)."
_REMOVED_TYPES = ("lm_eval", "verbatim")

# item_type: the keys that `columns` requires; a tuple lists alternatives, of which one suffices
REQUIRED_COLUMNS = {
    "question": ("question", "choices"),
    "passage": ("context", "question", "choices"),
    "story": ("context", "choices"),
    "multi_answer": ("question", ("correct_answers incorrect_answers", "choices")),
    "summary": ("context", "target"),
    "continuation": ("context", "target"),
    "pair": (("good bad", "choices"),),
    "sentence": ("context", "label"),
    "cloze": ("context", "choices", "gold"),
    "target_word": ("good", "bad"),
    "text": ("context",),
}


def load_task(path, protocols: Collection[str] = ()) -> dict:
    """Read a task file, and expand the settings that all languages share for each language.

    The result has the keys of the file, except that `columns`, `source` and `license` are in every `languages[code]`,
    together with `expected_rows` (None if not given): `source` is a list of sources to try in order, with {language}
    replaced. `directory` is the directory of the file. If given, `protocols` are the allowed names.

    Raises:
        ConfigError: One or two lines with file, line, key, found and allowed values.
    """
    path = Path(path)
    content, lines = yaml.read(path)
    if isinstance(content, dict) and str(content.get("item_type")) in _REMOVED_TYPES:
        raise ConfigError(f"{validate.error_location(path, lines, ('item_type',))}: {_LM_EVAL}")
    schema = validate.schema(_SCHEMA)
    if protocols:
        schema = validate.with_values(schema, ("properties", "protocols", "items"), protocols)
    validate.check(content, lines, schema, path)
    if content["task"] != path.stem:
        location = validate.error_location(path, lines, ("task",))
        raise ConfigError(f'{location}: expected the file\'s name, "{path.stem}", got "{content["task"]}".')
    task = {k: v for k, v in content.items() if k not in ("columns", "source", "license")}
    task["directory"] = str(path.parent)
    task["languages"] = {
        code: _language(content, code, entry or {}, path, lines) for code, entry in content["languages"].items()
    }
    return task


def task_names(directories) -> dict[str, Path]:
    """Return the task files in `directories` by name; of two with the same name, the one in the later directory."""
    task_files: dict[str, Path] = {}
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise ConfigError(f"{directory}: directory of task files not found.")
        task_files |= {file.stem: file for file in sorted(directory.glob("*.yaml"))}
    return task_files


def _language(content: dict, code: str, entry: dict, path, lines) -> dict:
    key_path = ("languages", code)
    sources = entry.get("source", content.get("source"))
    if sources is None:
        location = validate.error_location(path, lines, key_path)
        raise ConfigError(f'{location}: the key "source" is missing ({", ".join(_SOURCE_TYPES)}).')
    location = validate.error_location(path, lines, (*key_path, "source") if "source" in entry else ("source",))
    sources = [_fill_language(source, code) for source in (sources if isinstance(sources, list) else [sources])]
    for source in sources:
        source_types = [source_type for source_type in _SOURCE_TYPES if source_type in source]
        if len(source_types) != 1:
            given_types = " and ".join(source_types) or "none of them"
            raise ConfigError(f"{location}: expected one of {', '.join(_SOURCE_TYPES)}, got {given_types}.")
        _check_paths(source, location)
    sources = [treebank_patterns.resolve(source, path.parent, content["item_type"], location) for source in sources]
    columns = content.get("columns", {}) | entry.get("columns", {})
    if any("treebank" in source for source in sources):
        columns = treebank_patterns.COLUMNS.get(content["item_type"], {}) | columns
    if not columns:
        raise ConfigError(f'{display_path(path)}: the key "columns" is missing.')
    _check_columns(columns, content["item_type"], validate.error_location(path, lines, key_path))
    return {
        "source": sources,
        "columns": columns,
        "expected_rows": entry.get("expected_rows"),
        "license": entry.get("license", content.get("license")),
    }


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


def _fill_language(value, language: str):
    """Return `value` with {language} replaced in all its texts."""
    if isinstance(value, dict):
        return {k: _fill_language(v, language) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill_language(v, language) for v in value]
    return value.replace("{language}", language) if isinstance(value, str) else value
