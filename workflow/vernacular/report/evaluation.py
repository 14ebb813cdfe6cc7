"""Data files of one evaluation: items in blocks, each model's results, and the distributions of the task view.

`e{k}/task`      metadata, values by category, outcomes and histograms per model
`e{k}/shots`     few-shot prefixes, stored once for all items and models
`e{k}/i{b}`      block b of the items, in the format of `item_details.Asked.items`
`e{k}/m{j}`      model j: a short row per item, for listing, sorting and search
`e{k}/m{j}b{b}`  model j, block b: scores, values, flags, outputs and token surprisals of each item
"""

from pathlib import Path

import numpy as np

from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.registry import PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.report.item_details import COLUMNS, Answers, Asked, judged, packed
from vernacular.report.pieces import short, shorts, write_piece

BLOCK = 250  # items per data file
BINS = 24
_LISTED = 160  # characters of a generated output in the item list; the item view shows all of it


def write_evaluation(out: Path, number: int, evaluation: str, models: dict[int, str], results: Path) -> tuple:
    """Write the data files of `evaluation` except `task`; models: number -> name.

    Returns (content of the task file, position of each item, metadata of each model's run). Holds the prompts of the
    evaluation and one model's rows at a time in memory.
    """
    requests = results / "requests" / f"{evaluation}.parquet"
    drawn = PROTOCOLS[artifacts.metadata(requests)["protocol"]].drawn
    asked, facts, task = Asked(drawn), {}, {"outcomes": [], "distributions": [], "models": []}
    asked.add_requests(rows_of(artifacts.read(requests, REQUESTS).select(COLUMNS)))
    measured = {}
    for model, name in models.items():
        path = results / name / "tasks" / f"{evaluation}.parquet"
        facts[model] = artifacts.metadata(path)
        rows = rows_of(artifacts.read(path, TASK_RESULTS))
        if not rows:
            continue
        asked.add_items(rows)
        answers = judged(rows)
        measured[model] = answers
        task["models"].append(model)
        task["outcomes"].append([model, *_counts(answers)])
        listed = [_listed(asked, row, answers, i) for i, row in enumerate(rows)]
        piece = {"measure": answers.measure, "higher": answers.higher_is_better, "rows": listed}
        write_piece(out, f"e{number}/m{model}", piece)
        _write_blocks(out, f"e{number}/m{model}", rows, asked, results / name, evaluation)
    for block, start in enumerate(range(0, len(asked.items), BLOCK)):
        write_piece(out, f"e{number}/i{block}", asked.items[start : start + BLOCK])
    write_piece(out, f"e{number}/shots", asked.prefixes)
    task |= {"items": len(asked.items), "block": BLOCK, "distributions": _distributions(measured)}
    task["facts"] = next((note for note in facts.values() if "dataset" in note), {}).get("dataset")
    return task, asked.position, facts


def _listed(asked: Asked, row: dict, answers: Answers, i: int) -> list:
    """Return [item, outcome, badness, measured, flagged, prediction]: options by index, generated text truncated."""
    chosen = (
        row["predicted_indices"] if row["predicted_indices"] and row["choices"] else (row["prediction"] or "")[:_LISTED]
    )
    return [
        asked.position[row["item_id"]],
        answers.outcomes[i],
        short(answers.badness[i], 4),
        short(answers.measured[i], 4),
        int(answers.flagged[i]),
        chosen,
    ]


def _write_blocks(out: Path, name: str, rows: list[dict], asked: Asked, folder: Path, evaluation: str) -> None:
    answered, tokens, sent = _answered(folder, evaluation, asked)
    names = list(dict.fromkeys(key for row in rows for key in row["metrics"]))
    blocks: dict[int, list] = {}
    for row in rows:
        position, item = asked.position[row["item_id"]], row["item_id"]
        blocks.setdefault(position // BLOCK, []).append(
            [
                position,
                shorts(row["option_scores"]),
                shorts([row["metrics"].get(key) for key in names]),
                row["flags"],
                row["prediction"] if row["choices"] else None,
                answered.get(item),
                tokens.get(item, []),
                sent.get(item),
            ]
        )
    for block, content in blocks.items():
        wraps: list = []
        for entry in content:  # the chat template's text around the item is the same for most items: stored once
            if entry[-1] is not None:
                if entry[-1] not in wraps:
                    wraps.append(entry[-1])
                entry[-1] = wraps.index(entry[-1])
        write_piece(out, f"{name}b{block}", {"values": names, "wraps": wraps, "rows": content})


def _answered(folder: Path, evaluation: str, asked: Asked) -> tuple[dict, dict, dict]:
    """Return generated outputs, token surprisals, and the chat template's text around the prompt; each by item."""
    path = folder / "generations" / f"{evaluation}.parquet"
    if path.exists():
        columns = ["item_id", "raw_output", "output", "finish_reason", "n_tokens", "rendered"]
        rows = rows_of(artifacts.read(path, GENERATIONS).select(columns))
        written = {
            row["item_id"]: [
                row["output"],
                None if row["raw_output"] == row["output"] else row["raw_output"],
                row["finish_reason"],
                row["n_tokens"],
            ]
            for row in rows
        }
        wraps = {row["item_id"]: _wrap(row["rendered"], asked.own_text(row["item_id"])) for row in rows}
        return written, {}, wraps
    scores = artifacts.read(folder / "scores" / f"{evaluation}.parquet", SCORES)
    tokens = packed(scores, asked.roles, lambda item, role: asked.spans.get((item, role)))
    wraps = {}
    if scores["rendered"].null_count < scores.num_rows:
        for row in rows_of(scores.select(["item_id", "role", "rendered", "offsets"])):
            if row["rendered"] is not None and row["offsets"] and row["role"] in asked.roles:
                before = row["rendered"][: row["offsets"][0][0]]
                wraps.setdefault(row["item_id"], _wrap(before, asked.own_text(row["item_id"])))
    return {}, tokens, wraps


def _wrap(rendered: str | None, own: str | None) -> list[str] | None:
    """Return [before, after], the chat template's text around the item's own; [whole, None] if it lacks that text."""
    if rendered is None:
        return None
    at = rendered.rfind(own.strip()) if own and own.strip() else -1
    return [rendered, None] if at < 0 else [rendered[:at], rendered[at + len(own.strip()) :]]


def _counts(answers: Answers) -> list[int]:
    """Return the number of items with each of the six outcomes, and of flagged items."""
    return [*(answers.outcomes.count(code) for code in range(6)), sum(answers.flagged)]


def _distributions(measured: dict[int, Answers]) -> list[list]:
    """Return [model, measure, edges, [[outcome, counts], …]]; all models share the edges, so that they are comparable.

    Values outside the 0.5 % and 99.5 % quantiles are counted in the first and last bin, so that an outlier does not
    compress the other bins.
    """
    found = []
    for measure in dict.fromkeys(answers.measure for answers in measured.values() if answers.measure):
        of = {model: answers for model, answers in measured.items() if answers.measure == measure}
        every = np.array([v for answers in of.values() for v in answers.measured if v is not None], dtype=float)
        low, high = np.quantile(every, [0.005, 0.995])
        edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
        for model, answers in of.items():
            values = np.array([np.nan if v is None else v for v in answers.measured], dtype=float)
            outcomes = np.array(answers.outcomes)
            counts = []
            for outcome in sorted(set(answers.outcomes)):
                chosen = values[(outcomes == outcome) & np.isfinite(values)]
                counts.append([int(outcome), np.histogram(np.clip(chosen, edges[0], edges[-1]), edges)[0].tolist()])
            found.append([model, measure, shorts(edges.tolist(), 4), counts])
    return found
