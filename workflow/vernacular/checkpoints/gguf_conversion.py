"""Conversion of a GGUF file to a Hugging Face directory, by transformers.

The weights are dequantized to float32, which is exact: a quantized weight is a float16 scale times an integer.

transformers drops the keys and tensors that it does not map. Here, each one is found in what was loaded (`check_keys`,
`check_tensors`, `check_tokenizer`), mapped or the default of the class, or is known to have no effect; any other is
rejected by its name.
"""

import math
import re
import shutil
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.gguf import get_gguf_tokenizer, read_gguf_metadata
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, GGUF_TOKENIZER_MAPPING
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from vernacular.checkpoints.files import DAMAGED_FILE_ERRORS, bounded_build
from vernacular.core.errors import ModelError, first_line, first_of
from vernacular.core.library_errors import wrap_library_errors
from vernacular.core.model_record import ModelRecord

# How llama.cpp divides a text before the merges of a byte-level vocabulary apply, by `tokenizer.ggml.pre`, where
# transformers has no pattern and would use that of GPT-2 without a message. One after the other, as there.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORD = r" ?[^(\s|.,!?…。，、।۔،)]+"
_SPLITS = {
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "jina-es", "jina-de", "gigachat", "roberta-bpe"), (_GPT2,)
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), (r"\p{N}", _GPT2)
    ),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), (_WORD,)),
    "viking": (_WORD, r"\p{N}"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "stablelm2": (GGUF_PRE_TOKENIZER_SPLITS["qwen2"],),
}
# Those with which llama.cpp reads a word of the vocabulary as one token, even if no merges lead to it, and begins a
# text with BOS, as with a SentencePiece vocabulary, if the file does not state it.
_IGNORE_MERGES = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
}  # fmt: skip


_ADVICE = "Use the original checkpoint, or dtype: auto, with which llama.cpp runs the file as it is."
# Keys of an architecture, without its name, that are seen in the shapes of tensors, all of which must fit.
_IN_SHAPES = {
    "block_count", "embedding_length", "feed_forward_length", "vocab_size", "expert_count", "expert_shared_count",
    "expert_feed_forward_length", "expert_shared_feed_forward_length", "ssm.conv_kernel", "ssm.inner_size",
    "ssm.state_size", "ssm.time_step_rank", "shortconv.l_cache",
}  # fmt: skip
# Keys without effect: the layout of the file; sections of mrope, which have equal positions in texts; layers that
# predict further tokens; pooling; what the scaling of RoPE alone reads, whose type and factor are compared.
_WITHOUT_EFFECT = {
    "tensor_data_layout", "rope.dimension_sections", "nextn_predict_layers", "pooling_type",
    "rope.scaling.finetuned", "rope.scaling.original_context_length",
}  # fmt: skip
# The others, by the attributes of a config that represent them.
_EPSILON = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
_ATTRIBUTES = {
    "attention.head_count": ("num_attention_heads",),
    "attention.layer_norm_epsilon": _EPSILON,
    "attention.layer_norm_rms_epsilon": _EPSILON,
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "context_length": ("max_position_embeddings",),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_weights_norm": ("norm_topk_prob",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "full_attention_interval": ("full_attention_interval",),
    "ssm.group_count": ("linear_num_key_heads",),
    "use_parallel_residual": ("use_parallel_residual",),
}
_ROPE_BASE = 10_000.0  # of llama.cpp
# Keys of the tokenizer that transformers does not read, without effect on tokens: marks for code that is filled in,
# tokens of encoders, other templates, ends of turns (read in `convert`), the tokenizer in another library's format.
_TOKENIZER_WITHOUT_EFFECT = (
    "ggml.fim_", "ggml.prefix_token_id", "ggml.suffix_token_id", "ggml.middle_token_id", "ggml.mask_token_id",
    "ggml.cls_token_id", "ggml.seperator_token_id", "ggml.token_type_count", "ggml.eot_token_id", "ggml.eom_token_id",
    "chat_template", "huggingface.json",
)  # fmt: skip


def check_keys(name: str, metadata: dict, config) -> None:
    """Raise ModelError if a key of a GGUF file has an effect, and is not in the config that transformers loads."""
    config, prefix = config.get_text_config(decoder=True), f"{metadata['general.architecture']}."
    keys = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    if metadata.get("split.count", 1) > 1 or metadata.get("general.type", "model") != "model":
        raise ModelError(f"{name}: expected a complete model, got a part of one, an adapter or a projector. {_ADVICE}")
    window, context = getattr(config, "sliding_window", None), keys.get("context_length", math.inf)
    if window and window < context and not keys.get("attention.sliding_window"):
        keys["attention.sliding_window"] = "none"
    if _rope(config):  # what llama.cpp computes if a file does not state it
        keys.setdefault("rope.freq_base", _ROPE_BASE)
        keys.setdefault("rope.dimension_count", _head_dim(config))
    scalar = getattr(config, "query_pre_attn_scalar", None)  # no key states it; of Gemma 2 and 3 27B, another
    if scalar and scalar != _head_dim(config):
        problem = f"transformers scales attention for heads of {scalar}, so that its outputs would differ"
        raise ModelError(f"{name}: {prefix}attention.key_length: {_head_dim(config)}: {problem}. {_ADVICE}")
    if keys.get("rope.scaling.type") == "none":
        keys.pop("rope.scaling.factor", None)
    for key, value in keys.items():
        is_default = (value in (0, "") and value is not False) or (key.endswith("_window") and value == context)
        if is_default or key in _IN_SHAPES | _WITHOUT_EFFECT:
            continue
        loaded = _loaded(config, key)
        if not _equal(value, loaded) and not (value is False and loaded is None):
            found = "transformers does not read it" if loaded is None else f"transformers loads {loaded}"
            raise ModelError(f"{name}: {prefix}{key}: {value}: {found}, so that its outputs would differ. {_ADVICE}")


def _loaded(config, key: str):
    """Return the value of a config that a key of a GGUF file states; None: it has none."""
    head_dim, rope = _head_dim(config), _rope(config)
    declared = {*type(config).__dataclass_fields__, *config.attribute_map}  # others have no effect
    if key == "attention.head_count_kv":
        if getattr(config, "multi_query", False) and not config.new_decoder_architecture:  # Falcon
            return 1
        heads = (getattr(config, name, None) for name in ("num_key_value_heads", "num_kv_heads", "num_attention_heads"))
        return next((number for number in heads if number), None)
    if key in ("attention.key_length", "attention.value_length"):
        return head_dim
    if key == "rope.dimension_count":
        share = rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1
        return getattr(config, "rotary_dim", None) or int(head_dim * share)
    if key == "rope.freq_base_swa":
        return (config.rope_parameters.get("sliding_attention") or {}).get("rope_theta")
    if key.startswith("rope."):
        scaled = rope.get("rope_type", "default") != "default"
        unscaled = {"rope.scaling.type": "none", "rope.scaling.factor": 1.0, "rope.scaling.attn_factor": 1.0}
        return (
            rope.get("rope_theta") if key == "rope.freq_base" else rope.get(key[13:]) if scaled else unscaled.get(key)
        )
    if key == "expert_gating_func":
        return {"softmax": 1, "sigmoid": 2}.get(getattr(config, "scoring_func", "softmax"))
    if key == "attention.sliding_window_pattern":
        return [kind == "sliding_attention" for kind in getattr(config, "layer_types", None) or []]
    if key in ("attention.causal", "expert_weights_scale"):
        return 1
    if key == "context_length" and "max_position_embeddings" not in declared:
        return math.inf
    values = (getattr(config, name) for name in _ATTRIBUTES.get(key, ()) if name in declared)
    return next((value for value in values if value is not None), None)


def _head_dim(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // getattr(config, "num_attention_heads", 1)


def _rope(config) -> dict:
    parameters = getattr(config, "rope_parameters", None) or {}
    return parameters.get("full_attention", parameters)


def _equal(value, loaded) -> bool:
    if isinstance(value, list) and not isinstance(loaded, list):  # of each layer; 0: without attention
        return {number for number in value if number} == {loaded}
    if isinstance(value, int | float) and isinstance(loaded, int | float):
        return loaded == math.inf or math.isclose(value, loaded, rel_tol=1e-6)
    return value == loaded


def check_room(file: Path, reader, out: Path) -> None:
    """State how much disk and memory a conversion takes. Raises ModelError if the disk has less."""
    size = 4 * sum(int(tensor.n_elements) for tensor in reader.tensors)
    free = shutil.disk_usage(out).free
    stated = f"{file.name}: in float32, its weights take {size / 1e9:.1f} GB of disk, and as much memory"
    if size > free:
        raise ModelError(f"{stated}; {free / 1e9:.1f} GB of disk are free. Use dtype: auto, or another directory.")
    print(f"{stated}.", flush=True)


def check_tensors(file: Path, reader, model, mismatched) -> None:
    """Raise ModelError if a tensor of a GGUF file is not in the model, or has another shape there."""
    if mismatched:
        key, actual, expected = sorted(mismatched)[0]
        sizes = [" x ".join(map(str, shape)) for shape in (expected, actual)]
        raise ModelError(f"{file.name}: transformers expects shape {sizes[0]} of {key}, got {sizes[1]}. {_ADVICE}")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    ignored = {key for key in tensors if key.startswith("blk.") and int(key.split(".")[1]) >= layers}
    if factors := tensors.get("rope_freqs.weight"):
        ignored |= {factors.name} if (factors.data == 1).all() else set()
    n_stored = sum(int(tensor.n_elements) for key, tensor in tensors.items() if key not in ignored)
    held = {(tensor.data_ptr(), tensor.shape): tensor.numel() for tensor in model.state_dict().values()}
    if n_stored == sum(held.values()):  # none is missing, so that all are there
        return
    architecture = reader.get_field("general.architecture").contents()
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=model.config.to_dict())
    mapped = get_gguf_hf_weights_map(model, processor)
    unread = sorted(key for key in tensors if key not in mapped and key not in ignored)
    raise ModelError(
        f"{file.name}: transformers does not read its tensor {first_of(unread) if unread else 'of some weights'}, so "
        f"that its outputs would differ. {_ADVICE}"
    )


def check_tokenizer(name: str, metadata: dict, tokenizer) -> None:
    """Raise ModelError if a key of a GGUF file's tokenizer is not in the loaded one, and has an effect."""
    read = {f"tokenizer.{key}" for group in GGUF_TOKENIZER_MAPPING.values() for key in group}
    for key, value in metadata.items():
        without_effect = key.removeprefix("tokenizer.").startswith(_TOKENIZER_WITHOUT_EFFECT)
        if key.startswith("tokenizer.") and key not in read and not without_effect and value not in (0, "", False):
            raise ModelError(f"{name}: {key}: {value}: transformers does not read it. {_ADVICE}")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type") or ()
    encode, template = tokenizer.backend_tokenizer.encode, metadata.get("tokenizer.chat_template", "")
    if metadata.get("tokenizer.ggml.model") == "llama":
        adds_space = encode("a", add_special_tokens=False).tokens[0].startswith("▁")
        if adds_space != (stated := bool(metadata.get("tokenizer.ggml.add_space_prefix", True))):
            found = "adds a space before a text" if adds_space else "adds no space before a text"
            raise ModelError(f"{name}: tokenizer.ggml.add_space_prefix: {stated}: transformers {found}. {_ADVICE}")
    for index, (token, kind) in enumerate(zip(tokens, types, strict=False)):
        where = {3: "its chat template" if token in template else None, 4: "its list of tokens in texts"}.get(kind)
        if where and encode(token, add_special_tokens=False).ids != [index]:
            problem = f"{where} contains {token!r}, which transformers divides into several tokens"
            raise ModelError(f"{name}: {problem}. {_ADVICE}")


def convert(file: Path, out: Path) -> None:
    """Write the model and tokenizer of a GGUF file to `out` as float32; raise ModelError if it is not supported."""
    import gguf

    metadata = {}
    try:
        file_record = ModelRecord(name=file.name, directory=str(file), bytes=file.stat().st_size)
        with wrap_library_errors(), bounded_build(file_record):
            load_kwargs = {"gguf_file": file.name, "trust_remote_code": False, "local_files_only": True}
            metadata, _ = read_gguf_metadata(str(file))
            config = AutoConfig.from_pretrained(str(file.parent), **load_kwargs)
            check_keys(file.name, metadata, config)
            tokenizer = read_tokenizer(file)
            reader = gguf.GGUFReader(file)
            check_room(file, reader, out)
            options = {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
            options["config"] = config  # or the file would be read once more
            model, report = AutoModelForCausalLM.from_pretrained(str(file.parent), **options, **load_kwargs)
            check_tensors(file, reader, model, report["mismatched_keys"])
    except (*DAMAGED_FILE_ERRORS, AssertionError) as error:
        architecture = metadata.get("general.architecture")
        if architecture and "architecture" in str(error):
            problem = f"transformers {transformers.__version__} does not support its architecture, {architecture}"
            raise ModelError(f"{file.name}: {problem}. {_ADVICE}") from None
        if isinstance(error, AssertionError) or re.search(r"ggml type|GGMLQuantizationType|model_type", str(error)):
            problem = f"transformers cannot build its model ({first_line(error)})"
            raise ModelError(f"{file.name}: {problem}. {_ADVICE}") from None
        raise ModelError(
            f"{file.name}: cannot be read as GGUF ({first_line(error)}); the download may be incomplete. "
            "Download it again."
        ) from None
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{file.name}: {len(missing)} of the weights of a {type(model).__name__} not found ({first_of(missing)}). "
            "Convert the model to GGUF again, or use its original checkpoint."
        )
    # the saved model is not quantized; save_pretrained would reject these attributes
    ends = {metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")} - {None}
    if len(ends) > 1:
        model.generation_config.eos_token_id = sorted(ends)
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer = None
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def read_tokenizer(file: Path):
    """Return the tokenizer of a GGUF file, which divides texts as llama.cpp does.

    Raises ModelError if transformers does not read one of its keys, or its pre-tokenizer is unknown: it would divide
    texts unlike in training.
    """
    metadata, _ = read_gguf_metadata(str(file), ("tokenizer.ggml.tokens",))
    tokenizer = _split_as_stated(file, metadata)
    check_tokenizer(file.name, metadata, tokenizer)
    return tokenizer


def _split_as_stated(file: Path, metadata: dict):
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, local_files_only=True)
    _, settings, _ = get_gguf_tokenizer(str(file))
    name = settings.get("pre_tokenizer_type")
    is_gpt2, ignores_merges = settings.get("tokenizer_type") == "gpt2", name in _IGNORE_MERGES
    if isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.Metaspace):
        # as SentencePiece and llama.cpp: a space before each part of a text, also before one that begins with a space
        adds_space = metadata.get("tokenizer.ggml.add_space_prefix", True)
        steps = [normalizers.Prepend("▁")] if adds_space else []
        tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
        tokenizer.backend_tokenizer.pre_tokenizer = None
    if is_gpt2 and ignores_merges:
        tokenizer.backend_tokenizer.model.ignore_merges = True
    if is_gpt2 and tokenizer.bos_token_id is not None:
        tokenizer.add_bos_token = bool(metadata.get("tokenizer.ggml.add_bos_token", ignores_merges))
    if not is_gpt2 or name in GGUF_PRE_TOKENIZER_SPLITS:
        return tokenizer  # set by transformers; the other types of tokenizer have none
    if name not in _SPLITS:
        unknown = f'"{name}", which transformers {transformers.__version__} does not know'
        found = "not stated" if name is None else unknown
        raise ModelError(
            f"{file.name}: its pre-tokenizer (tokenizer.ggml.pre) is {found}: texts would be divided into other tokens "
            f"than in training. {_ADVICE}"
        )
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[name]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return tokenizer
