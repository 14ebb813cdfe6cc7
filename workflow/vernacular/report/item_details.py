"""Details of an item in the report: the prompt sent, the outcome and margin, the surprisal of each token."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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


@dataclass
class EvaluationItems:
    """Items of one evaluation in display order, and their positions.

    Attributes:
        items: a Row.Item each: `sent` the text after the few-shot prefix up to the scored span ("" if there is none),
            None if it equals the prompt; `prefix` the index of its few-shot prefix in `prefixes`, None without one;
            `message` the last chat turn's content, None if it equals `sent`; `spans` the scored texts
    """

    displayed_roles: tuple[str, ...] = ()  # kinds of roles whose tokens are shown; the last is preferred
    items: list = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    prefix_numbers: dict[str, int] = field(default_factory=dict)  # may be shared by several parts of an evaluation
    spans: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)  # (item, role): text and start
    _requests: dict[str, list[dict]] = field(default_factory=dict)

    def add_requests(self, rows: list[dict]) -> None:
        """Add the rows of a requests file (the columns `COLUMNS`); call it before `add_items`."""
        by_item: dict[str, list[dict]] = {}
        for row in rows:
            if row["span_start"] is None or row["span_start"] < row["span_end"]:  # an empty span is not scored
                by_item.setdefault(row["item_id"], []).append(row)
        for item, item_requests in by_item.items():
            self._requests[item] = item_requests
            for row in _displayed_requests(item_requests, self.displayed_roles):
                full_text = row["prefix"] + row["text"]
                self.spans[item, row["role"]] = (full_text[row["span_start"] : row["span_end"]], row["span_start"])

    def add_items(self, rows: list[dict]) -> None:
        """Add the items of a task-results file that are not present yet."""
        for row in rows:
            item = row["item_id"]
            if item not in self.positions:
                self.positions[item] = len(self.items)
                self.items.append(item_row(row)._replace(**self._prompt_fields(item, row["prompt"])))

    def wrapped_text(self, item: str) -> str | None:
        """Return the text that a chat template wraps: the last turn's content, or the text sent without a template."""
        if item not in self.positions:
            return None
        row = self.items[self.positions[item]]
        return next(text for text in (row.message, row.sent, row.prompt) if text is not None)

    @property
    def prefixes(self) -> list[str]:
        return list(self.prefix_numbers)

    def _prompt_fields(self, item: str, prompt: str) -> dict:
        requests = self._requests.get(item)
        if not requests:
            return {}
        displayed = _displayed_requests(requests, self.displayed_roles)
        first_request = (displayed or requests)[0]
        span_start = (
            None if first_request["span_start"] is None else first_request["span_start"] - len(first_request["prefix"])
        )
        sent = first_request["text"] if span_start is None else first_request["text"][: max(span_start, 0)]
        message = first_request["messages"][-1]["content"] if first_request["messages"] else None
        return {
            "sent": None if sent == prompt else sent,
            "prefix": self._prefix_index(first_request["prefix"]),
            "message": None if message in (None, sent) else message,
            "spans": [Row.Span(role=row["role"], text=self.spans[item, row["role"]][0]) for row in displayed],
        }

    def _prefix_index(self, text: str) -> int | None:
        return self.prefix_numbers.setdefault(text, len(self.prefix_numbers)) if text else None


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
