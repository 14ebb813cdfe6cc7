"""What a model computes differently in longer texts, from its config: which texts may share a batch, prefix or cache.

RoPE of type longrope (Phi-3, MiniCPM) has other frequencies for all positions once the longest text of a batch exceeds
a threshold; dynamic NTK has other frequencies for each length above one, and keeps them until a short text is read.
Texts that share a forward pass or cached keys must therefore be in the same *regime*. Attention windows and chunks
change nothing for other texts, but implementations of caches and masks differ on their two sides: self-checks compare
both. BigBird's sparse attention begins at a threshold, too, and ends for good after the first shorter text.
"""

from dataclasses import dataclass

_SWITCHING, _GROWING = ("longrope", "su"), ("dynamic",)  # "su": an earlier name of longrope
_WINDOWS = (
    "sliding_window",
    "attention_chunk_size",
    "window_size",
    "local_attention",
    "sliding_window_size",
    "attention_window_size",
)


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens at which a model's computation changes."""

    switches: tuple[int, ...] = ()  # longer texts have other positions, ascending
    growth: int | None = None  # above it, each length has its own positions, which the model keeps for the next text
    windows: tuple[int, ...] = ()  # tokens that a token of a local attention layer attends to

    @property
    def varies(self) -> bool:
        """Whether positions depend on the length."""
        return bool(self.switches) or self.growth is not None

    def first(self, length: int) -> int:
        """Return the smallest length whose positions are those of `length`.

        >>> Lengths(switches=(64,)).first(64), Lengths(switches=(64,)).first(70), Lengths(growth=64).first(70)
        (0, 65, 70)
        """
        if self.growth is not None and length > self.growth:
            return length
        return max((switch + 1 for switch in self.switches if length > switch), default=0)

    def last(self, length: int) -> int | None:
        """Return the largest length whose positions are those of `length`; None: no limit.

        >>> Lengths(switches=(64,)).last(60), Lengths(switches=(64,)).last(65), Lengths(growth=64).last(70)
        (64, None, 70)
        """
        if self.growth is not None and length > self.growth:
            return length
        limits = [switch for switch in (*self.switches, self.growth) if switch is not None and length <= switch]
        return min(limits, default=None)


def read_lengths(config) -> Lengths:
    """Return the lengths at which the computation of a model with this config changes."""
    config = config.get_text_config(decoder=True)
    switches, growth = set(), None
    for parameters in _rope_parameters(config):
        kind = parameters.get("rope_type", parameters.get("type"))
        limit = getattr(config, "max_position_embeddings", None)
        if kind in _SWITCHING:
            original = getattr(config, "original_max_position_embeddings", None)
            switches.add(parameters.get("original_max_position_embeddings") or original or limit)
        elif kind in _GROWING and not parameters.get("alpha"):  # with alpha (Hunyuan), the frequencies are fixed
            growth = limit
    if getattr(config, "attention_type", None) == "block_sparse":  # BigBird: full attention in shorter texts
        growth = (5 + 2 * config.num_random_blocks) * config.block_size  # the random blocks depend on the length
    values = [value for name in _WINDOWS for value in config_values(config, name)]
    windows = {value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 1}
    return Lengths(tuple(sorted(switches - {None})), growth, tuple(sorted(windows)))


def config_values(config, name: str) -> list:
    """Return the value of a config's attribute, or those of its layers if they differ (Gemma 4); [] if it has none."""
    try:
        values = [getattr(config, name, None)]
    except RuntimeError:  # of transformers: the attribute is per layer
        layers = (config.per_layer_config[index] for index in range(config.num_hidden_layers))
        values = [getattr(layer, name, None) for layer in layers]
    return [value for value in values if value is not None]


def _rope_parameters(config) -> list[dict]:
    """Return the RoPE parameters: one dict, or one per layer type."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if not isinstance(parameters, dict):
        return []
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]
