"""Details of an item in the report: the prompt sent, the outcome and margin, the surprisal of each token."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core.tables import is_finite, values_of
from vernacular.metrics import spans
from vernacular.protocols.schema import REQUESTS
from vernacular.report.data_files import Row
from vernacular.types import Role, skipped_reason

# Outcomes of an item. The last three are no judgments: labels of sentences, and items that only have a measure.
INCORRECT, CORRECT, TIE, NOT_SCORED, ACCEPTABLE, UNACCEPTABLE, SCORED = range(7)

MARGIN = "margin"  # best correct option's score minus best incorrect option's
# measures of items without one, and whether higher is better; sentences differ in length: prefer the value per token
_MEASURES = {"chrf": True, "chrf2pp": True, "entity_f1": True, "surprisal_token": False, "surprisal": False,
             "surprisal_byte": False}  # fmt: skip


@dataclass(frozen=True)
class ItemOutcomes:
    """One model's outcomes in one evaluation; all lists have length n, in the order of its rows."""

    outcomes: list[int]
    measure: str | None  # name of the per-item value used for sorting and histograms
    higher_is_better: bool
    measure_values: list[float | None]  # that value
    severity: list[float | None]  # higher is worse; sort key of "worst first"
    flagged: list[bool]


def classify_outcomes(rows: Iterable[dict]) -> ItemOutcomes:
    """Compute outcomes and measure from the rows of a task-results file (maps as dicts)."""
    outcomes, flagged = [], []
    values: dict[str, list] = {name: [] for name in (MARGIN, *_MEASURES)}
    for row in rows:
        outcomes.append(_outcome(row))
        flagged.append(row["flags"] is not None)
        values[MARGIN].append(margin(row))
        for name in _MEASURES:
            value = row["metrics"].get(name)
            values[name].append(value if is_finite(value) else None)
    measure = next((name for name, numbers in values.items() if any(value is not None for value in numbers)), None)
    higher_is_better = _MEASURES.get(measure, True)
    measure_values = [None] * len(outcomes) if measure is None else values[measure]
    severity = _severity(outcomes, measure_values, higher_is_better)
    outcomes = [
        SCORED if outcome == NOT_SCORED and value is not None else outcome
        for outcome, value in zip(outcomes, measure_values, strict=True)
    ]
    return ItemOutcomes(outcomes, measure, higher_is_better, measure_values, severity, flagged)


def margin(row: dict) -> float | None:
    """Return the best correct option's score minus the best incorrect one's; None if one is missing or infinite.

    >>> margin({"option_scores": [-3.0, -1.0, None], "choices": ["a", "b", "c"], "gold": [0]})
    -2.0
    """
    value = spans.margin(row["option_scores"] or [], spans.correct_options(row["choices"], row["gold"]))
    return value if is_finite(value) else None


def _outcome(row: dict) -> int:
    if row["correct"] is not None:
        return CORRECT if row["correct"] else TIE if row["tie"] else INCORRECT
    label = row["metrics"].get("label")
    if label is not None:
        return ACCEPTABLE if label else UNACCEPTABLE
    return NOT_SCORED


def _severity(outcomes: list[int], measure_values: Iterable, higher_is_better: bool) -> list[float | None]:
    """Return how much worse than the median each value is; a low surprisal is worse for unacceptable sentences."""
    values = np.array([np.nan if value is None else value for value in measure_values], dtype=float)
    median = np.nanmedian(values) if np.isfinite(values).any() else 0.0
    severity = median - values if higher_is_better else values - median
    severity = np.where(np.array(outcomes) == UNACCEPTABLE, -severity, severity)
    # by margins, all incorrect items precede all correct ones
    return [float(value) if np.isfinite(value) else None for value in severity]


COLUMNS = [name for name in REQUESTS.schema.names if name in ("item_id", "role", "prefix", "text", "span_start",
                                                              "span_end", "messages", "kind")]  # fmt: skip


def shown_items(
    rows: list[dict], requests: list[dict], displayed_roles: tuple[str, ...], prefix_numbers: dict[str, int]
) -> tuple[list, dict[tuple[str, str], tuple[str, int]]]:
    """Return the Row.Item of each item, and text and start of each displayed span by item and role.

    Of an item, `sent` is the text after the few-shot prefix up to the scored span ("" if there is none), None if it
    equals the prompt; `prefix` is the number of its few-shot prefix, None without one; `message` the last chat turn's
    content, None if it equals `sent`; `spans` are the scored texts.

    Args:
        rows: Items of a task-results file.
        requests: Their rows of a requests file (the columns `COLUMNS`).
        displayed_roles: Kinds of roles whose tokens are shown; the last is preferred.
        prefix_numbers: Number of each few-shot prefix, to which new ones are added.
    """
    by_item: dict[str, list[dict]] = {}
    for request in requests:
        if request["span_start"] is None or request["span_start"] < request["span_end"]:  # an empty span is not scored
            by_item.setdefault(request["item_id"], []).append(request)
    items, spans = [], {}
    for row in rows:
        item, own = item_row(row), by_item.get(row["item_id"])
        if own:
            displayed = _displayed_requests(own, displayed_roles)
            texts = {request["role"]: _span(request) for request in displayed}
            spans |= {(item.id, role): span for role, span in texts.items()}
            first, prefix = (displayed or own)[0], (displayed or own)[0]["prefix"]
            start = None if first["span_start"] is None else max(first["span_start"] - len(prefix), 0)
            sent = first["text"][:start]
            message = first["messages"][-1]["content"] if first["messages"] else None
            item = item._replace(
                sent=None if sent == item.prompt else sent,
                prefix=prefix_numbers.setdefault(prefix, len(prefix_numbers)) if prefix else None,
                message=None if message == sent else message,
                spans=[Row.Span(role=role, text=text) for role, (text, _) in texts.items()],
            )
        items.append(item)
    return items, spans


def wrapped_text(item) -> str:
    """Return the text of a Row.Item that a chat template wraps: the last turn's content, or the text without it."""
    return next(text for text in (item.message, item.sent, item.prompt) if text is not None)


def _span(request: dict) -> tuple[str, int]:
    text = request["prefix"] + request["text"]
    return text[request["span_start"] : request["span_end"]], request["span_start"]


def item_row(row: dict):
    """Return the Row.Item of a row of results, without what was sent."""
    return Row.Item(
        id=row["item_id"],
        category=row["category"] or "",
        prompt=row["prompt"],
        options=row["choices"],
        gold=row["gold"],
        sent=None,
        prefix=None,
        message=None,
        spans=[],
    )


def _displayed_requests(requests: list[dict], kinds: tuple[str, ...]) -> list[dict]:
    """Return the requests whose tokens are shown; a masked word only if its sentence was not scored."""
    scored = [row for row in requests if row["kind"] == "score" and skipped_reason(row["role"]) is None]
    roles = {row["role"]: Role.parse(row["role"]) for row in scored}
    rows = [row for row in scored if roles[row["role"]].kind in kinds and not roles[row["role"]].rotation]
    contextual = [row for row in rows if roles[row["role"]].kind != kinds[0]] if len(kinds) > 1 else []
    return contextual or rows


UNSCORED = -1  # the token has no preceding context, so it has no probability


def pack_surprisals(scores: pa.Table, roles: set[str], get_span: Callable[[str, str], tuple[str, int] | None]) -> dict:
    """Return item_id -> Row.Tokens of the rows of a scores table with a role in `roles`.

    `get_span(item_id, role)` gives the span's text and its start in the request. `lengths` are in characters (code
    points), 0 if a token shares its character with the preceding one; `hundredths` are surprisals in units of 0.01
    nats. `skip` is the number of characters of the span before the first token, or the text that the tokens cover if a
    chat template changed it. Rows without tokens are excluded: their flag gives the reason.
    """
    table = scores.filter(pc.is_in(scores["role"], value_set=pa.array(sorted(roles), pa.string())))
    if not table.num_rows:
        return {}
    offsets, logprobs = table["offsets"].combine_chunks(), table["logprobs"].combine_chunks()
    row_offsets, logprob_offsets = offsets.offsets.to_numpy(), logprobs.offsets.to_numpy()
    # (T, 2) character offsets of all tokens of the file, row after row
    edges = offsets.values.flatten().to_numpy(zero_copy_only=False).reshape(-1, 2) if len(offsets.values) else None
    if edges is None:
        return {}
    ends = edges[:, 1].astype(int)
    lengths = np.diff(ends, prepend=0)
    first_tokens = row_offsets[:-1][np.diff(row_offsets) > 0]
    lengths[first_tokens] = ends[first_tokens] - edges[first_tokens, 0]
    lengths = np.maximum(lengths, 0).tolist()
    nats = logprobs.values.to_numpy(zero_copy_only=False).astype(float)
    hundredths = np.where(np.isfinite(nats), np.round(-100 * np.nan_to_num(nats)), UNSCORED).astype(int)
    hundredths = np.where(np.isfinite(nats), np.maximum(hundredths, 0), UNSCORED).tolist()
    packed: dict[str, list] = {}
    item_ids, row_roles, rendered_texts = (values_of(table[name]) for name in ("item_id", "role", "rendered"))
    token_starts, row_starts, row_ends = edges[:, 0].tolist(), row_offsets[:-1].tolist(), row_offsets[1:].tolist()
    logprob_starts, logprob_ends = logprob_offsets[:-1].tolist(), logprob_offsets[1:].tolist()
    columns = zip(item_ids, row_roles, rendered_texts, row_starts, row_ends, strict=True)
    for row, (item_id, role, rendered, start, end) in enumerate(columns):
        span = get_span(item_id, role)
        if start == end or span is None or logprob_ends[row] - logprob_starts[row] != end - start:
            continue
        skip = _skip(span, rendered, token_starts[start], ends[start:end])
        surprisals = hundredths[logprob_starts[row] : logprob_ends[row]]
        tokens = Row.Tokens(role=role, skip=skip, lengths=lengths[start:end], hundredths=surprisals)
        packed.setdefault(item_id, []).append(tokens)
    return packed


def _skip(span: tuple[str, int], rendered: str | None, first: int, ends: np.ndarray) -> int | str:
    text, start = span
    if rendered is None:
        return first - start if first >= start else 0  # a token that straddles the start is shown from the start on
    covered = rendered[first : int(ends.max())]
    return len(text) - len(covered) if text.endswith(covered) else covered
