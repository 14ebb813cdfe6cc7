"""Forward passes: the hidden states of a batch of rows after a cached prefix, and the keys and values of prefixes.

Rows that are single paths are padded on the right and need no mask: a causal token does not attend to later padding.
Tree rows have an additive 4-D mask in which a token attends to its prefix and its ancestors, and `position_ids` that
count along its own path. Sliding-window layers have a separate mask, in which the window is computed from positions.
(transformers uses a 4-D mask unchanged: masking_utils.py.)
"""

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring.plan import Batch, CachedPrefix, PackedRow


class Body:
    """The model below its output head, with a cache of the prefixes in use."""

    def __init__(self, loaded: LoadedModel, *, tree: bool, full_model: bool = False):
        self.loaded, self.tree = loaded, tree
        self.model = loaded.model if full_model else loaded.body  # full_model: the "hidden states" are logits
        self.windows = layer_windows(loaded.model.config) if tree else {}
        self.has_use_cache = "use_cache" in loaded.model.config.to_dict()
        self.cached: dict[CachedPrefix, list] = {}  # (keys, values) or None per layer, [1, heads, length, size]
        self.forwards = self.tokens = 0
        self.output = None  # the last output object, whose type the head reuses

    @torch.inference_mode()
    def hidden(self, batch: Batch) -> torch.Tensor:
        """Return the last hidden states, [rows, longest row, hidden size]; padding included."""
        if batch.computed_prefix is not None:
            return self._compute_prefix(batch.computed_prefix)
        return self._run(batch.rows, batch.prefix)[0]

    def clear_cache(self) -> None:
        """Drop all cached prefixes."""
        self.cached, self.output = {}, None

    def _past_states(self, prefix: CachedPrefix) -> list | None:
        """Return a prefix's keys and values, computed if not cached; drop all others except its ancestors."""
        if prefix.parent is None:
            return None
        ancestors = set()
        while prefix.parent is not None:
            ancestors.add(prefix)
            prefix = prefix.parent
        self.cached = {ancestor: keys for ancestor, keys in self.cached.items() if ancestor in ancestors}
        for ancestor in sorted(ancestors, key=lambda p: p.length):
            if ancestor not in self.cached:
                self._compute_prefix(ancestor)
        return self.cached[max(ancestors, key=lambda p: p.length)]

    def _compute_prefix(self, prefix: CachedPrefix) -> torch.Tensor:
        hidden, cache = self._run([prefix.row], prefix.parent, use_cache=True)
        self.cached[prefix] = [(layer.keys, layer.values) if layer.is_initialized else None for layer in cache.layers]
        return hidden

    def _run(self, rows: list[PackedRow], prefix: CachedPrefix, *, use_cache: bool = False):
        """Run one forward pass; return (hidden states, the cache or None)."""
        past_states, past = self._past_states(prefix), prefix.length
        longest = max(map(len, rows))
        ids = np.zeros((len(rows), longest), np.int64)
        for r, row in enumerate(rows):
            ids[r, : len(row)] = row.tokens()
        kwargs = {"input_ids": to_device(ids, self.loaded.device)}
        if past_states is not None or use_cache:
            cache = _cache(past_states or [], len(rows), stores=use_cache)
            kwargs |= {"past_key_values": cache, "use_cache": True}
        elif self.has_use_cache:
            kwargs["use_cache"] = False
        if self.tree and not all(row.is_path for row in rows):
            positions, ends = (to_device(array, self.loaded.device) for array in tree_layout(rows, longest))
            kwargs |= {"position_ids": positions, "attention_mask": self._masks(positions, ends, past)}
        output = self.model(**kwargs)
        self.forwards += 1
        self.tokens += ids.size
        self.output = output
        return output[0], kwargs.get("past_key_values")

    def _masks(self, positions: torch.Tensor, ends: torch.Tensor, past: int):
        """Return additive masks [rows, 1, query, past + query]: one, or one per layer type if these differ."""
        visible = attention_visibility(ends, past)
        keys = torch.cat([torch.arange(past, device=ends.device).expand(len(positions), -1), positions], dim=1)
        masks = {}
        for kind, window in self.windows.items():
            allowed = visible if window is None else visible & (positions[:, :, None] - keys[:, None, :] < window)
            # rows aligned to 16 elements: the attention kernels of a GPU would copy others, in every layer
            *shape, width = allowed.shape
            mask = torch.zeros(*shape, -(-width // 16) * 16, dtype=self.loaded.dtype, device=ends.device)[..., :width]
            masks[kind] = mask.masked_fill_(~allowed, torch.finfo(mask.dtype).min)[:, None]
        return masks if len(masks) > 1 else next(iter(masks.values()))


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy on the device; a GPU copies from pinned memory while the host continues."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def tree_layout(rows: list[PackedRow], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (positions, ends), each [rows, longest].

    A position is the token's index in its own text; an end is the column where the token's subtree ends.
    """
    positions = np.zeros((len(rows), longest), np.int64)
    ends = np.tile(np.arange(1, longest + 1), (len(rows), 1))  # padding: its own end
    for r, row in enumerate(rows):
        sizes = np.array([len(segment.node.tokens) for segment in row.segments])
        stops = np.cumsum(sizes)
        first_positions = np.array([segment.node.start for segment in row.segments])
        positions[r, : len(row)] = np.arange(len(row)) + np.repeat(first_positions - stops + sizes, sizes)
        stops = stops.tolist()
        for index in range(len(row.segments) - 1, -1, -1):  # children follow their parent
            parent = row.segments[index].parent
            if parent is not None:
                stops[parent] = max(stops[parent], stops[index])
        ends[r, : len(row)] = np.repeat(stops, sizes)
    return positions, ends


def attention_visibility(ends: torch.Tensor, past: int) -> torch.Tensor:
    """Return whether a query attends to a key, [rows, query, past + query], from subtree ends [rows, query].

    A row lists its segments depth first, so token i descends from token j exactly if j <= i and i is before the end of
    j's subtree. All tokens attend to the cached prefix; padding attends to itself, too (without any key, the output
    would be NaN).
    """
    rows, longest = ends.shape
    column = torch.arange(longest, device=ends.device)
    visible = (column[None, :] <= column[:, None])[None] & (column[None, :, None] < ends[:, None, :])
    return torch.cat([torch.ones(rows, longest, past, dtype=torch.bool, device=ends.device), visible], dim=2)


def layer_windows(config) -> dict[str, int | None]:
    """Return the sliding window in tokens by attention layer type (None: full attention)."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return {"sliding_attention": window} if window else {"full_attention": None}
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(set(kinds))}


class _PrefixLayer(DynamicLayer):
    """A layer that holds a prefix only: the keys and values of the rows after it are needed by their own pass alone."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Return the prefix's keys and values, followed by new ones: [rows, heads, length, size]."""
        return torch.cat([self.keys, key_states], dim=-2), torch.cat([self.values, value_states], dim=-2)


def _cache(past_states: list, rows: int, *, stores: bool) -> DynamicCache:
    """Return a cache that begins with a prefix, for `rows` rows; `stores`: it will be the cache of a longer prefix.

    Every layer holds full keys; sliding windows are applied by the mask.
    """
    cache = DynamicCache()
    for keys in past_states:
        layer = DynamicLayer() if stores or keys is None else _PrefixLayer()
        if keys is not None:
            layer.lazy_initialization(*keys)
            # views: the prefix is not copied
            layer.keys, layer.values = (tensor.expand(rows, -1, -1, -1) for tensor in keys)
        cache.layers.append(layer)
    return cache
