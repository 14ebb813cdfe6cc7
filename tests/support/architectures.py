"""Tiny random models of all causal, masked and encoder-decoder types of the installed transformers, and how they are computed.

`python tests/support/architectures.py` compares each with one text at a time without a cache and writes the table of
docs/models.md.
"""

import re
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import torch
import transformers as tf
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles import surprisal
from vernacular.core.errors import ModelError
from vernacular.inference.generation.prepare import decode_continuation
from vernacular.inference.model.load import KINDS, wrap
from vernacular.inference.schema import MemoryJournal
from vernacular.protocols.schema import REQUESTS

from support import tiny
from support.engines import generate, score

NEW_TOKENS = 12
_NAMES = {
    "causal": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "masked": MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}  # fmt: skip
LARGEST = 15_000_000  # parameters of a model that counts as tiny

# Sizes by the names of config attributes; those that a config lacks are ignored.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_blocks")
_HEADS = (
    "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
    "num_encoder_attention_heads", "num_decoder_attention_heads",
)  # fmt: skip
_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "embed_dim", "emb_dim", "embedding_size", "dim_model")
_INNER = (
    "intermediate_size", "ffn_dim", "n_inner", "d_inner", "encoder_ffn_dim", "decoder_ffn_dim", "dim_ff", "dff",
    "hidden_dim", "d_ff", "moe_intermediate_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
    "intermediate_size_mlp", "ffn_hidden_size", "expert_ffn_hidden_size", "moe_latent_size", "shared_intermediate_size",
)  # fmt: skip
_SIZES = {
    **dict.fromkeys(_LAYERS, 4), **dict.fromkeys(_HEADS, 4), **dict.fromkeys(_WIDTHS, 32), **dict.fromkeys(_INNER, 48),
    "num_key_value_heads": 2, "num_kv_heads": 2, "head_dim": 8, "initializer_range": 0.3, "init_std": 0.3, "initializer_factor": 1.0,
    **dict.fromkeys(("max_position_embeddings", "max_encoder_position_embeddings", "max_decoder_position_embeddings"), 512), "n_positions": 512, "sliding_window": tiny.WINDOW, "attention_chunk_size": 16,
    "window_size": tiny.WINDOW, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "o_lora_rank": 16,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1,
    "state_size": 8, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_num_heads": 4,
    "mamba_head_dim": 16, "mamba_n_groups": 1, "mamba_d_ssm": 64, "n_groups": 1, "time_step_rank": 4, "mamba_dt_rank": 4,
    "linear_num_heads": 4, "linear_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "lru_width": 32, "word_embed_proj_dim": 32, "global_head_dim": 8, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 400, "ssm_state_size": 8, "attention_window": tiny.WINDOW, "index_n_heads": 2,
    "index_head_dim": 8, "index_topk": 512, "n_mamba_heads": 2, "axial_pos_shape": [16, 32], "axial_pos_embds_dim": [16, 16],
    "hidden_size_global": 32, "num_channels": 3, "image_size": 16, "patch_size": 8, "depth": 2, "out_hidden_size": 32, "rotary_dim": 8,
    "laurel_rank": 8, "altup_num_inputs": 2, "query_pre_attn_scalar": 8, "final_dim": 32, "attention_hidden_size": 32,
    "d_head": 8, "d_kv": 8, "qk_dim": 8, "chunk_size": 16, "segment_means_seq_len": 64, "num_landmarks": 64, "d_embed": 32, "pad_index": 1,
}  # fmt: skip

# Required, although some configs have None as default.
_REQUIRED = ("head_dim", "num_key_value_heads", "n_routed_experts", "n_shared_experts", "num_experts_per_tok")

# What an architecture requires in addition.
_LINEAR = ["linear_attention", "full_attention"] * 2
_OWN: dict[str, dict] = {
    "bamba": {"attn_layer_indices": [1]},
    "bailing_hybrid": {"layer_types": _LINEAR},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8},  # 32 of such weights make 0.006 nats of float noise
    "blt": {"encoder_hash_byte_group_vocab": 100, "encoder_hash_byte_group_nb_functions": 1, "use_cache": False},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10_000.0}}},
    "dory": {"n_input_layers": 1, "n_output_layers": 1},
    "dots3_note_text": {
        **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 4), "kv_lora_rank": 16, "qk_nope_head_dim": 8,
        **dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), 4), "swa_q_lora_rank": 16,
        "swa_kv_lora_rank": 16, "swa_head_dim": 16, "swa_qk_nope_head_dim": 8, "swa_v_head_dim": 8,
    },
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 2, "clip_qkv": 8.0}, "ffn_config": {"ffn_hidden_size": 48}},
    "inkling2_text": {"unpadded_vocab_size": 400}, "inkling2_loop_text": {"unpadded_vocab_size": 400},
    "kimi_linear": {"layer_types": _LINEAR},
    "qwen4_exp_text": {
        "layer_types": _LINEAR, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 64,
        "indexer_compress_ratio": 4,
    },
    "xlstm": {"hidden_size": 64, "embedding_dim": 64, "qk_dim_factor": 1.0},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "attention_hidden_size": 64, "attention_head_dim": 16},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_key_value_heads": 4, "attention_hidden_size": 64, "attention_head_dim": 16},
    "zaya": {"num_experts_per_tok": 1},
    "luke": {"entity_vocab_size": 50}, "neomme": {"head_dim": 32},
    "esm": {"vocab_size": 300, "pad_token_id": 1, "mask_token_id": 4}, "esmc": {"num_key_value_heads": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 16},
    "reformer": {"attn_layers": ["local", "lsh"] * 2, "attention_head_size": 8, "local_attn_chunk_length": 16, "lsh_attn_chunk_length": 16},
    "gemma3n_text": {
        "num_kv_shared_layers": 0, "num_hidden_layers": 5, "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
    },
}  # fmt: skip

# What no tiny model is built of, and why.
NOT_BUILT = {
    **dict.fromkeys(("dots3_note", "gemma3n"), "its parts for images and sounds; its text model is tried"),
    "gemma4_assistant": "continues the state of another model",
    **dict.fromkeys(("musicgen", "musicgen_melody"), "predicts codes of sounds"),
    "perceiver": "reads inputs of any kind, without embeddings of tokens",
}

PREFIX = "Question: Which animal sleeps on the roof? Answer: the cat\n"
TEXTS = [
    PREFIX + "Question: O gato dorme? Answer: si",
    PREFIX + "Question: What is the capital of Galicia? Answer: Santiago",
    PREFIX + "A choiva cae",
    "O gato",
    "The keys to the cabinet are on the table, and nobody has seen them.",
]


class Unbuildable(Exception):
    """An architecture that cannot be built tiny."""


class Result(NamedTuple):
    """How a model is computed."""

    scored: str
    generated: str
    problems: list[str]  # differences from one text at a time


def types(kind: str) -> list[str]:
    """Return the model types that transformers loads as a kind of model, sorted; no other as one with two parts."""
    names = sorted(_NAMES[kind])
    return [name for name in names if kind != "seq2seq" or CONFIG_MAPPING[name].is_encoder_decoder]


def _is_set(config, name: str) -> bool:
    """Return whether a config has a value that can be changed."""
    if isinstance(getattr(type(config), name, None), property):
        return False
    try:
        return getattr(config, name, None) is not None
    except RuntimeError:  # per layer, in some configs
        return False


def _config(cls, vocabulary: int, own: dict):
    default = cls()
    sizes = {**_SIZES, **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size"), vocabulary)}
    kwargs = {name: value for name, value in sizes.items() if _is_set(default, name)}
    kwargs |= {name: sizes[name] for name in _REQUIRED if getattr(cls, "__annotations__", {}).get(name)}
    if "qk_rope_head_dim" in kwargs:  # latent attention: other head sizes follow from it
        kwargs |= {"head_dim": 8, "num_key_value_heads": 4}
    for name, sub in getattr(cls, "sub_configs", {}).items():
        value = getattr(default, name, None)
        if value is not None:
            sub = type(value) if sub is tf.AutoConfig else sub
            roles = {role: True for role in ("is_decoder", "add_cross_attention") if getattr(value, role, False)}
            kwargs[name] = _config(sub, vocabulary, _OWN.get(sub.model_type, {}) | roles).to_dict()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        if isinstance(getattr(default, name, None), int):
            kwargs[name] = 1 if name == "pad_token_id" else 0
    return cls(**(kwargs | own))


def build(model_type: str, kind: str, *, seed: int = 0, **own):
    """Return a LoadedModel. Raises Unbuildable."""
    tok = tiny.tokenizer("bytes-bos" if kind == "causal" else "metaspace")
    factory = KINDS[kind]
    try:
        with warnings.catch_warnings(action="ignore"):
            own = _OWN.get(model_type, {}) | own
            if model_type == "reformer":
                own = {"is_decoder": kind == "causal"} | own
            config = _config(CONFIG_MAPPING[model_type], len(tok), own)
            if kind == "seq2seq":
                config.decoder_start_token_id = 0
            with torch.device("meta"):
                size = sum(p.numel() for p in factory.from_config(config).parameters())
            if size > LARGEST:
                raise Unbuildable(f"{size} parameters")
            torch.manual_seed(seed)
            model = factory.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    except Unbuildable:
        raise
    except Exception as error:
        raise Unbuildable(f"{type(error).__name__}: {str(error)[:150]}") from error
    for part in (model.config, model.config.get_text_config(decoder=True)):
        part.eos_token_id = None
    if kind != "masked":
        model.generation_config.eos_token_id = None
    record = tiny.record("llama", name=f"tiny-{model_type}", kind=kind, architecture=type(model).__name__)
    return wrap(model, tok, record)


def sweep(model_type: str, kind: str, **own) -> Result:
    """Compute scores and greedy texts in batches, and compare them with one text at a time without a cache."""
    loaded = build(model_type, kind, **own)
    for text in TEXTS:
        try:
            loaded.read(torch.tensor([loaded.tokenizer(text)["input_ids"]]))
        except RuntimeError as error:  # sizes that do not go together
            raise Unbuildable(f"{type(error).__name__}: {error}") from error
        except (ValueError, AttributeError):  # a setting that is missing: to be refused
            break
    scored, problems = _score(loaded, kind)
    generated = "–"
    if kind != "masked":
        generated, more = _generate(loaded)
        problems += more
    return Result(scored, generated, problems)


# prompts with several continuations, which share beginnings, some of them of one token
ENDINGS = [" o gato", " o gato dorme no tellado", " si", " Santiago de", " Lugo e Vigo"]


def loss_logprob(loaded, prompt: str, ending: str) -> float:
    """Return the log-likelihood of an ending (nats): minus the loss of its labels, times their number."""
    ids, labels = (
        torch.tensor([loaded.tokenizer(text, add_special_tokens=special)["input_ids"]])
        for text, special in ((prompt, True), (ending.strip(), False))
    )
    decoder = torch.cat([torch.tensor([loaded.start_ids]), labels[:, :-1]], dim=1)
    loaded.forget_lengths()
    # the shift of MBart puts the last label first; that of others, decoder_start_token_id
    return -float(loaded.model(input_ids=ids, decoder_input_ids=decoder, labels=labels).loss) * labels.shape[1]


def _score_pairs(loaded) -> tuple[str, list[str]]:
    pairs = [(text, ending) for text in TEXTS for ending in ENDINGS]
    table, metadata = score(loaded, tiny.score_requests([(p + e, len(p), len(p + e)) for p, e in pairs]))
    problems = []
    for (prompt, ending), row in zip(pairs, table.to_pylist(), strict=True):
        actual, expected = sum(row["logprobs"] or [0]), loss_logprob(loaded, prompt, ending)
        if row["flags"] or not abs(actual - expected) < 1e-5 * max(10, abs(expected)):
            problems.append(f"score of {ending!r} after {prompt[:20]!r}: {actual}, expected {expected}, {row['flags']}")
    engine = metadata["engine"]
    return engine["strategy"] + _BATCHINGS[engine["batching"]], problems


_BATCHINGS = {"padded": "", "equal": ", equal lengths", "single": ", one text at a time"}


def _score(loaded, kind: str) -> tuple[str, list[str]]:
    if kind == "seq2seq":
        return _score_pairs(loaded)
    texts = [(text, 0, len(text)) for text in TEXTS]
    try:
        table, metadata = score(loaded, tiny.score_requests(texts))
    except ModelError as error:
        return f"refused: {_reason(error)}", []
    engine, problems = metadata["engine"], []
    for (text, start, end), row in zip(texts, table.to_pylist(), strict=True):
        expected = getattr(surprisal, kind)(loaded.model, loaded.tokenizer, text, start, end).logprobs
        actual = row["logprobs"] or []
        largest = max((abs(a - b) for a, b in zip(actual, expected, strict=False) if a is not None), default=0)
        if row["flags"] or len(actual) != len(expected) or not largest < 2e-3:
            problems.append(f"score of {text[:20]!r}: {largest}, flags {row['flags']}")
    way = engine["strategy"] if kind == "causal" else "batch"
    return way + _BATCHINGS[engine["batching"]], problems


def _generate(loaded) -> tuple[str, list[str]]:
    rows = []
    for number, text in enumerate(TEXTS):
        row = dict.fromkeys(REQUESTS.schema.names) | {"prefix": "", "text": text, "stop": [], "kind": "generate"}
        rows.append(row | {"request_id": f"r{number}", "item_id": f"i{number}", "role": "response"})
        rows[-1]["max_new_tokens"] = NEW_TOKENS if number % 2 == 0 else 2  # rows that end early
    try:
        table, metadata = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema), journal=MemoryJournal())
    except ModelError as error:
        return f"refused: {_reason(error)}", []
    problems = []
    for row, output in zip(rows, table.to_pylist(), strict=True):
        expected = greedy(loaded, row["text"], row["max_new_tokens"])
        if output["raw_output"] != expected or output["flags"]:
            problems.append(f"text: {output['raw_output']!r}, expected {expected!r}, flags {output['flags']}")
    [strategy] = metadata["engine"]["strategies"]
    return strategy["used"] + (", rows remain" if strategy.get("rows") else ""), problems


@torch.inference_mode()
def greedy(loaded, text: str, n_tokens: int) -> str:
    """Return a greedy continuation, each token of which is computed from all tokens before it; or as transformers."""
    if loaded.kind == "seq2seq":
        ids = torch.tensor([loaded.tokenizer(text)["input_ids"]])
        options = {"do_sample": False, "num_beams": 1, "eos_token_id": loaded.eos_id, "use_cache": False}
        output = loaded.model.generate(input_ids=ids, max_new_tokens=n_tokens, **options)[0].tolist()
        return loaded.tokenizer.decode(output[len(loaded.start_ids) :], skip_special_tokens=True)
    ids = prompt = loaded.tokenizer(text)["input_ids"]
    for _ in range(n_tokens):
        loaded.forget_lengths()
        token = int(loaded.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        if token == loaded.eos_id:
            break
        ids = [*ids, token]
    return decode_continuation(loaded.tokenizer, prompt, ids[len(prompt) :])


def _reason(error: ModelError) -> str:
    text = re.sub(r" by \S+ nats( per token)?", "", str(error).partition(": ")[2])  # of random numbers
    return "not causal" if "not a causal language model" in text else text


def sweep_all(kind: str, model_types: list[str] | None = None) -> dict[str, Result | str]:
    """Return the result of each architecture, or why it cannot be built."""
    results: dict[str, Result | str] = {}
    for model_type in model_types or types(kind):
        try:
            results[model_type] = NOT_BUILT.get(model_type) or sweep(model_type, kind)
        except Unbuildable as error:
            results[model_type] = f"not built: {error}"
        if __name__ == "__main__":
            print(kind, model_type, results[model_type], flush=True)
    return results


def table(**kinds: dict[str, Result | str]) -> str:
    """Return the table of docs/models.md, from the results of each kind of model.

    The largest group of a kind is counted, not listed; texts of exceptions are left out.
    """
    lines = ["| kind | scored | generated | architectures |", "|---|---|---|---|"]
    for kind, results in kinds.items():
        groups: dict[tuple[str, str], list[str]] = {}
        for model_type, result in results.items():
            way = (result.scored, result.generated) if isinstance(result, Result) else (f"not tried: {result}", "–")
            groups.setdefault(way, []).append(model_type)
        ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        for number, ((scored, generated), names) in enumerate(ordered):
            listed = ", ".join(names) if number else f"the {len(names)} others"
            reasons = [re.sub(r" \(.*|: \w+Error: .*", "", reason) for reason in (scored, generated)]
            lines.append(f"| {kind} | {' | '.join(reasons)} | {listed} |")
    return "\n".join(lines)


BEGIN, END = "<!-- architectures: begin -->", "<!-- architectures: end -->"
DOCS = Path(__file__).parents[2] / "docs" / "models.md"


def table_in_docs() -> str:
    """Return the table that docs/models.md contains."""
    return DOCS.read_text().partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    torch.set_num_threads(1)
    before, rest = DOCS.read_text().split(BEGIN)
    DOCS.write_text(
        f"{before}{BEGIN}\n{table(**{kind: sweep_all(kind) for kind in _NAMES})}\n{END}{rest.split(END)[1]}"
    )
