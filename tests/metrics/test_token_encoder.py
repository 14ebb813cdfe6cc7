"""Tokens and embeddings of TokenEncoder, compared with transformers."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from support import similarity_encoders as tiny
from support import tiny as causal
from tokenizers import Tokenizer, models, normalizers
from tokenizers.normalizers import BertNormalizer
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5Model
from vernacular.core.errors import ModelError
from vernacular.metrics.similarity import encoder as encoder_module
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens, check_missing_weights, loading_error

# builder and maximum number of tokens
FAMILIES = {"bert": (tiny.bert, 64), "roberta": (tiny.roberta, 62), "modern": (tiny.modern_bert, 64)}


@pytest.fixture(scope="module")
def encoder_dirs(tmp_path_factory):
    torch.set_num_threads(1)
    return {name: build(tmp_path_factory.mktemp(name)) for name, (build, _) in FAMILIES.items()}


def encoder(encoder_dir, **tokenizer_fields) -> TokenEncoder:
    token_encoder = TokenEncoder(tiny.record(encoder_dir))
    for name, value in tokenizer_fields.items():
        setattr(token_encoder.tokenizer, name, value)
    return token_encoder


@pytest.mark.parametrize("name", FAMILIES)
def test_max_tokens_is_minimum_of_tokenizer_and_positions(encoder_dirs, name):
    """RoBERTa's positions start after the padding index; a tokenizer without a limit has 1e30."""
    limit = FAMILIES[name][1]
    token_encoder = encoder(encoder_dirs[name], model_max_length=int(1e30))
    assert token_encoder.max_tokens == limit
    (tokens,) = token_encoder.tokenize(["come " * 500])
    assert (len(tokens.ids), tokens.truncated) == (limit, True)
    token_encoder.embed([tokens.ids], (token_encoder.n_layers,))  # within the model's positions
    assert encoder(encoder_dirs[name], model_max_length=10).max_tokens == 10


def test_text_of_maximum_length_is_not_truncated(encoder_dirs):
    (tokens,) = encoder(encoder_dirs["bert"]).tokenize(["come " * 62])
    assert (len(tokens.ids), tokens.truncated) == (64, False)


def test_words_of_a_tokenizer_that_does_not_split_texts_are_between_spaces(encoder_dirs):
    core = Tokenizer(models.Unigram([("<unk>", 0), *((c, -9) for c in "▁gatoO"), ("▁ga", -5)], unk_id=0))
    core.normalizer = normalizers.Replace(" ", "▁")  # as Gemma's
    token_encoder = encoder(encoder_dirs["bert"])
    token_encoder.tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=64)
    (tokens,) = token_encoder.tokenize(["O gato  O"])
    assert (tokens.subwords, tokens.words) == (["O", "▁ga", "t", "o", "▁", "▁", "O"], [0, 1, 1, 1, 2, 2, 2])


@pytest.mark.parametrize("name", [*FAMILIES, "gpt2", "llama"])
def test_layers_match_transformers_with_final_norm_applied_once(encoder_dirs, tmp_path, name):
    if name not in FAMILIES:
        causal.save(name, tmp_path)
    encoder_dir, norm = (
        encoder_dirs.get(name, tmp_path),
        {"modern": "final_norm", "gpt2": "ln_f", "llama": "norm"}.get(name),
    )
    token_encoder, reference = encoder(encoder_dir), AutoModel.from_pretrained(encoder_dir).eval()
    for model in (token_encoder.model, reference) if norm else ():  # a norm with weights of one would be idempotent
        getattr(model, norm).weight.data = torch.linspace(0.5, 2, len(getattr(model, norm).weight))
    texts = AutoTokenizer.from_pretrained(encoder_dir)(tiny.LINES[1:4])["input_ids"]
    layers = tuple(range(token_encoder.n_layers + 1))
    for ids, states_by_layer in zip(texts, token_encoder.embed(texts, layers), strict=True):
        with torch.inference_mode():
            states = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states
            expected = [getattr(reference, norm)(state) if norm else state for state in states[:-1]] + [states[-1]]
        for layer in layers:
            torch.testing.assert_close(torch.tensor(states_by_layer[layer]), expected[layer][0], atol=1e-5, rtol=1e-4)
    first, last = token_encoder.embed(texts[:1], (1,)), token_encoder.embed(texts[:1], (token_encoder.n_layers,))
    assert [list(states) for (states,) in (first, last)] == [[1], [token_encoder.n_layers]], "cached separately"
    for layer in (-1, token_encoder.n_layers + 1):
        with pytest.raises(ModelError, match=f"expected a layer from 0 to {token_encoder.n_layers}, got {layer}"):
            token_encoder.embed(texts, (layer,))


def test_tokens_have_surfaces_and_words_except_special_tokens(encoder_dirs):
    (tokens,) = encoder(encoder_dirs["bert"]).tokenize(["come unha"])
    tokenizer = AutoTokenizer.from_pretrained(encoder_dirs["bert"])
    assert tokens == Tokens(
        tokenizer("come unha")["input_ids"], ["[CLS]", "come", "unha", "[SEP]"], ["", "come", "unha", ""],
        [None, 0, 1, None], False,
    )  # fmt: skip
    assert encoder(encoder_dirs["bert"]).tokenize([]) == []


def test_lower_casing_matches_bert_tokenizer_and_is_temporary(encoder_dirs):
    token_encoder = encoder(encoder_dirs["bert"])
    text = "A Coruña\x07 É unha貓mazá"
    original = token_encoder.tokenize([text])
    cased = AutoTokenizer.from_pretrained(encoder_dirs["bert"], do_lower_case=True)
    cased.backend_tokenizer.normalizer = BertNormalizer(lowercase=True)
    (lowered,) = token_encoder.tokenize([text], lower_case=True)
    assert lowered.ids == cased(text)["input_ids"]
    assert lowered.ids != original[0].ids
    assert token_encoder.tokenize([text]) == original
    options = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False}
    token_encoder.tokenizer.backend_tokenizer.normalizer = BertNormalizer(**options, lowercase=False)
    cased.backend_tokenizer.normalizer = BertNormalizer(**options, lowercase=True)
    assert token_encoder.tokenize([text], lower_case=True)[0].ids == cased(text)["input_ids"] != lowered.ids


def test_loading_errors_are_one_line_with_advice():
    missing = OSError("no file named model.safetensors.\nSee the docs.")
    assert str(loading_error("e", missing, allow_pickle=True)) == (
        "e: the encoder cannot be loaded (no file named model.safetensors)."
    )
    assert str(loading_error("e", missing, allow_pickle=False)) == (
        "e: the encoder cannot be loaded (no file named model.safetensors. "
        "Weights in pickle files are read only with allow_pickle: true)."
    )
    with pytest.raises(ModelError) as error:
        check_missing_weights("e", {"missing_keys": {"b.weight", "a.weight", "pooler.dense.bias"}})
    assert str(error.value) == "e: 2 of the encoder's weights not found (a.weight, …). Use a complete checkpoint."


def test_encoder_decoder_model_uses_its_encoder(encoder_dirs, tmp_path):
    AutoTokenizer.from_pretrained(encoder_dirs["bert"]).save_pretrained(tmp_path)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    torch.manual_seed(0)
    T5Model(T5Config(vocab_size=200, decoder_start_token_id=0, **sizes)).eval().save_pretrained(tmp_path)
    token_encoder = encoder(tmp_path)
    (tokens,) = token_encoder.tokenize([tiny.LINES[0]])
    (states,) = token_encoder.embed([tokens.ids], (token_encoder.n_layers,))
    with torch.inference_mode():
        expected = AutoModel.from_pretrained(tmp_path).eval().encoder(torch.tensor([tokens.ids])).last_hidden_state[0]
    torch.testing.assert_close(torch.tensor(states[token_encoder.n_layers]), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("budget", "batches"),
    [(6, [[0, 1, 2], [3, 4], [5]]), (5, [[0, 1], [2], [3], [4], [5]]), (100, [[0, 1, 2, 3, 4, 5]]), (1, [[i] for i in range(6)])],
)  # fmt: skip
def test_batches_are_within_budget_except_for_single_long_texts(budget, batches):
    assert list(encoder_module.batches(list(range(6)), [2, 2, 2, 3, 3, 9], budget)) == batches


def test_pickled_weights_require_allow_pickle(encoder_dirs, tmp_path):
    shutil.copytree(encoder_dirs["bert"], tmp_path, dirs_exist_ok=True)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded .*Weights in pickle files are read only with allow_pickle"):
        TokenEncoder(tiny.record(tmp_path))
    allowed, safe = TokenEncoder(tiny.record(tmp_path, allow_pickle=True)), encoder(encoder_dirs["bert"])
    (tokens,) = safe.tokenize([tiny.LINES[0]])
    assert (allowed.embed([tokens.ids], (3,))[0][3] == safe.embed([tokens.ids], (3,))[0][3]).all()
