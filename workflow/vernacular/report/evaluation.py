"""Data files of one evaluation: items in blocks, each model's results, and the distributions of the task view.

`e{k}/task`      metadata, values by category, outcomes and histograms per model
`e{k}/shots`     few-shot prefixes, stored once for all items and models
`e{k}/i{b}`      block b of the items, as `item_details.shown_items` returns them
`e{k}/m{j}`      model j: a short row per item, for listing, sorting and search
`e{k}/m{j}b{b}`  model j, block b: scores, values, flags, outputs and token surprisals of each item
"""

import functools
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core import artifacts
from vernacular.core.metadata import Diagnosis, Profile
from vernacular.core.paths import publishable
from vernacular.core.tables import by_items, iter_rows, rows_of
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.classification import GOLD
from vernacular.metrics.metric import COUNT
from vernacular.metrics.schema import TASK_RESULTS, value_arrays
from vernacular.protocols.registry import PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.report import item_details
from vernacular.report.data_files import Row, record, round_all, round_significant, write_data_file
from vernacular.report.distributions import SurprisalProfile, calibration, histograms, surprisal_profiles

ITEMS_PER_FILE = 250  # items per data file
FILES_AT_A_TIME = 10  # whose items are in memory
_MAX_LISTED_CHARS = 160  # characters of a generated output in the item list; the item view shows all of it
_ITEM_COLUMNS = ["item_id", "category", "prompt", "choices", "gold"]
_OUTCOME_COLUMNS = ["choices", "gold", "option_scores", "correct", "tie", "metrics", "flags"]
_LIST_COLUMNS = ["item_id", "choices", "predicted_indices", "prediction"]
_GENERATION_COLUMNS = ["item_id", "role", "raw_output", "output", "finish_reason", "n_tokens", "rendered"]
_GENERATION_COLUMNS += ["reasoning", "think_state", "n_reasoning_tokens"]
_SCORE_COLUMNS = ["item_id", "role", "offsets", "logprobs", "rendered"]
# what the rows of a model are shown with: correct options and wrapped text of its items, texts of its spans
_SHOWN = pa.schema([("item_id", pa.string()), ("gold", pa.list_(pa.int32())), ("wrapped", pa.string())])
_SPANS = pa.schema([("item_id", pa.string()), ("role", pa.string()), ("text", pa.string()), ("start", pa.int64())])


def write_evaluation(out: Path, number: int, evaluation: str, models: dict[int, str], results: Path) -> tuple:
    """Write the data files of `evaluation` except `task`; models: number -> name.

    Returns (content of the task file, position of each item, metadata of each model's run). Rows are Python objects for
    `FILES_AT_A_TIME` files only; in memory are the requests of the evaluation, and then one model's results, as tables.
    """
    requests = results / "requests" / f"{evaluation}.parquet"
    protocol = PROTOCOLS[artifacts.metadata(requests, REQUESTS).protocol]
    task: dict = {"outcomes": [], "calibration": [], "models": []}
    paths = {model: results / name / "tasks" / f"{evaluation}.parquet" for model, name in models.items()}
    metadata = {model: artifacts.metadata(path, TASK_RESULTS) for model, path in paths.items()}
    items = _all_items(paths.values())
    positions = {item: position for position, item in enumerate(items["item_id"].to_pylist())}
    shown = _write_items(out, f"e{number}", items, requests, protocol.displayed_roles)
    outcomes_by_model, profiles, size = {}, {}, FILES_AT_A_TIME * ITEMS_PER_FILE
    for model, name in models.items():
        rows = artifacts.read(paths[model], TASK_RESULTS)
        if not rows.num_rows:
            continue
        order = np.array([positions[item] for item in rows["item_id"].to_pylist()])
        if (np.diff(order) < 0).any():
            rows = rows.take(np.argsort(order))
        outcomes = item_details.classify_outcomes(iter_rows(rows.select(_OUTCOME_COLUMNS), size))
        outcomes_by_model[model] = outcomes
        task["models"].append(model)
        counts = [outcomes.outcomes.count(code) for code in range(7)]
        task["outcomes"].append(Row.Outcomes(model=model, counts=counts, flagged=sum(outcomes.flagged)))
        item_rows = [
            _list_item(positions, row, outcomes, i) for i, row in enumerate(iter_rows(rows.select(_LIST_COLUMNS), size))
        ]
        content = {"measure": outcomes.measure, "higher": outcomes.higher_is_better, "rows": item_rows}
        write_data_file(out, f"e{number}/m{model}", record("Results", content))
        profile = SurprisalProfile()
        outputs = _read_outputs(results / name, evaluation)
        _write_details(out, f"e{number}/m{model}", rows, [outputs, *shown], positions, profile)
        # the scores of classes are mutual information, unless letters stand for them
        if not protocol.generates and (protocol.letters or GOLD not in value_arrays(rows)):
            calibrated = calibration(model, iter_rows(rows.select(["option_scores", "correct"]), size))
            task["calibration"] += [calibrated] if calibrated else []
        if not protocol.letters:  # the scored text of a letter is the letter
            profiles[model] = profile
    task |= {"letters": protocol.letters, "generates": protocol.generates}
    task |= {"items": len(items), "block": ITEMS_PER_FILE, "distributions": histograms(outcomes_by_model)}
    task["surprisal"] = surprisal_profiles(profiles)
    task["dataset"] = next((run.dataset for run in metadata.values() if run.dataset), None)
    task["diagnoses"] = [_diagnosis(model, each) for model, run in metadata.items() for each in run.diagnoses]
    task["answers"] = [_answers(model, run.profile) for model, run in metadata.items() if run.profile]
    return task, positions, metadata


def _all_items(paths: Iterable[Path]) -> pa.Table:
    """Return the items of all models, each from the first model that has it."""
    tables = [TASK_RESULTS.schema.empty_table().select(_ITEM_COLUMNS)]
    for path in paths:
        table = artifacts.read(path, TASK_RESULTS, columns=_ITEM_COLUMNS)
        known = [pc.is_in(table["item_id"], value_set=other["item_id"].combine_chunks()) for other in tables]
        new = table.filter(pc.invert(functools.reduce(pc.or_, known)))
        tables += [new] if new.num_rows else []
    return pa.concat_tables(tables)


def _write_items(
    out: Path, name: str, items: pa.Table, requests: Path, displayed_roles: tuple[str, ...]
) -> tuple[pa.Table, pa.Table]:
    """Write the items in blocks, and their few-shot prefixes; return tables of _SHOWN and _SPANS."""
    # few-shot examples are stored once
    requests = artifacts.read(
        requests, REQUESTS, columns=item_details.COLUMNS, dictionary_columns=("prefix", "messages")
    )
    shown, spans = [_SHOWN.empty_table()], [_SPANS.empty_table()]
    prefix_numbers: dict[str, int] = {}
    for number, part in enumerate(by_items(items, [requests], FILES_AT_A_TIME * ITEMS_PER_FILE)):
        shown_rows, own_spans = item_details.shown_items(*map(rows_of, part), displayed_roles, prefix_numbers)
        for index, start in enumerate(range(0, len(shown_rows), ITEMS_PER_FILE)):
            block = number * FILES_AT_A_TIME + index
            write_data_file(out, f"{name}/i{block}", shown_rows[start : start + ITEMS_PER_FILE])
        wrapped = [item_details.wrapped_text(item) for item in shown_rows]
        shown.append(pa.table([part[0]["item_id"], part[0]["gold"], pa.array(wrapped, pa.string())], schema=_SHOWN))
        columns = [[*key, *value] for key, value in own_spans.items()]
        spans.append(pa.table(list(zip(*columns, strict=True)), schema=_SPANS) if columns else spans[0])
    write_data_file(out, f"{name}/shots", list(prefix_numbers))
    return pa.concat_tables(shown), pa.concat_tables(spans)


def _list_item(positions: dict[str, int], row: dict, outcomes: item_details.ItemOutcomes, i: int):
    """Return the Row.Result of an item: choices by index, generated text truncated."""
    prediction = (
        row["predicted_indices"]
        if row["predicted_indices"] and row["choices"]
        else (row["prediction"] or "")[:_MAX_LISTED_CHARS]
    )
    return Row.Result(
        position=positions[row["item_id"]],
        outcome=outcomes.outcomes[i],
        severity=round_significant(outcomes.severity[i], 4),
        value=round_significant(outcomes.measure_values[i]),
        flagged=int(outcomes.flagged[i]),
        prediction=prediction,
    )


def _write_details(
    out: Path, name: str, rows: pa.Table, tables: list[pa.Table], positions: dict, profile: SurprisalProfile
) -> None:
    """Write the details of one model's items in blocks, and add their surprisals to `profile`.

    Args:
        rows: TASK_RESULTS, by position.
        tables: Outputs, as `_read_outputs` returns them; of _SHOWN; of _SPANS.
    """
    metric_names = [name for name in value_arrays(rows) if COUNT not in name]
    entries = _detail_entries(rows, tables, positions, metric_names, profile)
    for block, group in itertools.groupby(entries, key=lambda entry: entry.position // ITEMS_PER_FILE):
        details, wrappers = [], []
        for entry in group:  # the chat template's text around the item is the same for most items: stored once
            if entry.wrapper is not None:
                if entry.wrapper not in wrappers:
                    wrappers.append(entry.wrapper)
                entry = entry._replace(wrapper=wrappers.index(entry.wrapper))
            details.append(entry)
        content = {"values": metric_names, "wrappers": wrappers, "rows": details}
        write_data_file(out, f"{name}b{block}", record("Details", content))


def _detail_entries(rows, tables, positions, metric_names: list[str], profile: SurprisalProfile) -> Iterator:
    """Yield the Row.Detail of each item, with a Row.Wrapper in place of its number."""
    columns = ["item_id", "choices", "option_scores", "prediction", "metrics", "flags"]
    roles = set(tables[-1]["role"].unique().to_pylist())
    for part in by_items(rows.select(columns), tables, FILES_AT_A_TIME * ITEMS_PER_FILE):
        item_rows, outputs, shown, span_rows = rows_of(part[0]), part[1], rows_of(part[2]), rows_of(part[3])
        spans = {(row["item_id"], row["role"]): (row["text"], row["start"]) for row in span_rows}
        wrapped = {row["item_id"]: row["wrapped"] for row in shown}
        generated, tokens, template_texts = _outputs_by_item(outputs, roles, spans, wrapped)
        profile.add(tokens, spans, {row["item_id"]: row["gold"] for row in shown})
        for row in item_rows:
            item_id = row["item_id"]
            yield Row.Detail(
                position=positions[item_id],
                scores=round_all(row["option_scores"]),
                values=round_all([row["metrics"].get(key) for key in metric_names]),
                flags=publishable(row["flags"]),  # may quote a server
                prediction=row["prediction"] if row["choices"] else None,
                output=generated.get(item_id),
                tokens=tokens.get(item_id, []),
                wrapper=template_texts.get(item_id),
            )


def _read_outputs(model_dir: Path, evaluation: str) -> pa.Table:
    """Return the columns of the generations that are shown, or else of the scores."""
    path = model_dir / "generations" / f"{evaluation}.parquet"
    if path.exists():
        return artifacts.read(path, GENERATIONS, columns=_GENERATION_COLUMNS)
    return artifacts.read(model_dir / "scores" / f"{evaluation}.parquet", SCORES, columns=_SCORE_COLUMNS)


def _outputs_by_item(table: pa.Table, roles: set[str], spans: dict, wrapped: dict) -> tuple[dict, dict, dict]:
    """Return generated outputs, token surprisals, and the chat template's text around the prompt; each by item."""
    if "raw_output" in table.column_names:
        rows, samples = [], {}
        for row in rows_of(table):
            rows += [] if row["item_id"] in samples else [row]  # the first sample is shown, and the others listed
            samples.setdefault(row["item_id"], []).append(row["output"])
        outputs = {
            row["item_id"]: Row.Output(
                text=row["output"],
                complete=None if row["raw_output"] == row["output"] else row["raw_output"],
                reason=row["finish_reason"],
                n_tokens=row["n_tokens"],
                reasoning=row["reasoning"],
                state=row["think_state"],
                n_reasoning=row["n_reasoning_tokens"],
                others=samples[row["item_id"]][1:],
            )
            for row in rows
        }
        wrappers = {row["item_id"]: _split_template(row["rendered"], wrapped.get(row["item_id"])) for row in rows}
        return outputs, {}, wrappers
    tokens = item_details.pack_surprisals(table, roles, lambda item, role: spans.get((item, role)))
    wrappers = {}
    if table["rendered"].null_count < table.num_rows:
        for row in rows_of(table.select(["item_id", "role", "rendered", "offsets"])):
            if row["rendered"] is not None and row["offsets"] and row["role"] in roles:
                before = row["rendered"][: row["offsets"][0][0]]
                wrappers.setdefault(row["item_id"], _split_template(before, wrapped.get(row["item_id"])))
    return {}, tokens, wrappers


def _split_template(rendered: str | None, text: str | None):
    """Return the Row.Wrapper of the chat template's text around `text`; all before it if it lacks that text."""
    if rendered is None:
        return None
    start = rendered.rfind(text.strip()) if text and text.strip() else -1
    if start < 0:
        return Row.Wrapper(before=rendered, after=None)
    return Row.Wrapper(before=rendered[:start], after=rendered[start + len(text.strip()) :])


def _diagnosis(model: int, diagnosis: Diagnosis):
    """Return the Row.Diagnosis of a model."""
    texts = {name: publishable(getattr(diagnosis, name)) for name in ("sentence", "threshold")}
    counts = {name: getattr(diagnosis, name) for name in ("code", "severity", "count", "n")}
    examples = [Row.Example(item=each.item, text=publishable(each.text)) for each in diagnosis.examples]
    return Row.Diagnosis(model=model, examples=examples, **texts, **counts)


def _answers(model: int, profile: Profile):
    """Return the Row.Answers of a model."""
    return Row.Answers(
        model=model,
        labels=[Row.Label(label=each.label, predicted=each.predicted, gold=each.gold) for each in profile.labels],
        without=profile.without_label,
        confusion=profile.confusion,
        mass=round_significant(profile.label_mass),
        tokens=[Row.TopToken(token=token, items=items) for token, items in profile.top_tokens.items()],
        lengths=round_all(profile.lengths),
    )
