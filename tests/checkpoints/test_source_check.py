"""What is loaded is what the files contain: pipelines of tokenizers, tensors, and two checkpoints in one directory."""

import json
import shutil

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from support import architectures, tiny
from support.messages import assert_states
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from vernacular.checkpoints.resolve import resolve
from vernacular.checkpoints.source_check import check_tensors, unread_settings
from vernacular.checkpoints.tokenizer_check import tokenizer_of_file
from vernacular.core.errors import ModelError
from vernacular.inference.model.load import load
from vernacular.inference.model.tokenizers import load_tokenizer
from vernacular.metrics.similarity import cosine
from vernacular.metrics.similarity.encoder import TokenEncoder

TEXTS = [
    "O gato dorme no tellado.", "O ﬁn  da CHOIVA: 2024,5", "cafe\u0301 <s> a </s> <eos> [MASK] b", "أَكَلَت القِطَّة", "नमस्ते", "",
]  # fmt: skip


def bpe(normalizer=None, pre_tokenizer=None):
    core = Tokenizer(models.BPE())
    core.normalizer, core.decoder = normalizer, decoders.ByteLevel()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre_tokenizer is None)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, byte_level]) if pre_tokenizer else byte_level
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<eos>"], initial_alphabet=alphabet)
    core.train_from_iterator(tiny.LINES, trainer)
    return core


def unigram(normalizer, pre_tokenizer):
    core = tiny.unigram(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], normalizer, pre_tokenizer)
    core.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A", "</s>"], special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return core


def word_piece():
    return Tokenizer.from_str(tiny.tokenizer("wordpiece").backend_tokenizer.to_str())


WORDS = pre_tokenizers.Split(Regex(r"[^ ]+ ?"), "isolated")  # with what follows them: "tellado."
CASES = {  # tokenizer.json, the class that tokenizer_config.json names, type of the model
    "normalizer as gpt2": (lambda: bpe(normalizers.NFKC()), "GPT2Tokenizer", "gpt2"),
    "split as gpt2": (lambda: bpe(None, WORDS), "GPT2Tokenizer", "gpt2"),
    "no normalizer as neox": (bpe, "GPTNeoXTokenizer", "gpt_neox"),
    "split as qwen2": (lambda: bpe(normalizers.Lowercase(), WORDS), "Qwen2Tokenizer", "qwen2"),
    "generic class of qwen2": (lambda: bpe(None, WORDS), "PreTrainedTokenizerFast", "qwen2"),
    "words as roberta": (word_piece, "RobertaTokenizer", "roberta"),
    "bytes as gemma": (bpe, "GemmaTokenizer", "gemma2"),
    "normalizer as xlm-r": (
        lambda: unigram(normalizers.Lowercase(), pre_tokenizers.Metaspace()), "XLMRobertaTokenizer", "xlm-roberta"
    ),
    "no prefix as t5": (
        lambda: unigram(normalizers.NFD(), pre_tokenizers.Metaspace(prepend_scheme="never")), "T5Tokenizer", "t5"
    ),
    "case of bert": (word_piece, "BertTokenizer", "bert"),
}  # fmt: skip


def write(core, class_name, model_type, directory, **settings):
    directory.mkdir()
    core.save(str(directory / "tokenizer.json"))
    names = {"eos_token": "<eos>"} if core.token_to_id("<eos>") is not None else {}
    settings = {"tokenizer_class": class_name, "model_max_length": 99, **names, **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    return directory


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_tokenizer_json(tmp_path, name):
    make, class_name, model_type = CASES[name]
    settings = {"do_lower_case": False} if name == "case of bert" else {}
    directory = write(make(), class_name, model_type, tmp_path / "m", **settings)
    notes = []
    tokenizer = load_tokenizer(tiny.record("llama"), directory, notes=notes)
    stored = Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == stored.encode(text).ids
    assert tokenizer.model_max_length == 99
    assert "tokenizer.json instead of" in notes[-1]
    assert ("do_lower_case: False is not used" in notes[0]) is (name == "case of bert")


@pytest.mark.parametrize("class_name", ["T5Tokenizer", "XLMRobertaTokenizer", "DebertaV2Tokenizer", "AlbertTokenizer"])
@pytest.mark.parametrize("make", [bpe, word_piece])
def test_file_decides_where_its_class_cannot_load_it(tmp_path, make, class_name):
    directory = write(make(), class_name, "llama", tmp_path / "m")
    notes = []
    tokenizer = load_tokenizer(tiny.record("llama"), directory, notes=notes)
    stored = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == [stored.encode(text).ids for text in TEXTS]
    assert f"tokenizer.json instead of {class_name}" in notes[0]
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_tokenizer(tiny.record("llama", tokenizer_pipeline="class"), directory)
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_tokenizer(tiny.record("llama"), directory)


def test_class_decides_if_the_setting_says_so(tmp_path):
    directory = write(bpe(normalizers.NFKC()), "GPT2Tokenizer", "gpt2", tmp_path / "m")
    notes = []
    tokenizer = load_tokenizer(tiny.record("llama", tokenizer_pipeline="class"), directory, notes=notes)
    own = tf.AutoTokenizer.from_pretrained(directory)
    assert type(tokenizer) is type(own) is tf.GPT2Tokenizer
    assert tokenizer("ﬁn")["input_ids"] == own("ﬁn")["input_ids"]
    assert "GPT2Tokenizer" in notes[0]
    assert "instead of tokenizer.json" in notes[0]


@pytest.mark.parametrize("kind", ["bytes", "bytes-bos", "prepend", "metaspace", "wordpiece"])
def test_equal_pipeline_has_no_note(tmp_path, kind):
    tiny.save("llama", tmp_path / "m", tokens=kind)
    tokenizer = tf.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert tokenizer_of_file(tokenizer, tmp_path / "m", "m") == (tokenizer, [])


def test_encoders_of_the_similarity_use_tokenizer_json(tmp_path):
    tiny.save("roberta", tmp_path / "e", tokens="wordpiece")
    settings = json.loads((tmp_path / "e" / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "RobertaTokenizer"
    (tmp_path / "e" / "tokenizer_config.json").write_text(json.dumps(settings))
    record = tiny.record("roberta", directory=str(tmp_path / "e"), allow_pickle=False)
    text = "O gato dorme."
    ids = Tokenizer.from_file(str(tmp_path / "e" / "tokenizer.json")).encode(text).ids
    encoder = TokenEncoder(record)
    assert encoder.tokenize([text])[0].ids == ids
    assert cosine.load(record).tokenizer(text)["input_ids"] == ids
    assert "RobertaTokenizer" in encoder.loading[0]
    other = TokenEncoder(record | {"tokenizer_pipeline": "class"})
    assert other.tokenize([text])[0].ids != ids


# ----- tensors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_name", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
def test_random_splits_of_a_stored_tokenizer_are_not_used(tmp_path, class_name):
    tiny.save("gpt2", tmp_path / "m")
    expected = load_tokenizer(tiny.record("gpt2"), tmp_path / "m")(TEXTS)["input_ids"]
    file, settings = tmp_path / "m" / "tokenizer.json", tmp_path / "m" / "tokenizer_config.json"
    content = json.loads(file.read_text("utf-8"))
    content["model"]["dropout"] = 0.5
    file.write_text(json.dumps(content), "utf-8")
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"tokenizer_class": class_name}))
    notes = []
    tokenizer = load_tokenizer(tiny.record("gpt2"), tmp_path / "m", notes=notes)
    assert all(tokenizer(TEXTS)["input_ids"] == expected for _ in range(20))
    assert "dropout of tokenizer.json (0.5), which splits words at random, is not used" in notes


def test_special_tokens_that_the_vocabulary_lacks_are_noted(tmp_path):
    tiny.save("gpt2", tmp_path / "m")
    settings, notes = tmp_path / "m" / "tokenizer_config.json", []
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token": "<|fin|>"}))
    load_tokenizer(tiny.record("gpt2"), tmp_path / "m", notes=notes)
    assert notes == ["the vocabulary lacks the eos_token of tokenizer_config.json, <|fin|>"]


NOTES = {  # settings of tokenizer_config.json, what ends a text in tokenizer.json, note
    "no BOS": ({"add_bos_token": True}, "", "puts no <bos> before a text; add_bos_token: True is not used"),
    "EOS": ({"add_bos_token": False, "add_eos_token": False}, "<eos>", "puts <eos> after a text; add_eos_token: False"),
    "space": ({"add_prefix_space": False}, "", "puts a space before a text; add_prefix_space: False is not used"),
    "as there": ({"add_bos_token": False, "add_eos_token": True, "add_prefix_space": True}, "<eos>", None),
    "added": ({"additional_special_tokens": ["<u>", "<v>"]}, "", "tokens that tokenizer.json does not have, <u>, …"),
}


@pytest.mark.parametrize("name", NOTES)
def test_settings_that_differ_from_tokenizer_json_are_noted(tmp_path, name):
    settings, end, note = NOTES[name]
    core, notes = bpe(), []
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.add_special_tokens(["<bos>"])
    special = [(end, core.token_to_id(end))] if end else []
    core.post_processor = processors.TemplateProcessing(single=f"$A {end}".strip(), special_tokens=special)
    directory = write(core, "PreTrainedTokenizerFast", "llama", tmp_path / "m", bos_token="<bos>", **settings)
    tokenizer = load_tokenizer(tiny.record("llama"), directory, notes=notes)
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == [core.encode(text).ids for text in TEXTS]
    assert len(notes) == (note is not None)
    assert (note or "") in "".join(notes)


@pytest.mark.parametrize("settings", [{}, {"add_bos_token": True}, {"add_bos_token": False, "add_eos_token": False}])
def test_special_tokens_are_those_of_tokenizer_json_whatever_the_settings_add(tmp_path, settings):
    core = bpe()
    core.add_special_tokens(["<s>", "</s>", "<mask>", "<pad>", "<unk>"])
    tf.RobertaTokenizer(tokenizer_object=core).save_pretrained(tmp_path / "own")  # with the pipeline of the class
    core = Tokenizer.from_file(str(tmp_path / "own" / "tokenizer.json"))
    core.post_processor = processors.TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 0)])
    directory = write(core, "RobertaTokenizer", "roberta", tmp_path / "m", **settings)
    tokenizer = load_tokenizer(tiny.record("llama"), directory)
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == [core.encode(text).ids for text in TEXTS]


def test_token_that_the_settings_read_otherwise_is_noted(tmp_path):
    core, notes = bpe(), []
    core.add_tokens([AddedToken("<u>", normalized=False)])
    token = {"content": "<u>", "single_word": True, "lstrip": False, "rstrip": False, "normalized": False}
    token = {"added_tokens_decoder": {str(core.token_to_id("<u>")): token | {"special": False}}}
    directory = write(core, "PreTrainedTokenizerFast", "llama", tmp_path / "m", **token)
    tokenizer = load_tokenizer(tiny.record("llama"), directory, notes=notes)
    assert tokenizer("a<u>b")["input_ids"] != core.encode("a<u>b").ids
    assert "tokens of tokenizer_config.json replace those of tokenizer.json in 1 test" in notes[-1]


def test_file_decides_where_the_class_of_the_type_cannot_load_it(tmp_path):
    core = Tokenizer(models.BPE(continuing_subword_prefix="##", unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.train_from_iterator(tiny.LINES, trainers.BpeTrainer(special_tokens=["<unk>"], continuing_subword_prefix="##"))
    notes, directory = [], write(core, None, "qwen2", tmp_path / "m")
    (directory / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 99}))
    tokenizer = load_tokenizer(tiny.record("llama"), directory, notes=notes)
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == [core.encode(text).ids for text in TEXTS]
    assert "the class of the model's type: it cannot load it" in notes[0]


SENTENCEPIECE = {  # options of training
    "plain": {"remove_extra_whitespaces": False},
    "without a space before a text": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "nmt_nfkc": {"normalization_rule_name": "nmt_nfkc"},
    "symbols": {"user_defined_symbols": ["<u>", "gato"], "normalization_rule_name": "nfkc"},
}


def of_sentencepiece(directory, model, class_name, file="tokenizer.model", texts=(), **options):
    """Write a tokenizer that is a SentencePiece model only; return that model."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    directory.mkdir()
    with open(directory / file, "wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*tiny.LINES, *texts]), model_writer=stream, hard_vocab_limit=False, **options
        )
    (directory / "config.json").write_text(json.dumps({"model_type": model}))
    settings = {"tokenizer_class": class_name, "model_max_length": 99, "add_bos_token": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return sentencepiece.SentencePieceProcessor(model_file=str(directory / file))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_tokens_are_those_of_sentencepiece_without_tokenizer_json(tmp_path, name, kind):
    options = {"normalization_rule_name": "identity", "model_type": kind, "vocab_size": 420, "byte_fallback": True}
    own = of_sentencepiece(tmp_path / "m", "llama", "LlamaTokenizer", **options | SENTENCEPIECE[name])
    notes = []
    tokenizer = load_tokenizer(tiny.record("llama"), tmp_path / "m", notes=notes)
    texts = ["O gato dorme.", "  a   b", " gato", "cafe\u0301 ﬁn ½", "नमस्ते", "a <u>gato b"]
    assert [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts] == own.encode(texts)
    assert tokenizer("a")["input_ids"][0] == own.bos_id()
    assert tokenizer.model_max_length == 99
    assert "the pipeline of tokenizer.model instead of that of LlamaTokenizer" in notes[0]
    as_class = load_tokenizer(tiny.record("llama", tokenizer_pipeline="class"), tmp_path / "m", notes=notes)
    assert type(as_class) is tf.LlamaTokenizer
    assert "the pipeline of LlamaTokenizer instead of that of tokenizer.model" in notes[1]


LETTERS = ["ทำ น้ำ คำ มา นา", "ນ້ຳ ຄຳ ໝາ ມາ", "ﻣﺮﺣﺒﺎ １２３ ½ ㎏"]
OWN_NAMES = [  # class, its file, and whether it applies the file's map of letters
    ("deberta-v2", "DebertaV2Tokenizer", "spm.model", False),
    ("mbart", "MBartTokenizer", "sentencepiece.bpe.model", False),
    ("big_bird", "BigBirdTokenizer", "spiece.model", False),
    ("xlm-roberta", "XLMRobertaTokenizer", "sentencepiece.bpe.model", True),
    ("t5", "T5Tokenizer", "spiece.model", True),
]


@pytest.mark.parametrize(("kind", "class_name", "file", "has_map"), OWN_NAMES, ids=[kind for kind, *_ in OWN_NAMES])
def test_letters_are_mapped_as_by_a_sentencepiece_file_of_any_name(tmp_path, kind, class_name, file, has_map):
    options = {"vocab_size": 500, "character_coverage": 1.0, "normalization_rule_name": "nmt_nfkc"}
    if kind == "t5":
        options |= {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    elif kind == "deberta-v2":
        options |= {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]"}
        options |= {"eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    own = of_sentencepiece(tmp_path / "m", kind, class_name, file, LETTERS * 20, **options)
    notes = []
    tokenizer = load_tokenizer(tiny.record("llama"), tmp_path / "m", notes=notes)
    for text in (*LETTERS, "O gato dorme."):
        tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
        assert tokens == own.encode(text, out_type=str)
    assert type(tokenizer).__name__ == class_name
    if has_map:
        assert notes == []
        return
    assert f"the normalizer of {file} instead of that of {class_name}" in notes[0]
    as_class = load_tokenizer(tiny.record("llama", tokenizer_pipeline="class"), tmp_path / "m", notes=notes)
    assert as_class.unk_token_id in as_class.encode(LETTERS[0])
    assert f"the normalizer of {class_name} instead of that of {file}" in notes[1]


BYTES = {"byte_fallback": True, "vocab_size": 600}
BPE = {"model_type": "bpe", "vocab_size": 420}
UNREAD = [  # class, its file, options of training
    ("t5", "T5Tokenizer", "spiece.model", {}),  # <unk> is not the third piece
    ("mt5", "T5Tokenizer", "spiece.model", BYTES | {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    ("t5", "T5Tokenizer", "spiece.model", BPE),
    ("xlm-roberta", "XLMRobertaTokenizer", "sentencepiece.bpe.model", BPE),
    ("mbart", "MBartTokenizer", "sentencepiece.bpe.model", BYTES),
]


@pytest.mark.parametrize(("kind", "class_name", "file", "options"), UNREAD)
def test_vocabularies_and_unknown_characters_are_those_of_a_sentencepiece_file(
    tmp_path, kind, class_name, file, options
):
    own = of_sentencepiece(tmp_path / "m", kind, class_name, file, **options)
    shutil.copy(tmp_path / "m" / file, tmp_path / "m" / "tokenizer.model")  # which the class does not read
    settings = {"tokenizer_class": class_name, "add_prefix_space": True}  # as transformers 4 saves T5's
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps(settings))
    notes = []
    tokenizer = load_tokenizer(tiny.record("llama"), tmp_path / "m", notes=notes)
    for text in ("O gato dorme no tellado. ⵜⵎ", "नमस्ते", "Jutros ﬁ"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.convert_ids_to_tokens(ids) == own.id_to_piece(own.encode(text))
        if "byte_fallback" in options:
            assert tokenizer.decode(ids) == own.decode(own.encode(text))
    assert f"model of {file} instead of that of {class_name}" in notes[0]


@pytest.mark.parametrize(
    ("kind", "class_name", "file", "options", "advice"),
    [
        ("xglm", "XGLMTokenizer", "sentencepiece.bpe.model", {}, "tokenizer.json"),
        ("t5", "T5Tokenizer", "spm.model", {}, "spiece.model"),
        ("bert", "BertTokenizer", "spm.model", {}, "tokenizer.json"),
        ("t5", "T5Tokenizer", "spiece.model", {"add_dummy_prefix": False}, "tokenizer.json"),
        ("llama", "LlamaTokenizer", "tokenizer.model", {"treat_whitespace_as_suffix": True}, "tokenizer.json"),
    ],
)
def test_a_sentencepiece_file_that_a_class_does_not_read_is_an_error(tmp_path, kind, class_name, file, options, advice):
    of_sentencepiece(tmp_path / "m", kind, class_name, file, vocab_size=420, **options)
    with pytest.raises(ModelError) as raised:
        load_tokenizer(tiny.record("llama"), tmp_path / "m")
    assert_states(raised.value, "tiny-llama", file, class_name, advice)


@pytest.mark.parametrize(
    ("class_name", "file"), [("BertTokenizer", "vocab.txt"), ("GPT2Tokenizer", "vocab.json"), ("T5Tokenizer", "spiece")]
)
def test_a_missing_vocabulary_is_an_error(tmp_path, class_name, file):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": class_name}))
    with pytest.raises(ModelError) as raised:
        load_tokenizer(tiny.record("llama"), tmp_path)
    assert_states(raised.value, "tiny-llama", class_name, "not found", "tokenizer.json", file)


@pytest.fixture
def shards(tmp_path):
    tokenizer = tiny.tokenizer("bytes")
    tiny.model("llama", len(tokenizer)).save_pretrained(tmp_path / "m", max_shard_size="20KB")
    tokenizer.save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def change(file, edit):
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def loaded(directory):
    return load(resolve("m", str(directory), directory.parent / "out") | {"dtype": "float32", "device": "cpu"})


def test_tensor_in_two_shards_is_rejected(shards):
    loaded(shards)
    first, *_, last = sorted(shards.glob("*.safetensors"))
    name = next(iter(load_file(first)))
    change(last, lambda tensors: tensors.update({name: torch.zeros(2)}))
    with pytest.raises(ModelError) as raised:
        loaded(shards)
    assert_states(raised.value, first.name, last.name, name)


def test_single_file_beside_shards_is_rejected_unless_they_are_gone(shards):
    other = tiny.model("llama", len(tiny.tokenizer("bytes")), seed=1)
    other.save_pretrained(shards.parent / "other")
    shutil.copy(shards.parent / "other" / "model.safetensors", shards / "model.safetensors")
    with pytest.raises(ModelError) as raised:
        loaded(shards)
    assert_states(raised.value, "two sets of weights", "model.safetensors", "model-00001", "index.json")
    for file in shards.glob("model-0*.safetensors"):
        file.unlink()
    assert torch.equal(loaded(shards).model.lm_head.weight, other.lm_head.weight)


@pytest.mark.parametrize("edit", [lambda w: w.zero_(), lambda w: w[-1].add_(1), lambda w: w.mul_(2)])
def test_loaded_tensor_that_is_not_that_of_the_file_is_rejected(tmp_path, edit):
    tiny.save("llama", tmp_path / "m")
    model = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    check_tensors("m", model, tmp_path / "m", [], allow_pickle=False)
    edit(model.model.layers[1].mlp.up_proj.weight.data)
    with pytest.raises(ModelError) as raised:
        check_tensors("m", model, tmp_path / "m", [], allow_pickle=False)
    assert_states(raised.value, "model m", "model.layers.1.mlp.up_proj.weight", "model.safetensors")


@pytest.mark.parametrize("arch", ["mixtral", "qwen3_moe"])
def test_tensors_that_transformers_joins_are_compared_too(tmp_path, arch):
    architectures.build(arch, "causal").model.save_pretrained(tmp_path / "m")
    model = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    name = next(name for name, _ in model.named_parameters() if "experts" in name and "down" in name)
    assert name not in load_file(tmp_path / "m" / "model.safetensors")
    check_tensors("m", model, tmp_path / "m", [], allow_pickle=False)
    model.get_parameter(name).data[1].mul_(2)
    with pytest.raises(ModelError) as raised:
        check_tensors("m", model, tmp_path / "m", [], allow_pickle=False)
    assert_states(raised.value, "model m", "experts.1.", "model.safetensors")


@pytest.mark.parametrize(
    ("arch", "settings", "expected"),
    [
        ("llama", {"logits_scaling": 8.0, "clip_qkv": 0.5}, ["logits_scaling: 8.0", "clip_qkv: 0.5"]),
        ("llama", {"position_embedding_type": "alibi"}, ["position_embedding_type: alibi"]),
        ("llama", {"use_qk_norm": True, "alibi": True}, ["use_qk_norm: True", "alibi: True"]),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0, "gain": 2}}, ["gain: 2"]),
        ("llama", {"position_embedding_type": "absolute", "qk_norm": False, "residual_dropout": 0.1}, []),
        ("llama", {"mlp_bias": False, "rope_theta": 10000.0, "unsloth_version": "2026.1", "pretraining_tp": 2}, []),
        ("gpt2", {"n_ctx": 512, "num_attention_heads": 2, "scale_attn_weights": True}, []),
    ],
)
def test_settings_that_no_class_reads_are_noted(tmp_path, arch, settings, expected):
    tiny.save(arch, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | settings))
    model = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    notes = unread_settings(model, tmp_path / "m", "m")
    assert notes == [f"config.json has {text}, which {type(model).__name__} does not compute" for text in expected]
    assert loaded(tmp_path / "m").notes.get("loading", []) == notes


def test_limits_of_texts_that_generation_ignores_are_noted(tmp_path):
    tiny.save("llama", tmp_path / "m")
    limits = {"suppress_tokens": [3], "no_repeat_ngram_size": 3, "min_length": 0, "max_new_tokens": 20}
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps(limits))
    notes = loaded(tmp_path / "m").notes["loading"]
    assert notes == [
        f"generation_config.json has {key}, which generated texts do not follow"
        for key in ("suppress_tokens", "no_repeat_ngram_size")
    ]


SCALED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
BASE = {"rope_type": "default", "rope_theta": 5e5}


@pytest.mark.parametrize(
    ("arch", "settings", "is_loaded"),
    [
        ("llama", {"rope_parameters": BASE, "rope_scaling": SCALED}, False),  # transformers drops the base of the first
        ("llama", {"rope_parameters": BASE, "rope_scaling": SCALED | {"rope_theta": 5e5}}, True),
        ("llama", {"rope_parameters": BASE, "rope_scaling": SCALED, "rope_theta": 5e5}, True),
        ("llama", {"rope_parameters": None, "rope_scaling": SCALED, "rope_theta": 5e5}, True),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_theta": 5e5}, False),
        ("gemma3", {"rope_parameters": BASE}, False),  # it has a base for each kind of layers
        ("gemma3", {"rope_parameters": None, "rope_theta": 5e5, "rope_local_base_freq": 2e4}, True),
    ],
)
def test_base_of_rope_is_the_one_in_the_config_or_rejected(tmp_path, arch, settings, is_loaded):
    tiny.save(arch, tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    config = json.loads(file.read_text()) | settings
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    if is_loaded:
        rope = loaded(tmp_path / "m").model.config.rope_parameters
        bases = [kind["rope_theta"] for kind in ([rope] if arch == "llama" else rope.values())]
        assert sorted(bases) == ([5e5] if arch == "llama" else [2e4, 5e5])
        return
    with pytest.raises(ModelError) as raised:
        loaded(tmp_path / "m")
    assert_states(raised.value, "model m", "config.json", "rope_theta: 500000.0")


def test_stored_head_is_used_whatever_the_config_ties(tmp_path):
    tiny.save("llama", tmp_path / "m")
    head = load_file(tmp_path / "m" / "model.safetensors")["lm_head.weight"]
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    assert torch.equal(loaded(tmp_path / "m").model.lm_head.weight, head)


EXTRA = {
    "model.layers.0.self_attn.q_proj.bias": True,
    "model.layers.2.self_attn.q_norm.weight": True,
    "model.norm.bias": True,
    "lm_head.bias": True,
    "model.layers.0.self_attn.q_proj.weight_scale_inv": True,
    "model.layers.7.mlp.up_proj.weight": False,  # a layer beyond the configured ones
    "vision_tower.patches.weight": False,
    "score.weight": False,
}


@pytest.mark.parametrize("name", EXTRA)
def test_unused_tensor_of_a_computed_layer_is_rejected(tmp_path, name):
    tiny.save("llama", tmp_path / "m")
    change(tmp_path / "m" / "model.safetensors", lambda tensors: tensors.update({name: torch.ones(8)}))
    if not EXTRA[name]:
        loaded(tmp_path / "m")
        return
    with pytest.raises(ModelError) as raised:
        loaded(tmp_path / "m")
    assert_states(raised.value, "model m", name, "LlamaForCausalLM")


@pytest.mark.parametrize("theta", [10_000.0, 2_000_000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_stored_frequencies_must_be_those_of_the_config(tmp_path, theta, dtype):
    tiny.save("llama", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": theta}
    size = config["head_dim"]
    stored = (theta ** -(torch.arange(0, size, 2) / size)).to(dtype)
    name = "model.layers.1.self_attn.rotary_emb.inv_freq"
    change(tmp_path / "m" / "model.safetensors", lambda tensors: tensors.update({name: stored}))
    for parameters in (rope, rope | {"rope_type": "default"}):
        (tmp_path / "m" / "config.json").write_text(json.dumps(config | {"rope_parameters": parameters}))
        loaded(tmp_path / "m")
    other = config | {"rope_parameters": {"rope_type": "default", "rope_theta": 3 * theta}}
    (tmp_path / "m" / "config.json").write_text(json.dumps(other))
    with pytest.raises(ModelError) as raised:
        loaded(tmp_path / "m")
    assert_states(raised.value, "model m", name, "model.safetensors", "rope_theta")


def to_fp8(tensors):
    """Store the layers' matrices in 8 bits, in blocks of 16 x 16 with a scale; return what they stand for."""
    stood_for = {}
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        rows, columns = (size // 16 for size in tensors[name].shape)
        blocks = tensors[name].reshape(rows, 16, columns, 16)
        scales = blocks.abs().amax((1, 3)) / 448
        packed = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
        tensors[name], tensors[f"{name}_scale_inv"] = packed.reshape(tensors[name].shape), scales
        stood_for[name] = (packed.float() * scales[:, None, :, None]).reshape(tensors[name].shape)
    return stood_for


@pytest.mark.skipif(torch.cuda.is_available(), reason="computes with 8 bits")
def test_weights_of_8_bits_are_multiplied_by_their_scales_or_rejected(tmp_path):
    tiny.save("llama", tmp_path / "m")
    config, expected = json.loads((tmp_path / "m" / "config.json").read_text()), {}
    settings = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    change(tmp_path / "m" / "model.safetensors", lambda tensors: expected.update(to_fp8(tensors)))
    model = loaded(tmp_path / "m").model
    for name, weight in expected.items():
        torch.testing.assert_close(model.get_parameter(name), weight)
    name = "model.layers.1.mlp.up_proj.weight"
    change(tmp_path / "m" / "model.safetensors", lambda tensors: tensors.pop(f"{name}_scale_inv"))
    with pytest.raises(ModelError) as raised:
        loaded(tmp_path / "m")
    assert_states(raised.value, "model m", "model.safetensors", f"{name}_scale_inv")


def test_integers_in_place_of_floats_are_rejected(tmp_path):
    tiny.save("llama", tmp_path / "m")
    name = "model.layers.0.mlp.up_proj.weight"
    change(tmp_path / "m" / "model.safetensors", lambda tensors: tensors.update({name: tensors[name].mul(9).char()}))
    with pytest.raises(ModelError) as raised:
        loaded(tmp_path / "m")
    assert_states(raised.value, "model m", "model.safetensors", name, "torch.int8", "quantization_config")


def test_adapter_inside_of_a_complete_model_is_rejected(tmp_path):
    tiny.save("llama", tmp_path / "m")
    (tmp_path / "m" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(ModelError, match=r"model m: .* contains config.json and adapter_config.json"):
        resolve("m", str(tmp_path / "m"), tmp_path / "out")


@pytest.mark.parametrize("is_zip", [True, False])
def test_tensor_in_two_pickles_is_rejected(tmp_path, is_zip):
    tiny.save("llama", tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    (tmp_path / "m" / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = [names[:9], names[9:]]
    files = [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    index = {name: file for part, file in zip(parts, files, strict=True) for name in part}
    (tmp_path / "m" / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))

    def write(parts):
        for part, file in zip(parts, files, strict=True):
            stored = {name: tensors[name] for name in part}
            torch.save(stored, tmp_path / "m" / file, _use_new_zipfile_serialization=is_zip)
        record = resolve("m", str(tmp_path / "m"), tmp_path / "out", allow_pickle=True)
        return load(record | {"dtype": "float32", "device": "cpu", "allow_pickle": True})

    assert torch.equal(write(parts).model.lm_head.weight, tensors["lm_head.weight"])
    with pytest.raises(ModelError) as raised:
        write([names[:10], names[9:]])
    assert_states(raised.value, files[0], files[1], names[9])
