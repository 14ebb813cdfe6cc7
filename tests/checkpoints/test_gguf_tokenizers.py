"""Tokenizers of GGUF files: the pre-tokenizer that a file names is that of llama.cpp, or the file is rejected."""

import copy
import functools
import json
import urllib.request

import pytest
from support import llama, tiny
from support.messages import assert_states
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from vernacular.checkpoints.gguf_conversion import _IGNORE_MERGES, _SPLITS, read_tokenizer
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.inference.model.loaded import wrap

pytest.importorskip("gguf", exc_type=ImportError)

TEXTS = [
    "L'any 2024 n'hi ha d'altres, l'illa d'en Pere és d'ell. I'VE 12345 we'll 7.",
    "नमस्ते दुनिया, यह हिन्दी में एक वाक्य है। १२३",
    "كَتَبَ الوَلَدُ الدَّرْسَ في المَدْرَسَةِ. ١٢٣٤",
    "a  2   b\n\n  c\t\td \r\n 3  ",
    "Het jy s'n gesien? (Dit) <is> ma's $5+6=11 `x` se boek!...",
    "დღეს დილით ბაზარში წავედით. 今日は12月です。한국어 ½ ² Ⅷ",
]


@functools.cache
def model():
    """Return a tiny model whose merges cross spaces, digits and marks, so that every boundary shows in its tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    core.train_from_iterator([text[i:] for text in TEXTS for i in range(0, len(text), 3)], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    return wrap(tiny.model("llama", len(tokenizer)), tokenizer, tiny.record("llama"))


def test_boundaries_of_viking_survive_the_conversion(tmp_path):
    llama.write_gguf(model(), tmp_path / "v.gguf", pre="viking")
    llama.write_gguf(model(), tmp_path / "g.gguf", pre="gpt-2")
    record = resolve("v", str(tmp_path / "v.gguf"), tmp_path / "out")
    converted = Tokenizer.from_file(f"{record.directory}/tokenizer.json")
    words = [text for text, _ in converted.pre_tokenizer.pre_tokenize_str("L'any n'hi é 20.")]
    assert words == ["L'any", "Ġn'hi", "ĠÃ©", "Ġ", "2", "0", "."]
    assert converted.encode(TEXTS[0]).ids != read_tokenizer(tmp_path / "g.gguf")(TEXTS[0])["input_ids"]


@pytest.mark.parametrize(
    ("pre", "n_tokens"), [("llama-bpe", 1), ("lfm2", 1), ("tekken", 1), ("qwen2", 4), ("gpt-2", 4)]
)
def test_word_that_no_merges_lead_to_is_one_token_where_it_is_in_llama_cpp(tmp_path, pre, n_tokens):
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>", "gato", "xy"]
    core = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, [("x", "y")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    loaded = wrap(tiny.model("llama", len(tokenizer)), tokenizer, tiny.record("llama"))
    llama.write_gguf(loaded, tmp_path / "x.gguf", pre=pre)
    record = resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out")
    converted = Tokenizer.from_file(f"{record.directory}/tokenizer.json")
    assert len(converted.encode("gato", add_special_tokens=False).ids) == n_tokens
    assert converted.model.ignore_merges is (n_tokens == 1)


@pytest.mark.parametrize("adds_space", [True, False, None])
def test_spaces_of_sentencepiece_are_those_of_llama_cpp(tmp_path, adds_space):
    words = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "<u>"]
    types = [2, 3, 3, 1, 1, 1, 1, 4]
    key = "tokenizer.ggml.add_space_prefix"
    add = (lambda writer: None) if adds_space is None else (lambda writer: writer.add_bool(key, adds_space))
    llama.write_gguf(model(), tmp_path / "x.gguf", tokens=(words, types), add=add)
    expected = {"a": "▁a", " a": "▁ ▁a", "a<u>b": "▁a <u> ▁ b", "<u> a": "<u> ▁ ▁a"}
    if adds_space is False:
        expected = {"a": "a", " a": "▁a", "a<u>b": "a <u> b", "<u> a": "<u> ▁a"}
    own = read_tokenizer(tmp_path / "x.gguf")
    assert {text: " ".join(own.tokenize(text)) for text in expected} == expected


@pytest.mark.parametrize("token", ["ＡＢ", "  ", "<|u|>"])
def test_token_that_is_matched_in_texts_must_be_one(tmp_path, token):
    tokenizer = copy.deepcopy(tiny.tokenizer("bytes"))
    tokenizer.add_tokens([AddedToken(token, normalized=False)])
    loaded = wrap(tiny.model("llama", len(tokenizer)), tokenizer, tiny.record("llama"))
    llama.write_gguf(loaded, tmp_path / "x.gguf")
    if token == "<|u|>":
        assert read_tokenizer(tmp_path / "x.gguf").tokenize(f"a{token}b") == ["a", token, "b"]
        return
    with pytest.raises(ModelError) as raised:
        read_tokenizer(tmp_path / "x.gguf")
    assert_states(raised.value, "x.gguf", repr(token), "divides into several tokens", "dtype: auto")


@pytest.mark.parametrize("pre", ["unheard-of", None])
def test_unknown_pre_tokenizer_is_rejected(tmp_path, pre):
    llama.write_gguf(model(), tmp_path / "x.gguf", pre=pre)
    with pytest.raises(ModelError) as raised:
        resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out")
    assert_states(
        raised.value, "x.gguf", "tokenizer.ggml.pre", f'"{pre}"' if pre else "not stated", "original checkpoint"
    )


# the names that the workflow knows, and one for each pattern of transformers
NAMES = sorted({*_SPLITS, *{split: name for name, split in GGUF_PRE_TOKENIZER_SPLITS.items()}.values()})


def tokens_of_llama_cpp(server, text, *, add_special):
    body = json.dumps({"content": text, "add_special": add_special}).encode()
    address = server.source.removesuffix("/v1") + "/tokenize"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("adds_bos", [None, True, False])
@pytest.mark.parametrize("pre", ["gpt-2", *sorted(_IGNORE_MERGES - {"jina-v5-nano"}), "qwen2"])
def test_texts_begin_as_in_llama_cpp(tmp_path, pre, adds_bos):
    pytest.importorskip("xllamacpp", exc_type=ImportError)
    llama.write_gguf(model(), tmp_path / "x.gguf", pre=pre, adds_bos=adds_bos)
    read_tokenizer(tmp_path / "x.gguf").save_pretrained(tmp_path / "out")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")
    with llama.LlamaServer(tmp_path / "x.gguf") as server:
        expected = tokens_of_llama_cpp(server, "a", add_special=True)
    assert tokenizer("a")["input_ids"] == expected


@pytest.mark.slow
@pytest.mark.parametrize("pre", NAMES)
def test_tokens_are_those_of_llama_cpp(tmp_path, pre):
    pytest.importorskip("xllamacpp", exc_type=ImportError)
    llama.write_gguf(model(), tmp_path / "x.gguf", pre=pre)
    tokenizer = read_tokenizer(tmp_path / "x.gguf")
    with llama.LlamaServer(tmp_path / "x.gguf") as server:
        # llama.cpp approximates the patterns of GPT-4o and Tekken, without their combining marks
        is_approximate = r"\p{Lm}" in GGUF_PRE_TOKENIZER_SPLITS.get(pre, "")
        for text in TEXTS[3:] if is_approximate else TEXTS:
            expected = tokens_of_llama_cpp(server, text, add_special=False)
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == expected, text
