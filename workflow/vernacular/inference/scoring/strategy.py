"""Selection of the scoring strategy: the fastest that reproduces the model's scores on a sample of the evaluation."""

import inspect
from dataclasses import dataclass
from itertools import takewhile
from math import isfinite, isnan

import torch

from vernacular.core.errors import ModelError, first_line
from vernacular.inference.model.loaded import LoadedModel, agreement, halved, within_memory
from vernacular.inference.scoring.forward import Body
from vernacular.inference.scoring.head import Head, answer
from vernacular.inference.scoring.plan import SHORTEST_BLOCK, STRATEGIES, Limits, plan
from vernacular.inference.scoring.trie import Path, grow, size


def choose(loaded: LoadedModel, wanted: str, paths: dict[str, Path], tokens: int) -> tuple[str, dict]:
    """Return (the strategy to use, metadata of the selection); `tokens`: size of the paths' trie.

    Raises ModelError if `wanted` is unknown, or no strategy reproduces the scores of single texts.
    """
    if wanted not in ("auto", *STRATEGIES):
        raise ModelError(
            f'expected auto, {", ".join(STRATEGIES[:-1])} or {STRATEGIES[-1]} as strategy, got "{wanted}".'
        )
    facts = {"strategy_asked": wanted, "fallback": [], "self_check": {}, "head": "rows"}
    if not paths:
        return "plain", {**facts, "strategy": "plain"}
    begin = 0 if wanted == "auto" else STRATEGIES.index(wanted)
    asked = list(paths.values())
    for strategy in STRATEGIES[begin:]:
        reason = incapable(loaded, strategy)
        if reason is None:
            result = check(loaded, strategy, asked, tokens)
            facts["self_check"][strategy] = result.facts()
            if result.agrees:
                return strategy, {**facts, "strategy": strategy}
            reason = result.reason
        facts["fallback"].append(f"{strategy}: {reason}")
    # even plain batches differ: the head may not work separately, so try the model as one unit
    result = check(loaded, "plain", asked, tokens, whole_head=True)
    facts["self_check"]["plain, whole head"] = result.facts()
    if not result.agrees and NOTHING_BUT_NAN in (result.reason or ""):
        healthy = with_numbers(loaded, paths)
        if 0 < len(healthy) < len(paths):  # single broken tokens, not a broken model
            return choose(loaded, wanted, healthy, size(grow(list(healthy.values()))))
        raise ModelError(f"model {loaded.record['name']}: {result.reason}. {MEND_NAN}")
    if not result.agrees:
        raise ModelError(
            f"model {loaded.record['name']}: scores in a batch differ from those of single texts ({result.reason}), "
            "so they would depend on the batch. Try dtype: float32."
        )
    return "plain", {**facts, "strategy": "plain", "head": "whole"}


def joined(engines: list[dict]) -> dict:
    """Merge the metadata of an evaluation's portions: the slowest strategy, the worst outcome of each check."""
    slowest = max(engines, key=lambda facts: STRATEGIES.index(facts["strategy"]))
    checks: dict[str, dict] = {}
    for name, found in (pair for facts in engines for pair in facts["self_check"].items()):
        checks[name] = max(checks.get(name, found), found, key=lambda f: (not f["agrees"], f["difference"] or 0.0))
    whole = {**slowest, "self_check": checks}
    whole["fallback"] = list(dict.fromkeys(reason for facts in engines for reason in facts["fallback"]))
    if "head" in slowest:
        whole["head"] = "whole" if any(facts["head"] == "whole" for facts in engines) else "rows"
    if "pll" in slowest:
        whole["pll"] = sorted({variant for facts in engines for variant in facts["pll"]})
    return whole


# Local attention layers that count rows instead of positions: tree rows give incorrect numbers without an error.
_COUNTS_ROWS = {"gpt_neo"}
_ATTENTION = {"full_attention", "sliding_attention"}

_SHORTEST_CHECK = 64  # tokens of a text
NOTHING_BUT_NAN = "the model returns NaN for all tested tokens"
MEND_NAN = "Its weights are damaged, or too large for float16. Try dtype: bfloat16 or float32."
_SHARE = 0.05  # fraction of the evaluation's tokens that the check may recompute


@dataclass(frozen=True)
class Check:
    """Outcome of comparing a strategy with the scores of single texts."""

    strategy: str
    agrees: bool
    difference: float | None  # largest |difference| of a token's log-probability, nats; None: not available
    tokens: int  # of the longest text compared
    reason: str | None = None  # reason for a disagreement

    def facts(self) -> dict:
        """Return the outcome for the metadata."""
        return {"agrees": self.agrees, "difference": self.difference, "tokens": self.tokens, "reason": self.reason}


def incapable(loaded: LoadedModel, strategy: str) -> str | None:
    """Return why a model does not support a strategy; None if no reason is known."""
    if strategy == "plain":
        return None
    model, config = loaded.model, loaded.model.config.get_text_config(decoder=True)
    parameters = inspect.signature(loaded.body.forward).parameters
    kinds = set(getattr(config, "layer_types", None) or ())
    if getattr(model, "_is_stateful", False) or "past_key_values" not in parameters:
        return f"{type(model).__name__} has a recurrent state instead of cached keys and values"
    if other := sorted(kinds - _ATTENTION):
        return f"{type(model).__name__} has {other[0]} layers"
    if strategy == "prefix":
        return None
    if "position_ids" not in parameters or getattr(config, "alibi", False):
        return f"{type(model).__name__} derives positions from the order of the tokens"
    if config.model_type in _COUNTS_ROWS:
        return f"{type(model).__name__} has local attention layers that count rows instead of positions"
    if config._attn_implementation not in ("sdpa", "eager"):
        return f"{config._attn_implementation} does not support a custom attention mask"
    return None


def check(loaded: LoadedModel, strategy: str, paths: list[Path], tokens: int, *, whole_head: bool = False) -> Check:
    """Compare a strategy with scoring one text at a time, on a few of the evaluation's texts; cached per load.

    The texts are truncated, so that the check costs a few percent of the evaluation's `tokens`. Raises ModelError if
    memory does not suffice even for that.
    """
    longest = max(len(path.tokens) for path in paths)
    length = min(longest, max(_SHORTEST_CHECK, int(_SHARE * tokens / 2)))
    name = f"{strategy}, whole head" if whole_head else strategy
    known = loaded.checks.get(name)
    compared = known is not None and NOTHING_BUT_NAN not in (known.reason or "")
    if not compared or (known.agrees and length > 2 * known.tokens):
        loaded.checks[name] = _compare(loaded, strategy, paths, length, whole_head)
    return loaded.checks[name]


def _compare(loaded: LoadedModel, strategy: str, paths: list[Path], length: int, whole_head: bool) -> Check:
    sample = _sample(paths, length)
    behind = range(len(sample))[-2:]  # these follow other texts in their row

    def pairs() -> list[tuple[float, float]]:
        found = _by_strategy(loaded, strategy, sample, whole_head)
        alone = {who: _one_by_one(loaded, sample[who]) for who in behind}
        return [(a, b) for who in behind for a, b in zip(found[who], alone[who], strict=True)]

    try:
        found = within_memory(loaded, pairs)
    except (ValueError, TypeError, RuntimeError, KeyError, IndexError, AttributeError) as error:
        return Check(strategy, False, None, length, f"{type(error).__name__}: {first_line(error)}")
    if found is not None:
        return _judged(loaded, strategy, found, length)
    if (shorter := halved(length, _SHORTEST_CHECK)) is None:
        raise ModelError(
            f"model {loaded.record['name']}: out of memory for a text of {length} tokens on {loaded.device}."
        )
    return _compare(loaded, strategy, paths, shorter, whole_head)


def with_numbers(loaded: LoadedModel, paths: dict[str, Path], tried: int = 16) -> dict[str, Path]:
    """Return those of about `tried` paths, evenly sampled, for which the model alone returns a number."""
    some = list(paths)[:: max(1, len(paths) // tried)]
    return {who: paths[who] for who in some if any(not isnan(value) for value in _one_by_one(loaded, paths[who]))}


def _judged(loaded: LoadedModel, strategy: str, pairs: list[tuple[float, float]], length: int) -> Check:
    """Return the outcome of a comparison.

    `pairs`: each token's log-probability by the strategy, and of the single text (NaN: excluded).
    """
    if not pairs:
        return Check(strategy, True, None, length)
    outcome = agreement(*torch.tensor(pairs, dtype=torch.float64).unbind(1), loaded.dtype)
    if not outcome.compared:
        return Check(strategy, False, None, length, NOTHING_BUT_NAN)
    reason = None if outcome.agrees else f"differs from single texts by {outcome.deviation:.2g} nats per token"
    return Check(strategy, outcome.agrees, outcome.largest if isfinite(outcome.largest) else None, length, reason)


def _sample(paths: list[Path], length: int) -> list[Path]:
    """Return two neighbors in the trie and its last text, truncated to `length`, with all token queries."""
    ordered = sorted({path.tokens for path in paths})
    middle = max(0, len(ordered) // 2 - 1)
    chosen = dict.fromkeys([*ordered[middle : middle + 2], ordered[-1]])
    shared = sum(1 for _ in takewhile(lambda same: same, (len(set(at)) == 1 for at in zip(*chosen, strict=False))))
    # the same cut for all texts, with half of the remainder still shared, so that blocks are checked, too
    cut = max(0, min(min(map(len, chosen)) - length, shared - length // 2))
    texts = [tokens[cut : cut + length] for tokens in chosen]
    return [Path(text, tuple((i, text[i], (who, i)) for i in range(1, len(text)))) for who, text in enumerate(texts)]


def _by_strategy(loaded: LoadedModel, strategy: str, sample: list[Path], whole_head: bool) -> list[list[float]]:
    """Return, per text of the sample, the log-probabilities of its tokens except the first."""
    roots = grow(sample)
    shared = len(roots[0].tokens) if len(roots) == 1 and len(roots[0].tokens) >= SHORTEST_BLOCK else 0
    # a row too short for all branches by one token: the shared tokens become a block, and two texts share a row
    limits = Limits(budget=2 * max(len(path.tokens) for path in sample), row=size(roots) - shared - 1, forward=1)
    body, head = Body(loaded, tree=strategy == "tree", whole=whole_head), Head(loaded, whole=whole_head)
    found = [[0.0] * (len(path.tokens) - 1) for path in sample]
    for batch in plan(roots, strategy, limits):
        asked = batch.questions()
        for (_, _, _, askers), value in zip(asked, answer(body, head, batch).logprobs, strict=True):
            for who, index in askers:
                found[who][index - 1] = value
    return found


@torch.inference_mode()
def _one_by_one(loaded: LoadedModel, path: Path) -> list[float]:
    """Return the reference log-probabilities of one text, from a forward pass of the complete transformers model."""
    ids = torch.tensor([path.tokens], device=loaded.device)
    logits = loaded.model(input_ids=ids).logits[0, :-1].float()
    return (logits.gather(-1, ids[0, 1:, None])[:, 0] - logits.logsumexp(-1)).tolist()
