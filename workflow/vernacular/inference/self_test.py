"""Self-test: whether models are computed as fast with the installed transformers as their architectures allow.

Strategies and decoding use the names and classes of its caches. If a version renames one, every model is computed in a
slower way, with the same values: that is a defect of the package, and not a property of the model, as its notes would
state. So each job tries tiny random models, which takes half a second, and states it in one line.
"""

import functools
from collections.abc import Iterable

from vernacular.core.fingerprint import version_of
from vernacular.core.model_record import ModelRecord

# The versions of transformers that were tested, from the first to before the last; pyproject.toml has the same.
TESTED = ("5.23", "5.25")

_BEGINNING, _ENDINGS = 40, (3, 5, 4, 7)  # tokens that all texts share, and those that each has alone
_VOCABULARY = 64
FASTEST = {"llama": ("tree", "prefix"), "mamba": ("plain", "batch")}  # strategy of scoring, way of generation


def is_tested() -> bool:
    """Return whether the version of transformers is one of those that were tested, without importing it."""
    first, end, version = (tuple(map(int, v.split(".")[:2])) for v in (*TESTED, version_of("transformers") or "0.0"))
    return first <= version < end


@functools.cache
def speed_problem() -> str | None:
    """Return one line that states what the installed transformers computes in a slower way; None if nothing."""
    from transformers import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # of the kernels of Mamba, which are not installed
    try:
        slower = slower_ways(tiny_models())
    finally:
        logging.set_verbosity(verbosity)
    if not slower:
        return None
    return (
        f"transformers {version_of('transformers')} is not supported at full speed, but values are the same: "
        f'{"; ".join(slower)}. Supported: pip install "transformers>={TESTED[0]},<{TESTED[1]}".'
    )


def slower_ways(models: Iterable) -> list[str]:
    """Return the ways in which models, of the types of FASTEST, are computed that are slower, each with the reason."""
    slower = []
    for model in models:
        name = model.config.model_type
        for verb, fastest, (way, reasons) in zip(("scored", "generated"), FASTEST[name], _ways(model), strict=True):
            if way != fastest:
                slower.append(
                    f"{name} {verb} by {way} instead of {fastest}{''.join(f' ({reason})' for reason in reasons[:1])}"
                )
    return slower


def tiny_models() -> list:
    """Return a random model of each type of FASTEST, of a few thousand parameters."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

    sizes = {"vocab_size": _VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "pad_token_id": 0}
    llama = LlamaConfig(**sizes, intermediate_size=16, num_attention_heads=2, dtype="float32")
    mamba = MambaConfig(**sizes, state_size=4, dtype="float32")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [LlamaForCausalLM(llama).eval(), MambaForCausalLM(mamba).eval()]


def _ways(model) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
    """Return how a model is scored, and how it generates: each with the reasons why in no faster way."""
    import numpy as np
    import torch

    from vernacular.inference.generation.decode import DecodingCounters
    from vernacular.inference.generation.prepare import PreparedPrompt
    from vernacular.inference.generation.self_check import select_batching
    from vernacular.inference.model.loaded import LoadedModel
    from vernacular.inference.scoring.strategy import select_strategy
    from vernacular.inference.scoring.trie import Path, build_trie

    loaded = LoadedModel(
        model=model,
        tokenizer=None,
        kind="causal",
        device=torch.device("cpu"),
        max_length=None,
        n_embeddings=_VOCABULARY,
        record=ModelRecord(name="self-test"),
    )
    numbers = np.random.default_rng(0)
    beginning = numbers.integers(1, _VOCABULARY, _BEGINNING)
    texts = [np.append(beginning, numbers.integers(1, _VOCABULARY, n)).astype(np.int32) for n in _ENDINGS]
    paths = [Path(text, 1, text[1:]) for text in texts]
    strategy, scoring = select_strategy(loaded, "auto", paths, build_trie(paths).size)
    prompts = [PreparedPrompt(str(n), text.tolist(), None, 4, [], {}) for n, text in enumerate(texts)]
    _, way, generation = select_batching(loaded, prompts, beginning.tolist(), DecodingCounters())
    return (strategy, scoring["fallback"]), (way.name, generation["fallback"])
