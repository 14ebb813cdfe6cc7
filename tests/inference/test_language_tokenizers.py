"""Encoder-decoders whose tokenizers have languages, with sentencepiece models of their own: the first mBART, M2M-100."""

import json
import shutil

import pytest
import torch
import transformers as tf
from support import tiny
from support.encoder_decoders import generation_rows
from support.engines import generate, score
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.metadata import RequestsMetadata
from vernacular.inference.job.work import not_answerable
from vernacular.inference.model.language_codes import code_of, codes_of
from vernacular.inference.model.load import load
from vernacular.protocols.schema import REQUESTS

sentencepiece = pytest.importorskip(
    "sentencepiece", reason="sentencepiece is not installed (pip install sentencepiece)"
)

PROMPTS = ["O gato dorme no", "A choiva cae"]
ENDINGS = [" tellado", " na rúa"]
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.3,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip


@pytest.fixture(scope="module", params=["mbart", "m2m"])
def checkpoint(request, tmp_path_factory):
    """A directory with the files of a checkpoint, as their publishers write it, and its kind."""
    directory = tmp_path_factory.mktemp(request.param)
    options = {"vocab_size": 120, "character_coverage": 1.0, "minloglevel": 2}
    options |= {"model_type": "bpe" if request.param == "m2m" else "unigram"}
    names = {"unk_id": 3, "bos_id": 0, "eos_id": 2, "pad_id": 1}
    prefix = directory / "sentencepiece.bpe"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny.LINES * 4), model_prefix=str(prefix), **options, **names
    )
    directory.joinpath("sentencepiece.bpe.vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(processor.id_to_piece(i) for i in range(4, len(processor)))]
    if request.param == "m2m":
        (directory / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
        own = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en"}
        made = tf.M2M100ForConditionalGeneration
    else:
        scores = [(piece, processor.get_score(number)) for number, piece in enumerate(pieces)]
        tf.MBartTokenizer(vocab=scores).save_pretrained(directory)  # its tokenizer.json, which is published beside
        own = json.loads((directory / "tokenizer_config.json").read_text())
        made = tf.MBartForConditionalGeneration
    (directory / "tokenizer_config.json").write_text(json.dumps(own))
    (directory / "config.json").write_text(
        json.dumps({"model_type": "mbart" if request.param == "mbart" else "m2m_100"})
    )
    tokenizer = tf.AutoTokenizer.from_pretrained(directory)
    ids = [*tokenizer.get_vocab().values(), *getattr(tokenizer, "lang_token_to_id", {}).values()]
    torch.manual_seed(0)
    made(made.config_class(vocab_size=max(ids) + 9, **_BART)).save_pretrained(directory)
    return request.param, directory


def about(language: str, **fields) -> RequestsMetadata:
    return RequestsMetadata(protocol="options", fingerprint="x", language=language, **fields)


def loaded_of(directory):
    record = resolve("n", str(directory), directory.parent / "converted")
    return load(record | {"dtype": "float32"})


def codes(kind: str, *languages: str) -> list[str]:
    return [
        {"mbart": {"es": "es_XX", "fr": "fr_XX"}, "m2m": {"es": "es", "fr": "fr"}}[kind][name] for name in languages
    ]


def test_spans_are_those_of_transformers_in_both_languages(checkpoint):
    kind, directory = checkpoint
    loaded, tokenizer = loaded_of(directory), tf.AutoTokenizer.from_pretrained(directory)
    tokenizer.src_lang, target = codes(kind, "es", "fr")
    [target_id] = tokenizer.convert_tokens_to_ids([codes_of(tokenizer)[target]])
    assert target_id != tokenizer.unk_token_id
    pairs = [(prompt, ending) for prompt in PROMPTS for ending in ENDINGS]
    rows = tiny.score_requests([(p + e, len(p), len(p + e)) for p, e in pairs])
    metadata = about("fr", input_language="es", output_language="fr")
    table = score(loaded, artifacts.with_metadata(rows, REQUESTS, metadata))[0]
    for (prompt, ending), row in zip(pairs, table["logprobs"].to_pylist(), strict=True):
        source = torch.tensor([tokenizer(prompt)["input_ids"]])
        assert tokenizer.unk_token_id not in source[0]
        labels = tokenizer(ending.strip(), add_special_tokens=False)["input_ids"]
        start = [target_id] if kind == "mbart" else [2, target_id]
        logits = loaded.model(input_ids=source, decoder_input_ids=torch.tensor([[*start, *labels[:-1]]])).logits[0]
        expected = logits[len(start) - 1 :].log_softmax(-1).gather(-1, torch.tensor(labels)[:, None]).sum()
        assert sum(row) == pytest.approx(float(expected), rel=1e-5)


def test_texts_are_those_of_generate(checkpoint):
    kind, directory = checkpoint
    loaded, tokenizer = loaded_of(directory), tf.AutoTokenizer.from_pretrained(directory)
    tokenizer.src_lang = code = codes(kind, "fr")[0]
    token = tokenizer.convert_tokens_to_ids(codes_of(tokenizer)[code])
    start = {"decoder_start_token_id": token} if kind == "mbart" else {"forced_bos_token_id": token}
    rows = generation_rows(PROMPTS, max_new_tokens=8)
    table = generate(loaded, artifacts.with_metadata(rows, REQUESTS, about("fr")))[0]
    for prompt, text in zip(PROMPTS, table["raw_output"].to_pylist(), strict=True):
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        output = loaded.model.generate(ids, max_new_tokens=8, **start)[0]
        # codes of M2M-100 are not special for `decode`
        expected = tokenizer.decode(output[2 if kind == "m2m" else 1 :], skip_special_tokens=True)
        assert text.strip() == expected.strip()


def test_language_that_the_tokenizer_lacks_is_not_applicable(checkpoint):
    kind, directory = checkpoint
    record = resolve("n", str(directory), directory.parent / "converted")
    assert not_answerable(record, about("fr")) is None
    assert "has no token for the language co" in not_answerable(record, about("co"))
    other = {"language_codes": {"co": codes(kind, "fr")[0]}}
    assert not_answerable(record | other, about("co")) is None
    galician = not_answerable(record, about("gl"))
    assert ("no token for the language gl" in (galician or "")) == (kind == "mbart")


def test_language_of_a_tokenizer_that_another_class_reads_is_unknown(checkpoint, tmp_path):
    kind, directory = checkpoint
    if kind != "mbart":
        pytest.skip("M2M-100 has no tokenizer.json")
    shutil.copytree(directory, tmp_path / "changed")
    path = tmp_path / "changed" / "tokenizer.json"
    stored = json.loads(path.read_text())
    stored["model"]["vocab"][9][1] = -0.5
    path.write_text(json.dumps(stored | {"pre_tokenizer": None}))
    record = resolve("n", str(path.parent), tmp_path / "converted")
    reason = not_answerable(record, about("fr"))
    assert (
        reason
        == "options is not possible: the languages of n are unknown: its tokenizer.json is not read by its class."
    )


NLLB = ["pbt_Arab", "fuv_Latn", "quy_Latn", "azj_Latn", "azb_Arab", "gaz_Latn", "khk_Cyrl", "sat_Beng", "crh_Latn"]


@pytest.mark.parametrize(
    ("language", "code"),
    [("ps", "pbt_Arab"), ("ff", "fuv_Latn"), ("ff-Adlm", None), ("qu", "quy_Latn"), ("az", "azj_Latn"), ("om", "gaz_Latn"),
     ("mn", "khk_Cyrl"), ("mn-Mong", None), ("crh-Latn", "crh_Latn"), ("fa", None)],
)  # fmt: skip
def test_codes_of_macrolanguages(language, code):
    assert code_of(NLLB, language) == code
