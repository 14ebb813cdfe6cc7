"""Tiny random models and tokenizers, created in memory for tests: two or three layers, a few dozen hidden units.

`load_model("llama")` is a LoadedModel ready for scoring; `save("llama", directory)` writes one to disk and returns its record.
Weights are drawn wide (standard deviation 0.3), so that a wrong mask or position moves log-probabilities by far more
than float noise.
"""

import functools
import math
from collections import Counter
from pathlib import Path

import pyarrow as pa
import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.fingerprint import fingerprint
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.load import LoadedModel, wrap
from vernacular.protocols.schema import REQUESTS

tf.logging.set_verbosity_error()  # warnings about token ids missing from tiny vocabularies

LINES = [
    "O gato dorme no tellado e a cadela ladra na rúa.",
    "A choiva cae amodo sobre a vila; ninguén sae da casa.",
    "Question: What is the capital of Galicia?\nA. Vigo\nB. Lugo\nC. Ourense\nD. Santiago\nAnswer: D",
    "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nC. the horse\nD. the bird\nAnswer: B",
    "Aquest matí hem anat al mercat i hem comprat pomes.",
    "Jutros smo otišli na pijacu i kupili jabuke.",
    "أكلت القطة السمك في المطبخ هذا الصباح.",
    "დღეს დილით ბაზარში წავედით.",
    "The keys to the cabinet are on the table, and nobody has seen them.",
] * 3

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "initializer_range": 0.3,
    "max_position_embeddings": 512,
}  # fmt: skip
GQA = {**SMALL, "intermediate_size": 48, "num_key_value_heads": 2}
WINDOW = 16  # short enough that tests reach beyond it

CONFIGS = {
    "llama": lambda v: tf.LlamaConfig(vocab_size=v, **GQA),
    "mistral": lambda v: tf.MistralConfig(vocab_size=v, sliding_window=WINDOW, head_dim=8, **GQA),
    "qwen2": lambda v: tf.Qwen2Config(vocab_size=v, tie_word_embeddings=True, **GQA),
    "qwen3": lambda v: tf.Qwen3Config(vocab_size=v, head_dim=8, tie_word_embeddings=True, **GQA),
    "gemma2": lambda v: tf.Gemma2Config(
        vocab_size=v, head_dim=8, sliding_window=WINDOW, final_logit_softcapping=5.0, attn_logit_softcapping=5.0,
        query_pre_attn_scalar=8, **GQA
    ),
    "gemma3": lambda v: tf.Gemma3TextConfig(
        vocab_size=v, head_dim=8, sliding_window=WINDOW, final_logit_softcapping=8.0, query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], **GQA
    ),
    "cohere": lambda v: tf.CohereConfig(vocab_size=v, logit_scale=0.25, **GQA),
    "granite": lambda v: tf.GraniteConfig(vocab_size=v, logits_scaling=4.0, embedding_multiplier=2.0, **GQA),
    "gpt2": lambda v: tf.GPT2Config(
        vocab_size=v, n_embd=32, n_layer=3, n_head=4, n_positions=512, initializer_range=0.3
    ),
    "gpt_neox": lambda v: tf.GPTNeoXConfig(vocab_size=v, intermediate_size=48, **SMALL),
    "gpt_neo": lambda v: tf.GPTNeoConfig(
        vocab_size=v, hidden_size=32, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4,
        window_size=WINDOW, max_position_embeddings=512, initializer_range=0.3
    ),
    "opt": lambda v: tf.OPTConfig(
        vocab_size=v, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, ffn_dim=48, init_std=0.3,
        max_position_embeddings=512, word_embed_proj_dim=32
    ),
    "bloom": lambda v: tf.BloomConfig(vocab_size=v, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.3),
    "mamba": lambda v: tf.MambaConfig(
        vocab_size=v, hidden_size=32, state_size=8, num_hidden_layers=3, initializer_range=0.3
    ),
    "bert": lambda v: tf.BertConfig(vocab_size=v, intermediate_size=48, **SMALL),
    "roberta": lambda v: tf.RobertaConfig(vocab_size=v, intermediate_size=48, **SMALL),
    "deberta": lambda v: tf.DebertaV2Config(
        vocab_size=v, intermediate_size=48, relative_attention=True, position_biased_input=False,
        pos_att_type=["p2c", "c2p"], **SMALL
    ),
}  # fmt: skip
MASKED = {"bert", "roberta", "deberta"}


@functools.cache
def tokenizer(kind: str = "bytes") -> tf.PreTrainedTokenizerFast:
    """Return a small trained tokenizer.

    "bytes": byte-level BPE without BOS in its output (GPT-2, SmolLM2); "bytes-bos": the same, adding one (Llama 3);
    "prepend": BPE over ▁ with byte fallback, a Prepend normalizer and a BOS (Llama 2); "metaspace": Unigram over ▁ with
    <s> … </s> (XLM-R); "wordpiece": lower-casing WordPiece with [CLS] … [SEP] (BERT); "bare": bytes, no specials.
    """
    special = {"bytes": ["<eos>", "<bos>"], "bytes-bos": ["<bos>", "<eos>"], "prepend": ["<unk>", "<s>", "</s>"],
               "metaspace": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "bare": [],
               "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}[kind]  # fmt: skip
    if kind in ("bytes", "bytes-bos", "bare"):
        core = Tokenizer(models.BPE())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        core.train_from_iterator(
            LINES, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
        )
        core.post_processor = processors.ByteLevel(trim_offsets=False)
    elif kind == "prepend":
        core = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        core.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        bytes_ = [f"<0x{b:02X}>" for b in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=special + bytes_)
        latin = [line for line in LINES if line.isascii()]  # accents and other scripts go through the byte tokens
        core.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
        core.train_from_iterator(latin, trainer)
    elif kind == "metaspace":
        core = unigram(special, normalizers.NFKC(), pre_tokenizers.Metaspace())
    else:
        core = word_piece(special, normalizers.BertNormalizer(lowercase=True), LINES)
    return _with_specials(core, kind)


def _pieces(core: Tokenizer, lines: list[str]) -> tuple[Counter, set[str]]:
    """Return starts of words and what follows them, with counts, as (piece, whether it starts a word), and all characters.

    The trainers of WordPiece and Unigram resolve ties by the order of a hash table, another one in each process.
    """
    counts, characters = Counter(), set()
    for line in lines:
        for word, _ in core.pre_tokenizer.pre_tokenize_str(core.normalizer.normalize_str(line)):
            counts.update((word[at : at + 4], at == 0) for at in range(0, len(word), 4))
            characters.update(word)
    return counts, characters


def word_piece(special: list[str], normalizer, lines: list[str]) -> Tokenizer:
    """Return WordPiece over the words of lines, with the same vocabulary in each process."""
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    counts, characters = _pieces(core, lines)
    pieces = {*counts, *((character, first) for character in characters for first in (True, False))}
    names = [*special, *sorted(piece if first else f"##{piece}" for piece, first in pieces)]
    core.model = models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]")
    core.add_special_tokens(special)
    return core


def unigram(special: list[str], normalizer, pre_tokenizer) -> Tokenizer:
    """Return Unigram over the words of LINES, with the same vocabulary and scores in each process."""
    core = Tokenizer(models.Unigram())
    core.normalizer, core.pre_tokenizer, core.decoder = normalizer, pre_tokenizer, decoders.Metaspace()
    counts, characters = _pieces(core, LINES)
    merged = Counter(dict.fromkeys(sorted(characters), 1))
    for (piece, _), count in sorted(counts.items()):
        merged[piece] += count
    scored = [(piece, math.log(count / merged.total())) for piece, count in merged.items()]
    vocabulary = [(name, 0.0) for name in special] + sorted(scored, key=lambda pair: (-pair[1], pair[0]))
    core.model = models.Unigram(vocabulary, special.index("<unk>"), False)
    core.add_special_tokens(special)
    return core


def _with_specials(core: Tokenizer, kind: str) -> tf.PreTrainedTokenizerFast:
    template = {"bytes-bos": ("<bos>", None), "prepend": ("<s>", None), "metaspace": ("<s>", "</s>"),
              "wordpiece": ("[CLS]", "[SEP]")}.get(kind)  # fmt: skip
    if template:
        parts = [name for name in (template[0], "$A", template[1]) if name]
        core.post_processor = processors.TemplateProcessing(
            single=parts, special_tokens=[(t, core.token_to_id(t)) for t in template if t]
        )
    names = {
        "bytes": {"bos_token": "<bos>", "eos_token": "<eos>"},
        "bytes-bos": {"bos_token": "<bos>", "eos_token": "<eos>"},
        "prepend": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        "metaspace": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>",
                      "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"},
        "wordpiece": {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
                      "pad_token": "[PAD]"},
        "bare": {},
    }[kind]  # fmt: skip
    return tf.PreTrainedTokenizerFast(tokenizer_object=core, **names)


def model(arch: str, vocabulary: int, *, seed: int = 0):
    """Return a random model of an architecture in CONFIGS, float32, eval mode."""
    config = CONFIGS[arch](vocabulary)
    config.bos_token_id = config.eos_token_id = None
    config.pad_token_id = 1 if arch in ("roberta", "opt") else None if arch not in MASKED else 0
    factory = tf.AutoModelForMaskedLM if arch in MASKED else tf.AutoModelForCausalLM
    torch.manual_seed(seed)
    return factory.from_config(config, dtype=torch.float32).eval().requires_grad_(False)


def default_tokenizer(arch: str) -> str:
    """Return the kind of tokenizer of an architecture."""
    kinds = {
        "bert": "wordpiece",
        "deberta": "metaspace",
        "roberta": "metaspace",
        "llama": "prepend",
        "mistral": "prepend",
    }
    return {**kinds, "gemma2": "bytes-bos", "gemma3": "bytes-bos"}.get(arch, "bytes")


def record(arch: str, **options) -> ModelRecord:
    """Return the record that the `model` command would write for a tiny model, with the settings of a run."""
    fields = {
        "name": f"tiny-{arch}", "directory": "", "kind": "masked" if arch in MASKED else "causal",
        "fingerprint": f"tiny-{arch}", "revision": "0", "dtype": "float32", "device": "cpu", "chat": False,
        "allow_pickle": False,
    }  # fmt: skip
    return ModelRecord(**fields | options)


def load_model(arch: str = "llama", *, tokens: str | None = None, seed: int = 0, **options) -> LoadedModel:
    """Return a tiny LoadedModel; `options` are record options such as bos="never" or max_length=64."""
    tok = tokenizer(tokens or default_tokenizer(arch))
    return wrap(model(arch, len(tok), seed=seed), tok, record(arch, **options))


def on_forward(loaded: LoadedModel, action):
    """Call `action(ids)` before each forward pass with its token IDs, [rows, tokens]; return the handle of the hook."""

    def hook(module, inputs):
        action(inputs[0])

    return loaded.model.get_input_embeddings().register_forward_pre_hook(hook)


class Memory:
    """Memory of the device of a model, in rows or tokens: a forward pass with more raises an out-of-memory error."""

    def __init__(self, loaded: LoadedModel, *, rows: int | None = None, tokens: int | None = None):
        self.rows, self.tokens = rows, tokens
        self.failures: list[tuple[int, int]] = []  # (rows, tokens per row)
        on_forward(loaded, self._allocate)

    def _allocate(self, ids: torch.Tensor) -> None:
        if len(ids) > (self.rows or len(ids)) or ids.numel() > (self.tokens or ids.numel()):
            self.failures.append(tuple(ids.shape))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def save(arch: str, directory, *, tokens: str | None = None, **options) -> ModelRecord:
    """Write a tiny model and its tokenizer to `directory` and return the record to load it with."""
    tok = tokenizer(tokens or default_tokenizer(arch))
    model(arch, len(tok)).save_pretrained(directory)
    tok.save_pretrained(directory)
    return record(arch, directory=str(directory), **options)


def write_requests(path: Path, requests: pa.Table, **metadata) -> Path:
    """Write a requests file, of acceptability unless `metadata` states another protocol; return its path."""
    defaults = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": path.stem}
    return artifacts.write(path, REQUESTS, requests, defaults | metadata)


def job(directory: Path, evaluations: dict[str, list[str]], **settings) -> tuple[ModelRecord, dict[str, Path]]:
    """Return (the record of a saved model, the requests files) of a job that scores the texts of some evaluations."""
    save("llama", directory / "model")
    record = resolve("m", str(directory / "model"), directory / "converted")
    paths = {
        name: write_requests(directory / f"{name}.parquet", score_requests([(text, 0, len(text)) for text in texts]))
        for name, texts in evaluations.items()
    }
    return record | {"dtype": "float32", "device": "cpu", "chat": False, **settings}, paths


def score_requests(texts, *, extras=(), item="i") -> pa.Table:
    """Build score requests from (text, span start, span end) or (prefix, text, span start, span end); ids by content."""
    rows = []
    for number, (*prefix, text, start, end) in enumerate(texts):
        content = {
            "kind": "score", "prefix": "".join(prefix), "text": text, "span_start": start, "span_end": end,
            "extras": list(extras), "messages": None, "few_shot_examples": prefix or [], "stop": None, "max_new_tokens": None,
            "longest_target": None, "decoding": None,
        }  # fmt: skip
        rows.append({"request_id": fingerprint(content), "item_id": f"{item}{number}", "role": "choice:0", **content})
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)
