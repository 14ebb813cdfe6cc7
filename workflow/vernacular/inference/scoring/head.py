"""Forward passes, and outputs from hidden states: log-probability, greedy mark, rank, entropies, moments, word end.

Rows that are single paths are padded on the right and need no mask: a causal token does not attend to later padding.
Tree rows have an additive 4-D mask in which a token attends to its prefix and its ancestors, and `position_ids` that
count along its own path. Sliding-window layers have a separate mask, in which the window is computed from positions.
(transformers uses a 4-D mask unchanged: masking_utils.py.)

Only the rows that predict a target go through the output head, in chunks of about 50 MB of logits, which are reduced in
float32. The logits are computed by the model's own `forward`, with the body's output substituted: final soft-capping,
logit scaling, biases and tied heads are those of the model's implementation.
"""

import contextlib
import copy

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vernacular.inference.model.loaded import LoadedModel, state_name
from vernacular.inference.model.memory import LOGIT_BYTES
from vernacular.inference.scoring.outputs import DTYPES, TOP_K, PendingScores, TokenScores, starts_word
from vernacular.inference.scoring.plan import Batch, CachedPrefix, PackedRow


class Body:
    """The model below its output head, with a cache of the prefixes in use."""

    def __init__(self, loaded: LoadedModel, *, tree: bool, full_model: bool = False):
        self.loaded, self.tree = loaded, tree
        self.model = loaded.model if full_model else loaded.body  # full_model: the "hidden states" are logits
        self.windows = layer_windows(loaded.model.config) if tree else {}
        self.state_name = state_name(self.model.forward)
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
        lineage = prefix.lineage()
        self.cached = {ancestor: self.cached[ancestor] for ancestor in lineage if ancestor in self.cached}
        for ancestor in lineage:
            if ancestor not in self.cached:
                self._compute_prefix(ancestor)
        return self.cached[prefix]

    def _compute_prefix(self, prefix: CachedPrefix) -> torch.Tensor:
        hidden, cache = self._run([prefix.row], prefix.parent, use_cache=True)
        layers = [(layer.keys, layer.values) if layer.is_initialized else None for layer in cache.layers]
        # those of the prefixes before it become views: a very long text would hold a copy for each of its passes
        for each in [*filter(self.cached.__contains__, prefix.lineage()), prefix]:
            self.cached[each] = [pair and tuple(tensor[:, :, : each.length] for tensor in pair) for pair in layers]
        return hidden

    def _run(self, rows: list[PackedRow], prefix: CachedPrefix, *, use_cache: bool = False):
        """Run one forward pass; return (hidden states, the cache or None)."""
        past_states, past, cache = self._past_states(prefix), prefix.length, None
        longest = max(map(len, rows))
        ids = np.zeros((len(rows), longest), np.int64)
        for r, row in enumerate(rows):
            ids[r, : len(row)] = row.tokens()
        kwargs = {"input_ids": to_device(ids, self.loaded.device)}
        if past_states is not None or use_cache:
            cache = _cache(past_states or [], len(rows), stores=use_cache)
            kwargs |= {self.state_name: cache, "use_cache": True}
        else:
            kwargs |= self.loaded.without_cache
        if self.tree and not all(row.is_path for row in rows):
            positions, ends = (to_device(array, self.loaded.device) for array in tree_layout(rows, longest))
            kwargs |= {"position_ids": positions, "attention_mask": self._masks(positions, ends, past)}
        output = self.model(**kwargs)
        self.forwards += 1
        self.tokens += ids.size
        self.output = output
        return output[0], cache

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
    """Return (positions in the token's own text, columns where its subtree ends), each [rows, longest]."""
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

    In depth-first order, token i descends from token j if j <= i and i is before the end of j's subtree. All attend to
    the cached prefix, and padding to itself: without a key, the output would be NaN.
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
    """Return a cache for `rows` rows that begins with a prefix; `stores`: it becomes that of a longer prefix."""
    cache = DynamicCache()
    for keys in past_states:
        layer = DynamicLayer() if stores or keys is None else _PrefixLayer()
        if keys is not None:
            layer.lazy_initialization(*keys)
            # views: the prefix is not copied
            layer.keys, layer.values = (tensor.expand(rows, -1, -1, -1) for tensor in keys)
        cache.layers.append(layer)
    return cache


class DeviceScores(PendingScores):
    """Outputs of a device, copied behind their kernels."""

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
            arrays[name] = np.frombuffer(packed[start : start + size].tobytes(), DTYPES.get(name, np.float32))
            start += size
        return TokenScores(**arrays)


# float32 logits at a time. CPU: 256 rows of a 50k vocabulary, the fastest. GPU: enough rows for an efficient product
_CHUNK_BYTES = {"cpu": 50 * 2**20}

_BLOCK_COLUMNS = 4096  # vocabulary entries whose moments are summed at a time
_NEGLIGIBLE = -150.0  # nats below the most probable token: exp is 0 in float32


class Head:
    """The model's output head, applied to selected rows."""

    def __init__(self, loaded: LoadedModel, *, extras: frozenset[str] = frozenset(), full_model: bool = False):
        self.model, self.body = loaded.model, loaded.body
        self.extras = extras
        # the "hidden states" are logits: body and head cannot be separated, or transformers does not find it (Llama 4)
        self.full_model = full_model or loaded.body is loaded.model
        self.starts_word = torch.tensor(starts_word(loaded)) if "word_end_logprobs" in extras else None

    @torch.inference_mode()
    def score(self, hidden: torch.Tensor, output, rows: np.ndarray, targets: np.ndarray) -> DeviceScores:
        """Start to compute the outputs for `targets[i]` (-1: none), predicted by hidden[rows[i]], of [n, size]."""
        unique_rows, first, indices = np.unique(rows, return_index=True, return_inverse=True)
        selected = [to_device(a, hidden.device) for a in (unique_rows, indices, np.maximum(targets, 0))]
        edges = [*first, len(rows)]
        step = self._rows_at_once(hidden.device)
        chunks = []
        for start in range(0, len(unique_rows), step):
            stop = min(start + step, len(unique_rows))
            queries = slice(edges[start], edges[stop])
            logits = self._logits(hidden[selected[0][start:stop]], output)
            chunks.append(self._reduce(logits, selected[1][queries] - start, selected[2][queries]))
        return DeviceScores(chunks)

    def _rows_at_once(self, device: torch.device) -> int:
        size = _CHUNK_BYTES.get(device.type, LOGIT_BYTES)
        return max(1, size // (4 * self.model.get_output_embeddings().weight.shape[0]))

    def _logits(self, rows: torch.Tensor, output) -> torch.Tensor:
        """Return float32 logits [n, vocabulary] of hidden rows [n, size], through the model's own forward."""
        if self.full_model:
            return rows.float()
        substitute = copy.copy(output)
        substitute[0 if isinstance(substitute, tuple) else "last_hidden_state"] = rows[None]
        with _replace_output(self.body, substitute):
            return self.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=rows.device)).logits[0].float()

    def _reduce(self, logits: torch.Tensor, indices: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the outputs of targets [n], predicted by logits[index] of float32 [rows, vocabulary], overwritten."""
        indices, targets = indices.to(logits.device), targets.to(logits.device)  # of the last layer
        target_logits = logits[indices, targets]
        max_logits = logits.amax(-1)
        scores = {"is_greedy": target_logits >= max_logits[indices]}
        if "rank" in self.extras:
            scores["rank"] = (1 + (logits[indices] > target_logits[:, None]).sum(-1)).int()
        if "top_token" in self.extras:
            scores["top_id"] = logits.argmax(-1)[indices].int()
        if self.starts_word is not None:
            self.starts_word = self.starts_word.to(logits.device)
            starts_word = self.starts_word[: logits.shape[-1]]  # the tokenizer may have more tokens
            start_logsumexp = logits[:, : len(starts_word)].masked_fill(~starts_word, -torch.inf).logsumexp(-1)
        if "entropy" in self.extras:
            top_logits = logits.topk(min(TOP_K, logits.shape[-1]), -1).values
            scores["topk_entropy"] = _entropy(top_logits)[indices]
            scores["entropy"] = _entropy(logits)[indices]
        if "logprob_moments" in self.extras:
            means, deviations = logprob_moments(logits, max_logits)
            scores |= {"logprob_mean": means[indices], "logprob_sd": deviations[indices]}
        log_normalizer = logits.sub_(max_logits[:, None]).exp_().sum(-1).log_().add_(max_logits)  # log-sum-exp in place
        scores["logprobs"] = target_logits - log_normalizer[indices]
        if self.starts_word is not None:
            scores["word_end_logprobs"] = (start_logsumexp - log_normalizer)[indices]
        return scores


def score_batch(body: Body, head: Head, batch: Batch) -> DeviceScores:
    """Start one forward pass; return the outputs of the batch's token queries, in their order."""
    hidden = body.hidden(batch)
    if not len(batch.queries):  # a prefix
        return DeviceScores([{"logprobs": torch.zeros(0), "is_greedy": torch.zeros(0, dtype=torch.bool)}])
    rows = batch.queries.rows * hidden.shape[1] + batch.queries.columns
    return head.score(hidden.flatten(0, 1), body.output, rows, batch.queries.targets)


@contextlib.contextmanager
def _replace_output(body: torch.nn.Module, output):
    """Make `body` return `output` for any input inside this context."""
    previous_forward = body.__dict__.get("forward")  # set by accelerate
    body.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        if previous_forward is None:
            del body.forward
        else:
            body.forward = previous_forward


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each row in nats, [n]; NaN where a logit is NaN."""
    return torch.distributions.Categorical(logits=logits, validate_args=False).entropy()


def logprob_moments(logits: torch.Tensor, max_logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of ln p under the distribution p of each row, nats, ([n], [n]).

    With x = logit - maximum and S_k the sum of x^k exp(x), the mean is S_1 / S_0 - ln S_0 and the variance
    S_2 / S_0 - (S_1 / S_0)². The sums are added up over blocks of columns, so that no second array [n, vocabulary] is
    needed; x is 0 where most of the probability is, so that little is lost in the difference.

    >>> logits = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]]).log()
    >>> [[round(value, 6) for value in moments.tolist()] for moments in logprob_moments(logits, logits.amax(-1))]
    [[-0.940448, -1.386294], [0.891728, 0.0]]
    """
    dtype = torch.float32 if logits.device.type == "mps" else torch.float64
    sums = torch.zeros(3, len(logits), dtype=dtype, device=logits.device)
    for block in logits.split(_BLOCK_COLUMNS, dim=-1):
        x = (block - max_logits[:, None]).clamp_(min=_NEGLIGIBLE)  # -inf times 0 would be NaN
        weights = x.exp()
        for power in range(3):
            sums[power] += weights.sum(-1)
            weights.mul_(x)
    total, mean = sums[0], sums[1] / sums[0]
    variance = (sums[2] / total - mean**2).clamp(min=0)
    return (mean - total.log()).to(logits.dtype), variance.sqrt().to(logits.dtype)
