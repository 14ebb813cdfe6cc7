"""A benchmark by its name on the Hub: `owner/name[/ID][@revision]` with an `eval.yaml`, as Inspect and EuroEval run it.

Its task becomes the content of a task file: questions with options (scorer `choice`), or free answers (`exact`, `f1`,
or a judge). Prompts are those of this workflow, which its note states. What a task file cannot express is an error.
"""

import re
import tempfile
from pathlib import Path

import yaml

from vernacular.core.errors import ConfigError, DataError, first_of, suggest
from vernacular.core.fields import as_list
from vernacular.core.fingerprint import fingerprint
from vernacular.core.names import language_problem, quoted
from vernacular.core.paths import display_path
from vernacular.core.yaml import read
from vernacular.data.tasks import load_task

PREFIX = "hub:"  # of a task in a config
_REFERENCE = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:/([^@]+))?(?:@([^@]+))?")
_JUDGED = ("model_graded_qa", "model_graded_fact")
_METRICS = {"exact": "exact_match", "f1": "token_f1"}
_SCORERS = ({"choice"}, {*_METRICS}, {*_JUDGED})  # each of one kind of task
_FIELDS = ("input", "target", "choices", "metadata")
_PROMPTS = ("prompt_template", "system_message", "user_message")  # solvers that only change the prompt
_KEYS = ("id", "config", "split", "field_spec", "shuffle_choices", "epochs", "epoch_reducer", "solvers", "scorers")


def benchmark(reference: str, language: str | None = None) -> tuple[dict, bool] | None:
    """Return the content of a task file, and whether its answers need a judge; None without an `eval.yaml`.

    Raises:
        DataError: The repository or the task is not found, or the task cannot be expressed; with the reason.
    """
    if not (match := _REFERENCE.fullmatch(reference)):
        raise DataError(
            f"{quoted(reference)}: expected owner/name of a dataset on the Hub, owner/name/ID or …@REVISION."
        )
    repository, name, revision = match.groups()
    from vernacular.data.hub import dataset_card, snapshot  # datasets and pandas, which few configs need

    directory = snapshot(repository, revision, ["eval.yaml", "README.md", ".gitattributes"])
    file, place = directory / "eval.yaml", f"{repository}/eval.yaml"
    if not file.is_file():
        return None
    try:
        content, _ = read(file)
    except ConfigError as error:
        raise DataError(str(error).replace(display_path(file), place)) from None
    tasks = content.get("tasks") if isinstance(content, dict) else None
    if not isinstance(tasks, list) or not tasks or not all(isinstance(each, dict) for each in tasks):
        raise DataError(f"{place}: expected a list of tasks under the key tasks.")
    ids = [str(each.get("id", number)) for number, each in enumerate(tasks, start=1)]
    if name is None and len(tasks) > 1:
        raise DataError(f"{place}: has several tasks ({first_of(ids, 8)}); name one: {repository}/{ids[0]}")
    if name is not None and name not in ids:
        raise DataError(f'{place}: task "{name}" not found.{suggest(name, ids)}')
    if name is not None and ids.count(name) > 1:
        raise DataError(f'{place}: several tasks are called "{name}"; write a task file (docs/tasks.md).')
    chosen = tasks[ids.index(name) if name is not None else 0]
    chosen = {key: value for key, value in chosen.items() if value is not None}  # as if it were not there
    place = f"{place}, task {name or ids[0]}"
    stated = chosen.get("languages", content.get("languages")) or dataset_card(directory, repository).get("language")
    return _task(repository, revision, chosen, language or _language(stated, place), name, place)


def load_benchmark(reference: str, language: str | None, protocols) -> tuple[dict, bool]:
    """Return a task as `load_task` does, and whether it needs a judge. Raises DataError."""
    if (found := benchmark(reference, language)) is None:
        raise DataError(f"{reference}: has no eval.yaml; write a task file, or use `vernacular run` with --columns.")
    content, needs_judge = found
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"{content['task']}.yaml")
        path.write_text(yaml.safe_dump(content, allow_unicode=True), "utf-8")
        try:
            task = load_task(path, protocols)
        except ConfigError as error:
            location = rf"(?m)^{re.escape(display_path(path))}(, line \d+)?: "
            raise DataError(re.sub(location, f"{reference}: ", str(error))) from None
    return task | {"directory": "."}, needs_judge  # the same in every process, which names of results depend on


def _language(stated, place: str) -> str:
    tags = [str(each) for each in as_list(stated or [])]
    if len(tags) != 1 or language_problem(tags[0]):
        found = f"found {first_of(tags, 4)}" if tags else "none is stated"
        raise DataError(f"{place}: name the language of the items, only one ({found}).")
    return tags[0]


def _names(entries, place: str, key: str) -> dict[str, dict]:
    """Return the arguments of solvers or scorers by name."""
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("name"), str) and isinstance(e.get("args") or {}, dict)
        for e in entries
    ):
        raise DataError(f"{place}: {key}: expected a list of entries with a name, and a mapping under args.")
    return {entry["name"]: entry.get("args") or {} for entry in entries}


def _task(
    repository: str, revision: str | None, stated: dict, language: str, name: str | None, place: str
) -> tuple[dict, bool]:
    fields = stated.get("field_spec")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(key), str) for key in ("input", "target")):
        raise DataError(f"{place}: field_spec: expected the columns input and target.")
    solvers, scorers = (_names(stated.get(key), place, key) for key in ("solvers", "scorers"))
    choices, target = fields.get("choices"), fields["target"]
    texts = {key: stated[key] for key in ("config", "split") if key in stated}
    texts |= {} if isinstance(choices, list) else {"field_spec.choices": choices or ""}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise DataError(f"{place}: {key}: expected text, got {quoted(value)}.")
    scorer = next((each for each in ("choice", *_METRICS, *_JUDGED) if each in scorers), None)
    has_fixed_target = target.startswith("literal:")
    unknown = {*solvers} - {"generate", "multiple_choice", *_PROMPTS}
    other_keys = sorted(map(str, stated.keys() - {*_KEYS, "languages"}))
    other_keys += sorted(f"field_spec.{key}" for key in fields.keys() - {*_FIELDS, "input_image"})
    problems = {
        f"the key {first_of(other_keys or [''])}": other_keys,
        "images in its items": fields.get("input_image"),
        "several epochs": str(stated.get("epochs", 1)) != "1" or stated.get("epoch_reducer"),
        f"the solver {min(unknown, default='')}": unknown,
        "options of the solver multiple_choice": {*solvers.get("multiple_choice", {})} & {"cot", "multiple_correct"},
        f"its scorers ({first_of(sorted(scorers), 4)})": not any(kind >= {*scorers} for kind in _SCORERS)
        or (scorer == "choice") != bool(choices),
        "one target for all items": has_fixed_target,
    }
    if problem := next((text for text, applies in problems.items() if applies), None):
        raise DataError(f"{place}: {problem} cannot be expressed here; see docs/tasks.md for task files.")
    source = {"hub": repository, "split": stated.get("split", "test")}
    source |= {"config": stated["config"]} if stated.get("config", "default") != "default" else {}
    source |= {"revision": revision} if revision else {}
    from vernacular.data.load import read_source  # imports SciPy

    rows = read_source(source, Path())
    columns = {"question": fields["input"]}
    if choices:
        is_index = any(type(row.get(target)) in (int, float) for row in rows)  # with empty cells, Parquet has floats
        columns |= {"choices": choices, "gold": target, "gold_format": "index" if is_index else "letter"}
        kind = {"item_type": "question", "protocols": ["letters", "options", "choice", "generation"]}
        metric = "accuracy"
    else:
        columns |= {"targets": target}
        kind = {"item_type": "open_question", "protocols": ["generation"]}
        metric = _METRICS.get(scorer)
    left_out = [f"its {each}" for each in _PROMPTS if each in solvers]
    left_out += ["its order of the options, which it shuffles"] * bool(stated.get("shuffle_choices"))
    slug = re.sub(r"[^a-z0-9]+", "_", "/".join(filter(None, (repository, name))).lower()).strip("_")[:60].rstrip("_")
    slug += f"_{fingerprint(name)[:8]}" if name and not name.isascii() else ""  # of which nothing may remain
    task = {"task": slug, **kind, "columns": columns, "languages": {language: {"source": source}}}
    task |= {"note": f"Prompts are those of Vernacular, without {' and '.join(left_out)}."} if left_out else {}
    if stated.get("id") and metric and not left_out:
        described = {"dataset": repository, "task_id": str(stated["id"])}
        task["benchmark"] = described | {"protocol": kind["protocols"][0], "metric": metric}
    return task, scorer in _JUDGED
