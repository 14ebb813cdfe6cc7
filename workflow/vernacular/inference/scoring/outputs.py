"""The outputs of token queries: their names, and their values in NumPy, whatever has computed them."""

from dataclasses import dataclass

import numpy as np

from vernacular.inference.model.tokenization import TextModel
from vernacular.inference.scoring.plan import BATCHINGS, STRATEGIES

DTYPES = {"is_greedy": np.bool_, "rank": np.int32, "top_id": np.int32}  # of the arrays; all others are float32


@dataclass
class TokenScores:
    """The outputs of some token queries, as parallel arrays; None if not requested.

    Where only the distribution was requested, `logprobs`, `is_greedy`, `rank` and `top_id` have no meaning.
    """

    logprobs: np.ndarray  # float32, nats
    is_greedy: np.ndarray  # bool: no token is more probable (true for each of several equally probable ones)
    rank: np.ndarray | None = None  # int32, 1 + number of more probable tokens
    top_id: np.ndarray | None = None  # int32, ID of the most probable token
    entropy: np.ndarray | None = None  # float32, nats
    topk_entropy: np.ndarray | None = None  # float32, nats, of the TOP_K most probable tokens, renormalized
    logprob_mean: np.ndarray | None = None  # float32, nats, of ln p under the distribution: minus its entropy
    logprob_sd: np.ndarray | None = None  # float32, nats, standard deviation of ln p under the distribution
    word_end_logprobs: np.ndarray | None = None  # float32, ln P(next token begins a word or ends the text)

    def to_lists(self) -> dict[str, list | None]:
        """Return the arrays as lists, for a journal."""
        return {name: None if values is None else values.tolist() for name, values in vars(self).items()}

    @classmethod
    def from_lists(cls, lists: dict[str, list | None]) -> "TokenScores":
        """Return the inverse of `to_lists`, bit for bit."""
        dtypes = {name: DTYPES.get(name, np.float32) for name in lists}
        return cls(**{name: None if v is None else np.array(v, dtypes[name]) for name, v in lists.items()})


class PendingScores:
    """Outputs that a device may still compute: `result` waits for them alone."""

    def __init__(self, scores: TokenScores):
        self._scores = scores

    def result(self) -> TokenScores:
        """Wait for the outputs and return them."""
        return self._scores


EXACT = {"1": 0.0}  # the noise of texts that are computed alone
TOP_K = 100  # number of most probable tokens in topk_entropy
EXTRAS = {  # statistics that a request may ask for, with the outputs that they add
    "entropy": ("entropy", "topk_entropy"),
    "logprob_moments": ("logprob_mean", "logprob_sd"),
    "rank": ("rank",),
    "top_token": ("top_id",),
    "word_end_logprobs": ("word_end_logprobs",),
}
CAUSAL_EXTRAS = {"logprob_moments", "word_end_logprobs"}  # not defined for masked models


def starts_word(loaded: TextModel) -> list[bool]:
    """Return of each token of the vocabulary whether a word begins with it, or the text ends with it.

    As Pimentel & Meister (2024), "How to Compute the Probability of a Word", EMNLP: marked beginnings and EOS; if the
    tokenizer marks continuations (##), all unmarked tokens and EOS.
    """
    tokenizer = loaded.tokenizer
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    names = ["" if name is None else name for name in names]
    whitespace_markers = ("Ġ", "▁", "Ċ", "ĉ", "č", "<0x20>", "<0x0A>", "<0x0D>", "<0x09>")
    starts = [name.startswith(whitespace_markers) or name[:1].isspace() for name in names]
    if not any(starts):
        starts = [not name.startswith("##") for name in names]
    if loaded.eos_id is not None:
        starts[loaded.eos_id] = True
    return starts


def merge_metadata(engines: list[dict]) -> dict:
    """Merge the metadata of an evaluation's chunks: the slowest strategy, the worst outcome of each check."""
    slowest = max(engines, key=lambda metadata: STRATEGIES.index(metadata["strategy"]))
    checks: dict[str, dict] = {}
    for name, outcome in (entry for metadata in engines for entry in metadata["self_check"].items()):
        checks[name] = max(
            checks.get(name, outcome), outcome, key=lambda entry: (not entry["agrees"], entry["difference"] or 0.0)
        )
    merged = {**slowest, "self_check": checks}
    merged["fallback"] = list(dict.fromkeys(reason for metadata in engines for reason in metadata["fallback"]))
    merged["head"] = "full" if any(metadata["head"] == "full" for metadata in engines) else "rows"
    merged["batching"] = max((metadata["batching"] for metadata in engines), key=list(BATCHINGS).index)
    if noises := [metadata["noise"] for metadata in engines if metadata.get("noise")]:
        merged["noise"] = {  # it grows with the root of the length beyond the longest that a chunk states
            n: max(
                round(noise[k] * (int(n) / int(k)) ** 0.5, 12) for noise in noises for k in noise if int(k) <= int(n)
            )
            for n in sorted(set().union(*noises), key=int)
        }
    if "pll" in slowest:
        merged["pll"] = sorted({variant for metadata in engines for variant in metadata["pll"]})
    return merged
