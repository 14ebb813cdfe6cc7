"""Architectures of transformers: scores and greedy texts in batches equal those of one text at a time without a cache.

Those of encoder-decoders are compared with the loss of labels, and with `generate`.
"""

import pytest
from support import architectures
from support.architectures import Result

# One or more for each kind of cache, state, position and attention, with how each is scored and generated.
CAUSAL = {
    "llama": ("tree", "batch"),  # keys and values; rotary positions
    "gpt2": ("tree", "batch"),  # learned positions
    "opt": ("tree", "batch"),  # positions from the attention mask
    "bloom": ("prefix", "batch"),  # ALiBi
    "mpt": ("prefix", "batch"),  # ALiBi, of another form
    "ctrl": ("tree", "batch"),  # sinusoidal positions
    "mistral": ("tree", "batch"),  # sliding windows
    "gemma3_text": ("tree", "batch"),  # sliding and full attention, two kinds of rotary positions
    "gemma4_text": ("tree", "batch"),  # head sizes that differ by layer
    "gpt_neo": ("prefix", "batch"),  # local attention that counts rows
    "gpt_oss": ("tree", "batch"),  # attention sinks
    "llama4_text": ("plain", "batch"),  # chunks
    "deepseek_v3": ("tree", "batch"),  # latent attention
    "phi3": ("tree", "batch"),
    "mixtral": ("tree", "batch"),  # experts
    "mamba": ("plain", "batch"),  # state-space states
    "falcon_h1": ("plain", "batch, rows remain"),  # states and keys in one layer
    "jamba": ("plain", "batch"),  # states and keys in different layers
    "recurrent_gemma": ("plain", "uncached"),  # states inside the model
    "lfm2_moe": ("plain", "batch"),  # states of convolutions
    "qwen3_next": ("plain", "batch"),  # linear attention
    "minimax": ("plain", "batch"),  # a cache class of its own
    "rwkv": ("plain", "single"),  # a list of states
    "dory": ("tree", "batch"),  # layers that run in loops, each with a cache of its own
    "kimi_linear": ("plain", "batch"),
    "xlstm": ("plain", "single"),  # a class of states of its own
    "zamba": ("plain", "batch"),  # shared layers
    "sarvam_mla": ("tree", "batch"),
    "apertus1p5_text": ("tree", "batch"),
    "openai-gpt": ("plain", "uncached"),  # no state
    "bart": ("prefix", "single"),  # a decoder of an encoder-decoder
    "xlnet": ("refused: not causal", "refused: not causal"),
}
MASKED = {
    "bert": "batch",
    "modernbert": "batch",  # windows
    "convbert": "batch, equal lengths",  # convolutions
    "fnet": "batch, equal lengths",  # Fourier transforms; no attention mask
    "nystromformer": "batch, equal lengths",
    "yoso": "batch, equal lengths",
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", CAUSAL)
def test_causal_architecture_equals_single_texts_without_cache(arch):
    assert architectures.sweep(arch, "causal") == Result(*CAUSAL[arch], problems=[])


@pytest.mark.slow
@pytest.mark.parametrize("arch", architectures.types("seq2seq"))
def test_encoder_decoder_has_the_loss_of_its_labels_and_the_texts_of_generate(arch):
    ways = {"fsmt": ("plain", "batch"), "prophetnet": ("plain", "uncached")}
    assert architectures.sweep(arch, "seq2seq") == Result(*ways.get(arch, ("prefix", "batch")), problems=[])


@pytest.mark.slow
@pytest.mark.parametrize("arch", MASKED)
def test_masked_architecture_equals_single_texts(arch):
    assert architectures.sweep(arch, "masked") == Result(MASKED[arch], "–", problems=[])


@pytest.mark.soak
def test_every_architecture_equals_single_texts_as_documented():
    """The table of docs/models.md is the result; `python tests/support/architectures.py` writes it."""
    kinds = {kind: architectures.sweep_all(kind) for kind in ("causal", "masked", "seq2seq")}
    results = {f"{kind} {name}": result for kind, found in kinds.items() for name, result in found.items()}
    built = {name: result for name, result in results.items() if isinstance(result, Result)}
    assert {name: result.problems for name, result in built.items() if result.problems} == {}
    others = {name.split()[-1]: result for name, result in results.items() if name not in built}
    assert others == {name: reason for name, reason in architectures.NOT_BUILT.items() if name in others}
    assert architectures.table(**kinds) == architectures.table_in_docs()
