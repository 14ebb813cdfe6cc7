"""Task files: one benchmark each, with all its languages; `workflow/tasks/*.yaml` and user-provided ones."""

from collections.abc import Collection
from pathlib import Path

from vernacular.core import validate, yaml
from vernacular.core.errors import ConfigError
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.lm_eval.settings import PROTOCOLS, translate
from vernacular.data.treebank import patterns as treebank

_KINDS = ("hub", "url", "file", "treebank", "lm-eval")  # of sources
_SCHEMA = WORKFLOW / "schemas" / "task.schema.yaml"

# item_type: the keys that `columns` requires; a tuple lists alternatives, of which one suffices
NEEDED = {
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
    "lm_eval": (),  # the source defines the prompt text
}


def load_task(path, protocols: Collection[str] = ()) -> dict:
    """Read a task file, and expand the settings that all languages share for each language.

    The result has the keys of the file, except that `columns`, `source` and `license` are in every `languages[code]`,
    together with `expected_rows` (None if not given): `source` is a list of sources to try in order, with {language}
    replaced. `folder` is the directory of the file. If given, `protocols` are the allowed names.

    Raises:
        ConfigError: One or two lines with file, line, key, found and allowed values.
    """
    path = Path(path)
    content, lines = yaml.read(path)
    schema = validate.schema(_SCHEMA)
    if protocols:
        schema = validate.with_values(schema, ("properties", "protocols", "items"), protocols)
    validate.check(content, lines, schema, path)
    if content["task"] != path.stem:
        at = validate.place(path, lines, ("task",))
        raise ConfigError(f'{at}: expected the file\'s name, "{path.stem}", got "{content["task"]}".')
    task = {k: v for k, v in content.items() if k not in ("columns", "source", "license")}
    task["folder"] = str(path.parent)
    task["languages"] = {
        code: _language(content, code, entry or {}, path, lines) for code, entry in content["languages"].items()
    }
    return task


def task_names(folders) -> dict[str, Path]:
    """Return the task files in `folders` by name; of two with the same name, the one in the later directory."""
    found: dict[str, Path] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ConfigError(f"{folder}: directory of task files not found.")
        found |= {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    return found


def _language(content: dict, code: str, entry: dict, path, lines) -> dict:
    where = ("languages", code)
    sources = entry.get("source", content.get("source"))
    if sources is None:
        at = validate.place(path, lines, where)
        raise ConfigError(f'{at}: the key "source" is missing ({", ".join(_KINDS)}).')
    at = validate.place(path, lines, (*where, "source") if "source" in entry else ("source",))
    sources = [_filled(s, code) for s in (sources if isinstance(sources, list) else [sources])]
    for source in sources:
        kinds = [kind for kind in _KINDS if kind in source]
        if len(kinds) != 1:
            got = " and ".join(kinds) or "none of them"
            raise ConfigError(f"{at}: expected one of {', '.join(_KINDS)}, got {got}.")
        _check_paths(source, at)
    sources = [treebank.resolve(source, path.parent, content["item_type"], at) for source in sources]
    sources, settings = _of_lm_eval(content, sources, path, at)
    columns = content.get("columns", {}) | entry.get("columns", {})
    if any("treebank" in source for source in sources):
        columns = treebank.COLUMNS.get(content["item_type"], {}) | columns
    if not columns and NEEDED[content["item_type"]]:
        raise ConfigError(f'{display_path(path)}: the key "columns" is missing.')
    _check_columns(columns, content["item_type"], validate.place(path, lines, where))
    return settings | {
        "source": sources,
        "columns": columns,
        "expected_rows": entry.get("expected_rows"),
        "license": entry.get("license", content.get("license")),
    }


def _check_paths(value, where: str) -> None:
    """Raise ConfigError for a path in the home directory of an unknown user, before any file is searched for."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_paths(each, where)
    if isinstance(value, str):
        try:
            Path(value).expanduser()
        except RuntimeError:
            raise ConfigError(f"{where}: {value!r} is not a valid file name on this system.") from None


def _of_lm_eval(content: dict, sources: list[dict], path: Path, where: str) -> tuple[list[dict], dict]:
    """Translate an lm-eval source to (sources, {"lm_eval": settings}); return (sources, {}) for all others."""
    named = [source for source in sources if "lm-eval" in source]
    if bool(named) != (content["item_type"] == "lm_eval") or (named and len(sources) > 1):
        raise ConfigError(
            f"{where}: item_type: lm_eval and source lm-eval require each other, with one source per language."
        )
    for key in {key for source in sources for key in source}:
        if key not in ("lm-eval", "trust_functions", "revision") if named else key == "trust_functions":
            raise ConfigError(f"{where}: {key} is not supported {'with' if named else 'without'} lm-eval.")
    if not named:
        return sources, {}
    source, settings = translate(named[0], path.parent)
    protocol = PROTOCOLS[settings["output_type"]]
    if content["protocols"] != [protocol]:
        got = f"got [{', '.join(content['protocols'])}]"
        raise ConfigError(f"{where}: output_type {settings['output_type']}: expected protocols: [{protocol}], {got}.")
    return [source], {"lm_eval": settings}


def _check_columns(columns: dict, item_type: str, where: str) -> None:
    for need in NEEDED[item_type]:
        alternatives = need if isinstance(need, tuple) else (need,)
        if not any(all(key in columns for key in keys.split()) for keys in alternatives):
            wanted = " or ".join(f'"{keys.replace(" ", " and ")}"' for keys in alternatives)
            raise ConfigError(f"{where}: columns: {wanted} is missing, which item_type: {item_type} requires.")
    if "gold" in columns and "gold_format" not in columns:
        raise ConfigError(f'{where}: columns: "gold" requires "gold_format" (letter, number, index, text or labels).')


def _filled(value, language: str):
    """Return `value` with {language} replaced in all its texts."""
    if isinstance(value, dict):
        return {k: _filled(v, language) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, language) for v in value]
    return value.replace("{language}", language) if isinstance(value, str) else value
