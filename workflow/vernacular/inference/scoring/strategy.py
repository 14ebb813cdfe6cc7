"""Selection of the scoring strategy: the fastest that reproduces the model's scores on a sample of the evaluation."""

import inspect
from dataclasses import asdict, dataclass, field
from math import isfinite, isnan

import numpy as np
import torch

from vernacular.core.errors import ModelError, named
from vernacular.inference.model.batch_tokenization import common_length
from vernacular.inference.model.loaded import MODEL_ERRORS, LoadedModel, agreement, check_is_causal, state_name
from vernacular.inference.model.memory import LOGIT_BYTES, halve, token_budget, within_memory
from vernacular.inference.scoring.head import Body, Head, score_batch
from vernacular.inference.scoring.outputs import EXACT
from vernacular.inference.scoring.plan import BATCHINGS, MIN_PREFIX_TOKENS, STRATEGIES, PlanLimits, plan
from vernacular.inference.scoring.trie import Path, Trie, build_trie, sort_key


def select_strategy(loaded: LoadedModel, requested: str, paths: list[Path], tokens: int) -> tuple[str, dict]:
    """Return (the strategy to use, metadata of the selection); `tokens`: size of the paths' trie.

    The texts of `paths` may share a forward pass, see `split_by_positions`. Raises ModelError if the model is not
    causal, or two computations of one text differ.
    """
    metadata = {"strategy_requested": requested, "fallback": [], "self_check": {}, "head": "rows", "batching": "padded"}
    if not paths:
        return "plain", {**metadata, "strategy": "plain"}
    if reason := _REFUSED.get(loaded.model.config.model_type):
        raise ModelError(f"{loaded.title} cannot be scored: {reason}.")
    check_is_causal(loaded, paths[0].tokens)
    first_index = 0 if requested == "auto" else STRATEGIES.index(requested)
    batching = "single" if loaded.depends_on_batch else "padded"
    attempts = [
        (strategy, "rows", batching if strategy == "plain" else "padded") for strategy in STRATEGIES[first_index:]
    ]
    # even plain batches differ: the head may not work separately, so try the model as one unit, and without padding
    attempts += [("plain", "full", batching) for batching in BATCHINGS]
    for strategy, head, batching in attempts:
        reason = unsupported_reason(loaded, strategy)
        if reason is None:
            name, result = check(loaded, strategy, paths, tokens, head=head, batching=batching)
            metadata["self_check"][name] = asdict(result)
            noise = metadata["self_check"][name].pop("noise")
            if result.agrees:
                noise = _measured_noise(loaded, strategy, paths, head == "full", batching) or noise
                metadata["noise"] = EXACT if loaded.record.deterministic else noise
                return strategy, {**metadata, "strategy": strategy, "head": head, "batching": batching}
            reason = result.reason
            if head == "full" and ALL_NAN in reason:
                paths_with_numbers = paths_without_nan(loaded, paths)
                if 0 < len(paths_with_numbers) < len(paths):  # single broken tokens, not a broken model
                    return select_strategy(loaded, requested, paths_with_numbers, build_trie(paths_with_numbers).size)
                raise ModelError(f"model {loaded.record.name}: {reason}. {NAN_ADVICE}")
        metadata["fallback"].append(f"{_label(strategy, head, batching)}: {reason}")
    raise ModelError(f"{loaded.title} cannot be scored, not even one text at a time ({reason}).")


def _label(strategy: str, head: str, batching: str) -> str:
    """Return the name of a way to score in notes and metadata."""
    whole = ", full head" if head == "full" else ""
    return f"{strategy}{whole}{'' if batching == 'padded' else f', {BATCHINGS[batching]}'}"


# Local attention layers that count rows instead of positions: tree rows give incorrect numbers without an error.
_COUNTS_ROWS = {"gpt_neo"}
_ATTENTION = {"full_attention", "sliding_attention"}

_REFUSED = {"prophetnet": "its log-probabilities with a cache are others than without one"}

_SHORTEST_CHECK = 64  # tokens of a text
_LONGEST_TOGETHER = 2048  # tokens of a text up to which all texts of a check share a batch, and two a row
_BEYOND = 32  # tokens of a text after a threshold that is checked
BATCH_ROUNDING = "its 8-bit layers round by all tokens of a batch, so that each text is computed alone"
ALL_NAN = "the model returns NaN for all tested tokens"
NAN_ADVICE = "Its weights are damaged, or too large for float16. Try dtype: bfloat16 or float32."
_SHARE = 0.05  # fraction of the evaluation's tokens that the check may recompute


@dataclass(frozen=True)
class Check:
    """Outcome of comparing a strategy with the scores of single texts."""

    agrees: bool
    difference: float | None  # largest |difference| of a token's log-probability, nats; None: not available
    tokens: int  # of the longest text compared
    reason: str | None = None  # reason for a disagreement
    noise: dict[str, float] = field(default_factory=dict)  # see `noise_by_length`


def noise_by_length(differences: np.ndarray) -> dict[str, float]:
    """Return the standard deviation of a span's difference between two computations, in nats, by its length in tokens.

    `differences` (T,): of the log-probabilities of consecutive tokens. It is that of the sums over all spans of so many
    tokens, of which at least two fit, or a quarter of the largest (in bfloat16, most texts have none and a few much),
    and grows at least as the root of the length. It is at least that of float32, which a few texts may not show.

    >>> noise_by_length(np.array([0.1, -0.1] * 4)), noise_by_length(np.array([]))
    ({'1': 0.1, '4': 0.2}, {'1': 5e-06})
    """
    noise, sums = {"1": _FLOAT32}, np.concatenate([[0.0], np.cumsum(differences[np.isfinite(differences)])])
    smallest = _FLOAT32  # of one token
    for length in _SPANS:
        if len(sums) > 2 * length or (length == 1 and len(sums) > 1):
            spans = np.abs(sums[length:] - sums[:-length])
            spread = float(max(np.sqrt(np.mean(spans**2)), spans.max() / 4))
            smallest = max(smallest, spread / length**0.5)
            noise[str(length)] = round(smallest * length**0.5, 12)
    return noise


_FLOAT32 = 5e-6  # nats of a token: some units in the last place of logits up to 30
_SPANS = (1, 4, 16, 64)  # tokens
# texts of which the noise is measured, at least and at most (a twentieth of an evaluation), and tokens of each
_FEWEST_TEXTS, _NOISE_TEXTS, _NOISE_TOKENS = 4, 32, 512


def noise_sample(texts: list) -> list:
    """Return the texts of which the noise is measured."""
    n_texts = min(_NOISE_TEXTS, max(_FEWEST_TEXTS, int(_SHARE * len(texts))))
    return texts[:: max(1, len(texts) // n_texts)][:n_texts]


def _measured_noise(
    loaded: LoadedModel, strategy: str, paths: list[Path], full_model: bool, batching: str
) -> dict[str, float] | None:
    """Return the noise of texts in one batch against single ones, once per load; None in full precision.

    The three short texts of a check often have no noise: kernels differ by the number of rows.
    """
    if loaded.dtype in (torch.float32, torch.float64):
        return None
    key = "noise", strategy, full_model, batching
    if key not in loaded.checks:
        texts = [path.tokens[:_NOISE_TOKENS] for path in noise_sample(paths) if len(path.tokens) > 1]
        sample = [Path(text, 1, text[1:]) for text in texts]

        def differences() -> np.ndarray:
            trie = build_trie(sample)
            together = _strategy_logprobs(loaded, strategy, sample, full_model, batching, trie.size, trie)
            return np.concatenate(together) - np.concatenate([_reference_logprobs(loaded, path) for path in sample])

        with np.errstate(invalid="ignore"):
            found = within_memory(loaded, differences) if sample else None
        loaded.checks[key] = None if found is None else noise_by_length(found)
    return loaded.checks[key]


def unsupported_reason(loaded: LoadedModel, strategy: str) -> str | None:
    """Return why a model does not support a strategy; None if no reason is known."""
    if strategy == "plain":
        return None
    if loaded.depends_on_batch:
        return BATCH_ROUNDING if loaded.rounds_by_batch else "deterministic: each text is computed alone"
    model, config = loaded.model, loaded.model.config.get_text_config(decoder=True)
    parameters = inspect.signature(loaded.body.forward).parameters
    layer_types = set(getattr(config, "layer_types", None) or ())
    if (state := state_name(loaded.body.forward)) is None:
        return f"{type(model).__name__} takes no cache"
    if getattr(model, "_is_stateful", False) or state not in ("cache", "past_key_values"):
        return f"{type(model).__name__} has a recurrent state instead of cached keys and values"
    if unsupported := sorted(layer_types - _ATTENTION):
        return f"{type(model).__name__} has {unsupported[0]} layers"
    if strategy == "prefix":
        return None
    if "position_ids" not in parameters or getattr(config, "alibi", False):
        return f"{type(model).__name__} derives positions from the order of the tokens"
    if config.model_type in _COUNTS_ROWS:
        return f"{type(model).__name__} has local attention layers that count rows instead of positions"
    if config._attn_implementation not in ("sdpa", "eager"):
        return f"{config._attn_implementation} does not support a custom attention mask"
    return None


def check(
    loaded: LoadedModel, strategy: str, paths: list[Path], tokens: int, *, head: str = "rows", batching: str = "padded"
) -> tuple[str, Check]:
    """Compare a strategy with scoring one text at a time, on a few of the evaluation's texts; cached per load.

    The texts have unequal lengths, and share a beginning if some of the evaluation do. They are truncated, so that the
    check costs a few percent of the evaluation's `tokens`; but if something may change in longer ones, the longest is
    compared as well, see `LoadedModel.has_threshold`. Raises ModelError if memory does not suffice even for that.
    Returns (name of the check, its outcome).
    """
    longest = max(len(path.tokens) for path in paths)
    first = loaded.lengths.first(longest)  # shorter texts have other positions
    name = _label(strategy, head, batching) + (f", from {first} tokens" if first else "")
    max_tokens = max(_SHORTEST_CHECK, int(_SHARE * tokens / 2))
    size, beyond, texts = min(longest, first + _BEYOND if first > max_tokens else max_tokens), False, []
    while True:
        key = name, beyond, "shared"  # whether its texts shared a beginning, else whether there were several
        if key not in loaded.checks:
            texts = texts or _sorted_texts(paths)
            key = name, beyond, "shared" if len(_sharing(texts)) > 1 else min(2, len(texts))
        done, result = loaded.checks.get(key, (0, None))
        is_longer = size > 2 * done or (beyond and loaded.has_threshold(done, size))
        if result is None or ALL_NAN in (result.reason or "") or (result.agrees and is_longer):
            texts = texts or _sorted_texts(paths)
            sample = _sample(texts, size, beyond=beyond)
            if batching == "equal":
                longest_text = max((path.tokens for path in sample), key=len)
                sample = [Path(row, 1, row[1:]) for row in (np.roll(longest_text, 1), longest_text)]
            # of a text beyond a threshold, only the last tokens are compared: all logits would not fit in memory
            if beyond or first > _SHORTEST_CHECK:
                sample = [_last_queries(loaded, path) for path in sample]
            result = _compare(loaded, strategy, sample, head == "full", batching)
            loaded.checks[key] = size, result
        if beyond or not result.agrees or not loaded.has_threshold(result.tokens, longest):
            return name, result
        size, beyond = longest, True


def _last_queries(loaded: LoadedModel, path: Path) -> Path:
    n_queries = max(_SHORTEST_CHECK, LOGIT_BYTES // (16 * loaded.n_outputs))
    start = max(1, len(path.tokens) - n_queries)
    return Path(path.tokens, start, path.tokens[start:])


def _compare(loaded: LoadedModel, strategy: str, sample: list[Path], full_model: bool, batching: str) -> Check:
    last_rows = range(len(sample))[-2:]  # one is padded, and one follows another text in its row
    max_tokens = max(len(path.tokens) for path in sample)

    # the last token has no target: only the single text, as it stands in the evaluation, reads it
    ends = [None if loaded.lengths.varies or len(path.tokens) < 2 else -1 for path in sample]
    cut = zip(sample, ends, strict=True)
    read = [Path(path.tokens[:end], path.start, _predictable(loaded, path)) for path, end in cut]

    def compute_pairs() -> list[tuple[float, float]]:
        trie, pairs = build_trie(read), []
        references = {row: _reference_logprobs(loaded, sample[row]) for row in last_rows}
        for limit in _row_limits(trie) if strategy == "tree" else [trie.size]:
            logprobs = _strategy_logprobs(loaded, strategy, read, full_model, batching, limit, trie)
            pairs += [(a, b) for row in last_rows for a, b in zip(logprobs[row], references[row], strict=True)]
        return pairs

    try:
        pairs = within_memory(loaded, compute_pairs)
    except MODEL_ERRORS as error:
        return Check(False, None, max_tokens, named(error))
    if pairs is not None:
        return _evaluate_check(loaded, pairs, max_tokens)
    if (shorter := halve(max_tokens, _SHORTEST_CHECK)) is None:
        raise ModelError(
            f"model {loaded.record.name}: out of memory for a text of {max_tokens} tokens on {loaded.device}."
        )
    return _compare(loaded, strategy, [_truncate(path, shorter) for path in sample], full_model, batching)


def _predictable(loaded: LoadedModel, path: Path) -> np.ndarray:
    """Return the targets of a path, with another token in place of those that the model cannot predict."""
    return np.minimum(path.targets, np.int32(loaded.n_outputs - 1))


def _truncate(path: Path, max_tokens: int) -> Path:
    tokens = path.tokens[:max_tokens]
    start = max(1, min(path.start, len(tokens) - _SHORTEST_CHECK))
    return Path(tokens, start, tokens[start:])


def paths_without_nan(loaded: LoadedModel, paths: list[Path]) -> list[Path]:
    """Return those of about 16 paths, evenly sampled, for which the model alone returns a number."""
    sample = paths[:: max(1, len(paths) // 16)]

    def all_logprobs(path: Path) -> list[float]:
        return _reference_logprobs(loaded, Path(path.tokens, 1, path.tokens[1:]))

    return [path for path in sample if not all(map(isnan, all_logprobs(path)))]


def _evaluate_check(loaded: LoadedModel, pairs: list[tuple[float, float]], max_tokens: int) -> Check:
    """Return the outcome of a comparison.

    `pairs`: each token's log-probability by the strategy, and of the single text (NaN: excluded).
    """
    if not pairs:
        return Check(True, None, max_tokens)
    result = agreement(*torch.tensor(pairs, dtype=torch.float64).unbind(1), loaded.precision)
    if not result.compared:
        return Check(False, None, max_tokens, ALL_NAN)
    reason = None if result.agrees else f"differs from single texts by {result.deviation:.2g} nats per token"
    with np.errstate(invalid="ignore"):
        noise = noise_by_length(np.subtract(*np.array(pairs, dtype=float).T)) if result.agrees else {}
    return Check(result.agrees, result.largest if isfinite(result.largest) else None, max_tokens, reason, noise)


def _sorted_texts(paths: list[Path]) -> list[np.ndarray]:
    """Return the distinct texts, in the order of the trie."""
    by_key = {sort_key(path.tokens): path.tokens for path in paths}
    return [by_key[key] for key in sorted(by_key)]


def _n_common(texts: list[np.ndarray]) -> int:
    """Return the number of tokens with which all of some sorted texts begin."""
    return common_length(sort_key(texts[0]), sort_key(texts[-1])) // 4


def _sharing(texts: list[np.ndarray]) -> list[np.ndarray]:
    """Return the largest group of sorted texts with a common beginning that a plan may cache; at least one text."""
    groups = [[texts[0]]]
    for text in texts[1:]:
        if _n_common([groups[-1][0], text]) >= MIN_PREFIX_TOKENS:
            groups[-1].append(text)
        else:
            groups.append([text])
    return max(groups, key=len)


def _sample(texts: list[np.ndarray], max_tokens: int, *, beyond: bool) -> list[Path]:
    """Return three texts of unequal lengths, two of them neighbors in the trie, with all token queries.

    They share a beginning if some of the sorted `texts` do, and are truncated to `max_tokens`; `beyond`: one is the
    longest.
    """
    if beyond:
        index = max(range(len(texts)), key=lambda number: len(texts[number]))
        neighbor = index - 1 if index else index + 1
        others = [number for number in (0, len(texts) - 1) if number not in (index, neighbor)]
        chosen = [texts[number] for number in (neighbor, *others[:1], index) if number < len(texts)]
        n_shared = _n_common(sorted(chosen, key=sort_key))
    else:
        texts = group if len(group := _sharing(texts)) > 1 else texts
        n_shared = _n_common(texts)
        # those that differ soon
        distinct = list({text[n_shared : n_shared + max_tokens // 2].tobytes(): text for text in texts}.values())
        middle = max(0, len(distinct) // 2 - 1)
        chosen = [distinct[middle], *distinct[middle + 2 :][-1:], *distinct[middle + 1 : middle + 2]]
        # an option of one token adds nothing to read: every text gets some tokens after what it shares
        chosen = [np.append(text, text[: max(0, n_shared + max_tokens // 4 - len(text))]) for text in chosen]
    # the same start for all texts, with half of the remainder still shared, so that cached prefixes are checked, too
    start = max(0, min(min(map(len, chosen)) - max_tokens, n_shared - max_tokens // 2))
    chosen = [text[start : start + max_tokens] for text in chosen]
    if len(chosen) > 1 and len(chosen[-2]) == len(chosen[-1]):  # padding is checked, too
        chosen[-2] = chosen[-2][: max(n_shared - start + 2, 3 * len(chosen[-2]) // 4)]
    return [Path(text, 1, text[1:]) for text in chosen]


def _row_limits(trie: Trie) -> list[int]:
    """Return tokens of a tree row with which a plan of the sample caches a prefix, and two texts share a row."""
    node = max(trie.roots, key=lambda node: node.leaves)
    while node.end < MIN_PREFIX_TOKENS and node.children:
        node = max(node.children.values(), key=lambda child: child.leaves)
    if node.leaves == 1:
        return [trie.size]
    below = node.size - len(node.tokens)
    return [below - 1] if node.leaves > 2 else [below - 1, below]  # not all branches, but two of three


def _strategy_logprobs(
    loaded: LoadedModel, strategy: str, sample: list[Path], full_model: bool, batching: str, row: int, trie: Trie
) -> list[list[float]]:
    """Return, per text of the sample, the log-probabilities of its targets; texts of all lengths share a batch."""
    loaded.forget_lengths()
    longest = max(len(path.tokens) for path in sample)
    budget = len(sample) * longest if len(sample) > 1 else max(1, longest // 5)  # one text: in passes, as a long one
    if longest > _LONGEST_TOGETHER:  # as in the evaluation, for which such texts are too long to share a row
        budget = token_budget(loaded)
    limits = PlanLimits(
        budget=1 if batching == "single" else budget,
        row=min(row, budget),
        forward=1,
        shortest_prefix=loaded.lengths.first(longest),
        slack=0 if batching == "equal" else longest,
    )
    body, head = Body(loaded, tree=strategy == "tree", full_model=full_model), Head(loaded, full_model=full_model)
    logprobs = np.zeros(len(trie.positions), np.float32)  # of each distinct token query
    for batch in plan(trie, strategy, limits):
        logprobs[batch.queries.indices] = score_batch(body, head, batch).result().logprobs
    edges = np.cumsum([len(path.targets) for path in sample])[:-1]
    return [values.tolist() for values in np.split(logprobs[trie.queries], edges)]


@torch.inference_mode()
def _reference_logprobs(loaded: LoadedModel, path: Path) -> list[float]:
    """Return the reference log-probabilities of one text, from a forward pass of the complete transformers model."""
    loaded.forget_lengths()
    ids = torch.from_numpy(path.tokens.astype(np.int64))[None].to(loaded.device)
    n_logits = len(path.targets) + 1
    takes_number = "logits_to_keep" in inspect.signature(loaded.model.forward).parameters
    kwargs = {"logits_to_keep": n_logits} if takes_number and n_logits < ids.shape[1] else {}
    logits = loaded.model(input_ids=ids, **kwargs, **loaded.without_cache).logits[0, -n_logits:-1].float()
    targets = torch.from_numpy(_predictable(loaded, path).astype(np.int64)).to(logits.device)[:, None]
    return (logits.gather(-1, targets)[:, 0] - logits.logsumexp(-1)).tolist()
