"""Key-value caches: one that grows without copying itself, and a shared prefix computed once for many rows."""

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vernacular.inference.model.loaded import LoadedModel


class GrowingLayer(DynamicLayer):
    """A DynamicLayer with preallocated space: appending a token writes one token, whereas `cat` copies all."""

    def __init__(self, room: int):
        super().__init__()
        self.room = room  # free space in tokens at each allocation, in addition to the current tokens
        self._space: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(self, key_states, value_states, *args, **kwargs):
        """Append the new states and return all keys and values, as views of the preallocated space.

        Keys and values: [batch, heads, length, head_dim].
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._space is None or end > self._space[0].shape[-2]:
            self._space = tuple(
                self._reallocate(previous, added, start, end)
                for previous, added in self._state_pairs(key_states, value_states)
            )
        for space, states in zip(self._space, (key_states, value_states), strict=True):
            space[..., start:end, :] = states
        self.keys, self.values = (space[..., :end, :] for space in self._space)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row `repeats` times; the next update reallocates the space."""
        super().batch_repeat_interleave(repeats)
        self._space = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Retain only the rows `indices`; the next update reallocates the space."""
        super().batch_select_indices(indices)
        self._space = None

    def _state_pairs(self, key_states, value_states):
        return ((self.keys, key_states), (self.values, value_states))

    def _reallocate(self, previous, added, start: int, end: int) -> torch.Tensor:
        space = added.new_empty(*added.shape[:-2], end + self.room, added.shape[-1])
        if start:
            space[..., :start, :] = previous
        return space


STATES = ("past_key_values", "cache_params", "state")  # names in a model's outputs, and of the argument that takes it


def new_cache(loaded: LoadedModel, room: int) -> DynamicCache | None:
    """Return an empty cache in which full-attention layers are `GrowingLayer`s; None: the model creates its own.

    A model with states of another kind knows best what it needs.
    """
    if "past_key_values" not in inspect.signature(loaded.model.forward).parameters:
        return None
    cache = DynamicCache(config=loaded.model.config)
    if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return None
    cache.layers = [GrowingLayer(room) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def returned_state(outputs) -> tuple[str, Any]:
    """Return (name, state) of a model's outputs. Raises ValueError if they have none."""
    for name in STATES:
        if (state := getattr(outputs, name, None)) is not None:
            return name, state
    raise ValueError("the model returns no state from which it could continue")


def can_select_rows(cache) -> bool:
    """Return whether finished rows can be removed from this cache."""
    layers = getattr(cache, "layers", None)
    return bool(layers) and all(hasattr(layer, "batch_select_indices") for layer in layers)


def can_share_prefix(loaded: LoadedModel, max_tokens: int) -> bool:
    """Return whether rows of up to `max_tokens` tokens can follow one cached prefix, with padding in between.

    Sliding windows count the padding as text, so no row may reach the window size; recurrent states (Mamba and similar
    architectures) include the padding.
    """
    if (cache := new_cache(loaded, 0)) is None:
        return False
    for layer in cache.layers:
        if type(layer) is DynamicSlidingWindowLayer and max_tokens >= layer.sliding_window:
            return False
    return True


@dataclass(frozen=True)
class Prefix:
    """A token sequence that begins many prompts, and the cache after one pass over it (batch size 1)."""

    ids: list[int]
    cache: DynamicCache

    def for_rows(self, rows: int, room: int) -> DynamicCache:
        """Return a copy of the cache for a batch of `rows`, with space for `room` tokens after the prompt."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(rows)
        for layer in cache.layers:
            layer.room = room
        return cache


def common_prefix(rows: list[list[int]]) -> list[int]:
    """Return the longest common prefix of all rows that leaves each row at least one token."""
    smallest, largest = min(rows), max(rows)  # in sorted order, their common prefix is that of all rows
    max_length = min(len(row) for row in rows) - 1
    length = next((i for i, (a, b) in enumerate(zip(smallest, largest, strict=False)) if a != b), max_length)
    return smallest[: min(length, max_length)]
