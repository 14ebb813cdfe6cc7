"""The outputs of token queries, also while a device still computes them."""

from dataclasses import dataclass

import numpy as np
import torch

_DTYPES = {"is_greedy": np.bool_, "rank": np.int32, "top_id": np.int32}  # of the arrays; all others are float32


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
        return cls(
            **{name: None if v is None else np.array(v, _DTYPES.get(name, np.float32)) for name, v in lists.items()}
        )


class PendingScores:
    """Outputs that a GPU may still compute: the host can go on, and `result` waits for them alone.

    They are copied to the host behind the kernels that compute them, so that waiting does not include the kernels of
    the batches that were started later.
    """

    def __init__(self, chunks: list[dict[str, torch.Tensor]]):
        """`chunks`: outputs of consecutive token queries, one-dimensional tensors by the names of `TokenScores`."""
        merged = {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}
        self._sizes = {name: values.numel() * values.itemsize for name, values in merged.items()}
        self._packed = torch.cat([values.view(torch.uint8) for values in merged.values()])
        self._copied: torch.cuda.Event | None = None
        if (device := self._packed.device).type == "cuda":
            host = torch.empty(len(self._packed), dtype=torch.uint8, pin_memory=True)
            self._packed = host.copy_(self._packed, non_blocking=True)
            with torch.cuda.device(device):
                self._copied = torch.cuda.Event()
                self._copied.record()

    def result(self) -> TokenScores:
        """Wait for the outputs and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        packed, arrays, start = self._packed.numpy(), {}, 0
        for name, size in self._sizes.items():
            arrays[name] = np.frombuffer(packed[start : start + size].tobytes(), _DTYPES.get(name, np.float32))
            start += size
        return TokenScores(**arrays)
