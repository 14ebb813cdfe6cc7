"""Self-check of prefix sharing, batching and states for generation: all must reproduce a computation without them.

Some architectures silently treat padding as text, ignore positions, carry a state through the padding, or continue
from a state that is not that of the text. Before anything is generated, the shortest and the longest prompt, which need
the most padding, are therefore continued together by two given tokens, during which the shorter one ends, and compared
with one forward pass over each text alone without a state. Where the prompts or their continuations reach the edge of
an attention window, or a length at which positions change, texts that cross it are compared as well, once per load.
"""

import math
from dataclasses import dataclass
from itertools import chain

import torch

from vernacular.core.errors import ModelError, named
from vernacular.inference.generation.decode import (
    BATCH,
    UNCACHED,
    DecodingBatch,
    DecodingCounters,
    Prefix,
    Way,
    batch_class_of,
    can_share_prefix,
)
from vernacular.inference.generation.prepare import PreparedPrompt
from vernacular.inference.model.loaded import MODEL_ERRORS, Agreement, LoadedModel, agreement, check_is_causal
from vernacular.inference.model.memory import within_memory
from vernacular.inference.model.tokenization import cycled

OUT_OF_MEMORY = "out of memory"
N_COMPARED_TOKENS = 50  # number of most probable next tokens that are compared

_STEPS = 2  # tokens by which a text is continued
_CROSSING = 4  # the same, for a text that begins a token before the edge of a window


@dataclass(frozen=True)
class _Case:
    """Texts that are continued together, and singly."""

    texts: list[list[int]]  # the shorter ones first
    steps: list[list[int]]  # tokens by which each is continued, equally many
    label: str = ""


def select_batching(
    loaded: LoadedModel, prompts: list[PreparedPrompt], shared_ids: list[int], counters: DecodingCounters
) -> tuple[Prefix | None, Way, dict]:
    """Return (the prefix to use or None, the way to decode, a note whose "used" is the way's name).

    The prompts have the same positions and begin with `shared_ids`; []: too few to share. Raises ModelError if the
    model cannot generate, or is not causal.
    """
    note: dict = {"prompts": len(prompts), "prefix_tokens": 0, "fallback": []}
    shortest, longest = min(prompts, key=_prompt_length), max(prompts, key=_prompt_length)
    check_is_causal(loaded, longest.ids)
    max_tokens = max(len(p.ids) + p.max_new_tokens for p in prompts)
    ways = [Way("single")]
    if len(prompts) > 1 and not loaded.depends_on_batch:
        ways = [BATCH, Way("batch", drops_rows=False), *ways]
        if shared_ids and can_share_prefix(loaded, max_tokens):
            ways = [Way("prefix"), *ways]
    checked = loaded.checks.setdefault(("single", loaded.lengths.first(len(longest.ids))), set())
    if len(prompts) == 1 and {0, *_thresholds(loaded, prompts)} <= checked:
        return None, ways[0], note | {"used": "single"}
    try:
        cases = _cases(loaded, prompts, [shortest, longest] if len(prompts) > 1 else [longest])
        references = within_memory(loaded, lambda: [_reference(loaded, case, counters) for case in cases])
        if references is None:  # shorter prompts may still fit
            return None, Way("single"), note | {"used": "single", "error": OUT_OF_MEMORY}
    except MODEL_ERRORS as error:
        raise ModelError(f"{loaded.title} cannot generate text: {named(error)}") from error
    for way in ways:
        ids = shared_ids if way.name == "prefix" else []
        prefix = _agreeing_prefix(loaded, way, cases, references, ids, note, counters)
        if prefix is not None:
            if way.name == "single":
                checked |= {0, *_thresholds(loaded, prompts)}
            rows = {} if way.drops_rows else {"rows": "remain"}  # until the last one ends
            return (prefix if ids else None), way, note | rows | {"used": way.name, "prefix_tokens": len(ids)}
    # the same a second time; NaN is left to the texts' flags
    last, expected = ([row[-1] for row in rows] for rows in (_reference(loaded, cases[0], counters), references[0]))
    if (result := compare(loaded, last, expected)).compared and not result.agrees:
        raise ModelError(f"{loaded.title} cannot generate text: two computations of one text differ.")
    return None, UNCACHED, note | {"used": UNCACHED.name}


def compare(loaded: LoadedModel, batched: list[torch.Tensor], single: list[torch.Tensor]) -> Agreement:
    """Compare the log-probabilities of each row's most probable next tokens with those of the single prompt."""
    top_tokens = [row.topk(min(N_COMPARED_TOKENS, len(row))).indices for row in single]
    pairs = (zip(rows, top_tokens, strict=True) for rows in (batched, single))
    values, reference = (torch.cat([row[tokens] for row, tokens in each]) for each in pairs)
    return agreement(values, reference, loaded.precision)


def _thresholds(loaded: LoadedModel, prompts: list[PreparedPrompt]) -> set[int]:
    """Return the lengths at which the computation changes that the prompts or their continuations reach.

    If something else may change in the continuations only, they are followed to their end.
    """
    if loaded.kind == "seq2seq":  # whose continuations begin anew
        return set()
    lengths, longest_prompt = loaded.lengths, max(len(p.ids) for p in prompts)
    longest = max(len(p.ids) + p.max_new_tokens for p in prompts)
    last = lengths.last(len(prompts[0].ids))
    thresholds = {window for window in lengths.windows if window < longest}
    is_known = lengths.varies or any(longest_prompt <= length for length in thresholds)
    if not is_known and loaded.has_threshold(longest_prompt, longest):
        thresholds.add(longest - _CROSSING)
    return thresholds | ({last} if last and last < longest else set())


def _cases(loaded: LoadedModel, prompts: list[PreparedPrompt], pair: list[PreparedPrompt]) -> list[_Case]:
    """Return the prompts to compare, and texts on the other sides of the thresholds that are reached."""
    longest = pair[-1].ids
    last = loaded.lengths.last(len(longest))
    limits = [limit for limit in (loaded.max_length, last) if limit is not None]
    limits = limits if loaded.kind != "seq2seq" else []
    n_steps = max(0, min(_STEPS, *(limit - len(longest) for limit in limits)) if limits else _STEPS)
    cases = [_case([prompt.ids for prompt in pair], n_steps)]
    for threshold in sorted(_thresholds(loaded, prompts)):
        texts = [prompt.ids for prompt in pair]
        if threshold == last:  # the texts that wait in `decode` continue together, with other positions
            n_steps = min(_STEPS, (loaded.lengths.last(threshold + 1) or threshold + 1 + _STEPS) - threshold - 1)
            cases.append(_case([cycled(text, threshold + 1) for text in texts], n_steps, f" above {threshold} tokens"))
        else:
            texts = [text[: threshold // 2] for text in texts[:-1]] + [cycled(longest, threshold - 1)]
            cases.append(_case(texts, _CROSSING, f" beyond a window of {threshold} tokens"))
    return cases


def _case(texts: list[list[int]], n_steps: int, label: str = "") -> _Case:
    return _Case(texts, [cycled(text[len(text) // 2 :], n_steps) for text in texts], label)


@torch.inference_mode()
def _reference(loaded: LoadedModel, case: _Case, counters: DecodingCounters) -> list[list[torch.Tensor]]:
    """Return, per text and step, the log-probabilities of the next token from one pass over the text alone."""
    n_positions = len(case.steps[0]) + 1
    rows = []
    for text, steps in zip(case.texts, case.steps, strict=True):
        batch = batch_class_of(loaded)(loaded, [text], None, 0, counters, UNCACHED)
        for step in steps:
            batch.append([step])
        logits = batch.logits(n_positions)
        rows.append(list(logits.reshape(n_positions, -1).log_softmax(-1)))
    return rows


def _continuations(
    loaded: LoadedModel, case: _Case, prefix: Prefix | None, way: Way, counters: DecodingCounters
) -> list[list[torch.Tensor]]:
    """Return the same as `_reference`, computed in a way; a text that ends early has fewer steps."""
    if way.name == "single":
        singles = [_Case([text], [steps]) for text, steps in zip(case.texts, case.steps, strict=True)]
        if len(singles) > 1:
            return [_continuations(loaded, single, None, way, counters)[0] for single in singles]
    start, n_steps = len(prefix.ids) if prefix else 0, len(case.steps[0])
    texts = [text[start:] for text in case.texts]
    batch = batch_class_of(loaded)(loaded, texts, prefix, n_steps, counters, way)
    rows = list(range(len(case.texts)))
    computed = [[] for _ in rows]
    for step in range(n_steps + 1):
        for row, logprobs in zip(rows, batch.logits().log_softmax(-1), strict=True):
            computed[row].append(logprobs)
        if step == n_steps:
            break
        if step == 1 and len(rows) > 1 and batch.can_drop_rows:
            batch.select_rows([len(rows) - 1])
            rows = rows[-1:]
        batch.append([case.steps[row][step] for row in rows])
    return computed


def _agreeing_prefix(loaded, way: Way, cases, references, ids: list[int], note: dict, counters) -> Prefix | None:
    """Return the prefix `ids` (which may be empty) if the texts computed with it agree with single ones, else None.

    Writes NAME_difference or NAME_error to `note`, and the reason of a disagreement to its fallbacks.
    """
    prefix, name = Prefix([], None), way.name

    def compare_all(case: _Case, reference: list[list[torch.Tensor]]) -> Agreement:
        nonlocal prefix
        if ids and not prefix.ids:
            batch = DecodingBatch(loaded, [ids], None, 0, counters)
            batch.logits()
            prefix = Prefix(ids, batch.state)
        computed = _continuations(loaded, case, prefix if ids else None, way, counters)
        # a text that ended has fewer steps
        pairs = [zip(values, single, strict=False) for values, single in zip(computed, reference, strict=True)]
        return compare(loaded, *map(list, zip(*chain.from_iterable(pairs), strict=True)))

    for case, reference in zip(cases, references, strict=True):
        try:
            result = within_memory(loaded, compare_all, case, reference)
            reason = OUT_OF_MEMORY if result is None else None
        except MODEL_ERRORS as error:
            result, reason = None, named(error)
        if result is None:
            note[f"{name}_error"] = reason
        else:
            note[f"{name}_difference"] = {"largest": _nan_to_inf(result.largest), "mean": _nan_to_inf(result.mean)}
            if result.agrees:
                continue
            reason = f"differs from single texts without a state by {result.deviation:.2g} nats"
        rows = "" if way.drops_rows else ", all rows remain"
        note["fallback"].append(f"generation, {name}{rows}{case.label}: {reason}")
        return None
    return prefix


def _nan_to_inf(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def _prompt_length(prompt: PreparedPrompt) -> tuple[int, str]:
    return len(prompt.ids), prompt.request_id
