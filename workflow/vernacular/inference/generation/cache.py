"""Keys and values: a cache that grows without copying itself, and a shared prefix computed once for many rows."""

import copy
import inspect
from dataclasses import dataclass

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vernacular.inference.model.loaded import LoadedModel


class GrowingLayer(DynamicLayer):
    """A DynamicLayer that keeps room for the tokens to come: appending one writes it, where `cat` copies all others."""

    def __init__(self, room: int):
        super().__init__()
        self.room = room  # tokens to have space for beyond those at hand, when space is made
        self._space: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(self, key_states, value_states, *args, **kwargs):
        """keys, values: [batch, heads, length, head_dim], views of the space kept for them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._space is None or end > self._space[0].shape[-2]:
            self._space = tuple(self._wider(old, new, start, end) for old, new in self._with(key_states, value_states))
        for space, states in zip(self._space, (key_states, value_states), strict=True):
            space[..., start:end, :] = states
        self.keys, self.values = (space[..., :end, :] for space in self._space)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row; the space is made anew by the next update."""
        super().batch_repeat_interleave(repeats)
        self._space = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows; the space is made anew by the next update."""
        super().batch_select_indices(indices)
        self._space = None

    def _with(self, key_states, value_states):
        return ((self.keys, key_states), (self.values, value_states))

    def _wider(self, old, new, start: int, end: int) -> torch.Tensor:
        space = new.new_empty(*new.shape[:-2], end + self.room, new.shape[-1])
        if start:
            space[..., :start, :] = old
        return space


def new_cache(loaded: LoadedModel, room: int) -> DynamicCache:
    """An empty cache with the layer types of the model, its plain attention layers growing."""
    cache = DynamicCache(config=loaded.model.config)
    cache.layers = [GrowingLayer(room) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def cache_argument(loaded: LoadedModel) -> str:
    """The name under which the model's forward takes a cache."""
    return "cache_params" if "cache_params" in inspect.signature(loaded.model.forward).parameters else "past_key_values"


def can_select_rows(cache: DynamicCache) -> bool:
    """May finished rows be dropped from this cache?"""
    return all(hasattr(layer, "batch_select_indices") for layer in cache.layers)


def can_share_prefix(loaded: LoadedModel, longest: int) -> bool:
    """May rows of up to `longest` tokens follow a prefix that stands once in the cache, padding between the two?

    Sliding windows count that padding as if it were text, so they must not be reached; states that sum up the past
    (Mamba and its kin) cannot be told apart from their padding.
    """
    layers = DynamicCache(config=loaded.model.config).layers
    if cache_argument(loaded) != "past_key_values":
        return False
    for layer in layers:
        window = layer.sliding_window if type(layer) is DynamicSlidingWindowLayer else None
        if type(layer) is not DynamicLayer and (window is None or longest >= window):
            return False
    return True


@dataclass(frozen=True)
class Prefix:
    """A run of tokens that opens many prompts, and the cache after reading it once (batch 1)."""

    ids: list[int]
    cache: DynamicCache

    def for_rows(self, rows: int, room: int) -> DynamicCache:
        """A cache of its own for a batch of `rows`, with room for as many tokens after the prompt."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(rows)
        for layer in cache.layers:
            layer.room = room
        return cache


def shared_start(rows: list[list[int]]) -> list[int]:
    """The longest run of tokens that opens every row and leaves each at least one token of its own."""
    first, last = min(rows), max(rows)  # in sorted order the two that differ soonest
    limit = min(len(row) for row in rows) - 1
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), limit)
    return first[: min(length, limit)]
