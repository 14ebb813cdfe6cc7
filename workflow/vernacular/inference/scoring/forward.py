"""Forward passes: the hidden states of a batch of rows after a block, and the keys and values of blocks.

Rows that are single paths are padded on the right and need no mask: a causal token does not attend to later padding.
Tree rows have an additive 4-D mask in which a token attends to its block and its ancestors, and `position_ids` that
count along its own path. Sliding-window layers have a separate mask, in which the window is computed from positions.
(transformers uses a 4-D mask unchanged: masking_utils.py.)
"""

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring.plan import Batch, Block, Row


class Body:
    """The model below its output head, with a cache of the blocks in use."""

    def __init__(self, loaded: LoadedModel, *, tree: bool, whole: bool = False):
        self.loaded, self.tree = loaded, tree
        self.model = loaded.model if whole else loaded.body  # whole: the "hidden states" are logits
        self.windows = layer_windows(loaded.model.config)
        self.kept: dict[Block, list] = {}  # block -> [(keys, values) or None] per layer, shape [1, heads, length, size]
        self.forwards = self.tokens = 0
        self.output = None  # the last output object, whose type the head reuses

    @torch.inference_mode()
    def hidden(self, batch: Batch) -> torch.Tensor:
        """Return the last hidden states, [rows, longest row, hidden size]; padding included."""
        if batch.fills is not None:
            return self._fill(batch.fills)
        return self._run(batch.rows, batch.block)[0]

    def forget(self) -> None:
        """Drop all blocks."""
        self.kept, self.output = {}, None

    def _keys(self, block: Block) -> list | None:
        """Return a block's keys and values, computed if not cached; drop all blocks except it and its ancestors."""
        if block.parent is None:
            return None
        beneath = set()
        while block.parent is not None:
            beneath.add(block)
            block = block.parent
        self.kept = {each: keys for each, keys in self.kept.items() if each in beneath}
        for each in sorted(beneath, key=lambda b: b.length):
            if each not in self.kept:
                self._fill(each)
        return self.kept[max(beneath, key=lambda b: b.length)]

    def _fill(self, block: Block) -> torch.Tensor:
        hidden, cache = self._run([block.row], block.parent, keep=True)
        self.kept[block] = [(layer.keys, layer.values) if layer.is_initialized else None for layer in cache.layers]
        return hidden

    def _run(self, rows: list[Row], block: Block, *, keep: bool = False):
        """Run one forward pass; return (hidden states, the cache or None)."""
        below, past = self._keys(block), block.length
        longest = max(map(len, rows))
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        for r, row in enumerate(rows):
            ids[r, : len(row)] = torch.tensor([token for piece in row.pieces for token in piece.node.tokens])
        options = {"input_ids": ids.to(self.loaded.device)}
        if below is not None or keep:
            options |= {"past_key_values": _cache(below or [], len(rows)), "use_cache": True}
        elif "use_cache" in self.loaded.model.config.to_dict():
            options["use_cache"] = False
        if self.tree and not all(_is_path(row) for row in rows):
            positions, ends = (part.to(self.loaded.device) for part in tree_layout(rows, longest))
            options |= {"position_ids": positions, "attention_mask": self._masks(positions, ends, past)}
        output = self.model(**options)
        self.forwards += 1
        self.tokens += ids.numel()
        self.output = output
        return output[0], options.get("past_key_values")

    def _masks(self, positions: torch.Tensor, ends: torch.Tensor, past: int):
        """Return additive masks [rows, 1, query, past + query]: one, or one per layer type if these differ."""
        sees = who_sees_whom(ends, past)
        keys = torch.cat([torch.arange(past, device=ends.device).expand(len(positions), -1), positions], dim=1)
        made = {}
        for kind, window in self.windows.items():
            allowed = sees if window is None else sees & (positions[:, :, None] - keys[:, None, :] < window)
            mask = torch.zeros(allowed.shape, dtype=self.loaded.dtype, device=ends.device)
            made[kind] = mask.masked_fill_(~allowed, torch.finfo(mask.dtype).min)[:, None]
        return made if len(made) > 1 else next(iter(made.values()))


def tree_layout(rows: list[Row], longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (positions, ends), each [rows, longest].

    A position is the token's index in its own text; an end is the column where the token's subtree ends.
    """
    positions = torch.zeros(len(rows), longest, dtype=torch.long)
    ends = torch.arange(1, longest + 1).repeat(len(rows), 1)  # padding: its own end
    for r, row in enumerate(rows):
        starts, stops = [], []
        column = 0
        for piece in row.pieces:
            size = len(piece.node.tokens)
            starts.append(column)
            stops.append(column + size)
            positions[r, column : column + size] = torch.arange(piece.node.start, piece.node.end)
            column += size
        for index in range(len(row.pieces) - 1, -1, -1):  # children follow their parent
            parent = row.pieces[index].parent
            if parent is not None:
                stops[parent] = max(stops[parent], stops[index])
        for piece, start, stop in zip(row.pieces, starts, stops, strict=True):
            ends[r, start : start + len(piece.node.tokens)] = stop
    return positions, ends


def who_sees_whom(ends: torch.Tensor, past: int) -> torch.Tensor:
    """Return whether a query attends to a key, [rows, query, past + query], from subtree ends [rows, query].

    A row lists its pieces depth first, so token i descends from token j exactly if j <= i and i is before the end of
    j's subtree. All tokens attend to the block; padding attends to itself, too (without any key, the output would be
    NaN).
    """
    rows, longest = ends.shape
    column = torch.arange(longest, device=ends.device)
    sees = (column[None, :] <= column[:, None])[None] & (column[None, :, None] < ends[:, None, :])
    return torch.cat([torch.ones(rows, longest, past, dtype=torch.bool, device=ends.device), sees], dim=2)


def layer_windows(config) -> dict[str, int | None]:
    """Return the sliding window in tokens by attention layer type (None: full attention)."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return {"sliding_attention": window} if window else {"full_attention": None}
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(set(kinds))}


def _is_path(row: Row) -> bool:
    return all(piece.parent == (index - 1 if index else None) for index, piece in enumerate(row.pieces))


def _cache(below: list, rows: int) -> DynamicCache:
    """Return a cache that begins with a block, for `rows` rows.

    Every layer holds full keys; sliding windows are applied by the mask.
    """
    cache = DynamicCache()
    for keys in below:
        layer = DynamicLayer()
        if keys is not None:
            layer.lazy_initialization(*keys)
            layer.keys, layer.values = (
                part.expand(rows, -1, -1, -1) for part in keys
            )  # views: the block is not copied
        cache.layers.append(layer)
    return cache
