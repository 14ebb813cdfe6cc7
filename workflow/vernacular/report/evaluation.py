"""Data files of one evaluation: items in blocks, each model's results, and the distributions of the task view.

`e{k}/task`      metadata, values by category, outcomes and histograms per model
`e{k}/shots`     few-shot prefixes, stored once for all items and models
`e{k}/i{b}`      block b of the items, in the format of `item_details.EvaluationItems.items`
`e{k}/m{j}`      model j: a short row per item, for listing, sorting and search
`e{k}/m{j}b{b}`  model j, block b: scores, values, flags, outputs and token surprisals of each item
"""

from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.publication import publishable
from vernacular.core.tables import rows_of
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.registry import PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.report.data_files import round_all, round_significant, write_data_file
from vernacular.report.distributions import calibration, histograms, surprisal_profiles
from vernacular.report.item_details import COLUMNS, EvaluationItems, ItemOutcomes, classify_outcomes, pack_surprisals

ITEMS_PER_FILE = 250  # items per data file
_MAX_LISTED_CHARS = 160  # characters of a generated output in the item list; the item view shows all of it


def write_evaluation(out: Path, number: int, evaluation: str, models: dict[int, str], results: Path) -> tuple:
    """Write the data files of `evaluation` except `task`; models: number -> name.

    Returns (content of the task file, position of each item, metadata of each model's run). Holds the prompts of the
    evaluation and one model's rows at a time in memory.
    """
    requests = results / "requests" / f"{evaluation}.parquet"
    protocol = PROTOCOLS[artifacts.metadata(requests)["protocol"]]
    items = EvaluationItems(protocol.displayed_roles)
    metadata, task = {}, {"outcomes": [], "calibration": [], "models": []}
    items.add_requests(rows_of(artifacts.read(requests, REQUESTS).select(COLUMNS)))
    outcomes_by_model, tokens_by_model = {}, {}
    for model, name in models.items():
        path = results / name / "tasks" / f"{evaluation}.parquet"
        metadata[model] = artifacts.metadata(path)
        rows = rows_of(artifacts.read(path, TASK_RESULTS))
        if not rows:
            continue
        items.add_items(rows)
        outcomes = classify_outcomes(rows)
        outcomes_by_model[model] = outcomes
        task["models"].append(model)
        task["outcomes"].append([model, *_outcome_counts(outcomes)])
        item_rows = [_list_item(items, row, outcomes, i) for i, row in enumerate(rows)]
        content = {"measure": outcomes.measure, "higher": outcomes.higher_is_better, "rows": item_rows}
        write_data_file(out, f"e{number}/m{model}", content)
        outputs = _read_outputs(results / name, evaluation, items)
        _write_details(out, f"e{number}/m{model}", rows, items, outputs)
        if not protocol.generates and (calibrated := calibration(rows)):
            task["calibration"].append([model, *calibrated])
        if not protocol.letters:  # the scored text of a letter is the letter
            tokens_by_model[model] = outputs[1]
    for block, start in enumerate(range(0, len(items.items), ITEMS_PER_FILE)):
        write_data_file(out, f"e{number}/i{block}", items.items[start : start + ITEMS_PER_FILE])
    write_data_file(out, f"e{number}/shots", items.prefixes)
    task |= {"letters": protocol.letters, "generates": protocol.generates}
    task |= {"items": len(items.items), "block": ITEMS_PER_FILE, "distributions": histograms(outcomes_by_model)}
    task["surprisal"] = surprisal_profiles(tokens_by_model, items)
    task["dataset"] = next((run["dataset"] for run in metadata.values() if "dataset" in run), None)
    return task, items.positions, metadata


def _list_item(items: EvaluationItems, row: dict, outcomes: ItemOutcomes, i: int) -> list:
    """Return [item, outcome, severity, value, flagged, prediction]: choices by index, generated text truncated."""
    prediction = (
        row["predicted_indices"]
        if row["predicted_indices"] and row["choices"]
        else (row["prediction"] or "")[:_MAX_LISTED_CHARS]
    )
    return [
        items.positions[row["item_id"]],
        outcomes.outcomes[i],
        round_significant(outcomes.severity[i], 4),
        round_significant(outcomes.measure_values[i], 4),
        int(outcomes.flagged[i]),
        prediction,
    ]


def _write_details(out: Path, name: str, rows: list[dict], items: EvaluationItems, read_outputs: tuple) -> None:
    """Write the details of one model's items in blocks; `read_outputs` is what `_read_outputs` returned."""
    outputs, tokens, template_texts = read_outputs
    metric_names = list(dict.fromkeys(key for row in rows for key in row["metrics"]))
    blocks: dict[int, list] = {}
    for row in rows:
        position, item_id = items.positions[row["item_id"]], row["item_id"]
        blocks.setdefault(position // ITEMS_PER_FILE, []).append(
            [
                position,
                round_all(row["option_scores"]),
                round_all([row["metrics"].get(key) for key in metric_names]),
                publishable(row["flags"]),  # may quote a server
                row["prediction"] if row["choices"] else None,
                outputs.get(item_id),
                tokens.get(item_id, []),
                template_texts.get(item_id),
            ]
        )
    for block, content in blocks.items():
        wrappers: list = []
        for entry in content:  # the chat template's text around the item is the same for most items: stored once
            if entry[-1] is not None:
                if entry[-1] not in wrappers:
                    wrappers.append(entry[-1])
                entry[-1] = wrappers.index(entry[-1])
        write_data_file(out, f"{name}b{block}", {"values": metric_names, "wrappers": wrappers, "rows": content})


def _read_outputs(model_dir: Path, evaluation: str, items: EvaluationItems) -> tuple[dict, dict, dict]:
    """Return generated outputs, token surprisals, and the chat template's text around the prompt; each by item."""
    path = model_dir / "generations" / f"{evaluation}.parquet"
    if path.exists():
        columns = ["item_id", "raw_output", "output", "finish_reason", "n_tokens", "rendered"]
        rows = rows_of(artifacts.read(path, GENERATIONS).select(columns))
        outputs = {
            row["item_id"]: [
                row["output"],
                None if row["raw_output"] == row["output"] else row["raw_output"],
                row["finish_reason"],
                row["n_tokens"],
            ]
            for row in rows
        }
        wrappers = {
            row["item_id"]: _split_template(row["rendered"], items.wrapped_text(row["item_id"])) for row in rows
        }
        return outputs, {}, wrappers
    scores = artifacts.read(model_dir / "scores" / f"{evaluation}.parquet", SCORES)
    tokens = pack_surprisals(scores, items.roles, lambda item, role: items.spans.get((item, role)))
    wrappers = {}
    if scores["rendered"].null_count < scores.num_rows:
        for row in rows_of(scores.select(["item_id", "role", "rendered", "offsets"])):
            if row["rendered"] is not None and row["offsets"] and row["role"] in items.roles:
                before = row["rendered"][: row["offsets"][0][0]]
                wrappers.setdefault(row["item_id"], _split_template(before, items.wrapped_text(row["item_id"])))
    return {}, tokens, wrappers


def _split_template(rendered: str | None, text: str | None) -> list[str] | None:
    """Return [before, after], the chat template's text around `text`; [rendered, None] if it lacks that text."""
    if rendered is None:
        return None
    start = rendered.rfind(text.strip()) if text and text.strip() else -1
    return [rendered, None] if start < 0 else [rendered[:start], rendered[start + len(text.strip()) :]]


def _outcome_counts(outcomes: ItemOutcomes) -> list[int]:
    """Return the number of items with each of the six outcomes, and of flagged items."""
    return [*(outcomes.outcomes.count(code) for code in range(6)), sum(outcomes.flagged)]
