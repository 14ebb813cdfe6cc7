"""What goes into an encoder and what comes out of it, against transformers itself."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from support import similarity_encoders as tiny
from support import tiny as causal
from tokenizers.normalizers import BertNormalizer
from transformers import AutoModel, AutoTokenizer, T5Config, T5Model
from vernacular.core.errors import ModelError
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens, _batches, cannot_load, refuse_random

FAMILIES = {
    "bert": (tiny.bert, 64),
    "roberta": (tiny.roberta, 62),
    "modern": (tiny.modern_bert, 64),
}  # tokens they read


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    return {name: build(tmp_path_factory.mktemp(name)) for name, (build, _) in FAMILIES.items()}


def encoder(folder, **limits) -> TokenEncoder:
    made = TokenEncoder(tiny.record(folder))
    for name, value in limits.items():
        setattr(made.tokenizer, name, value)
    return made


@pytest.mark.parametrize("name", FAMILIES)
def test_the_longest_text_is_what_both_the_tokenizer_and_the_positions_allow(folders, name):
    """RoBERTa's positions begin behind the padding's; a tokenizer that knows no limit says 1e30."""
    limit = FAMILIES[name][1]
    made = encoder(folders[name], model_max_length=int(1e30))
    assert made.max_tokens == limit
    (long,) = made.tokenize(["come " * 500])
    assert (len(long.ids), long.truncated) == (limit, True)
    made.embed([long.ids], (made.n_layers,))  # the model can read them
    assert encoder(folders[name], model_max_length=10).max_tokens == 10


def test_a_text_of_just_the_longest_length_is_whole(folders):
    (just,) = encoder(folders["bert"]).tokenize(["come " * 62])
    assert (len(just.ids), just.truncated) == (64, False)


@pytest.mark.parametrize("name", [*FAMILIES, "gpt2", "llama"])
def test_layers_are_those_of_transformers_and_normed_once(folders, tmp_path, name):
    if name not in FAMILIES:
        causal.save(name, tmp_path)
    folder, norm = folders.get(name, tmp_path), {"modern": "final_norm", "gpt2": "ln_f", "llama": "norm"}.get(name)
    made, reference = encoder(folder), AutoModel.from_pretrained(folder).eval()
    for model in (made.model, reference) if norm else ():  # a norm of ones changes nothing the second time
        getattr(model, norm).weight.data = torch.linspace(0.5, 2, len(getattr(model, norm).weight))
    texts = AutoTokenizer.from_pretrained(folder)(tiny.LINES[1:4])["input_ids"]
    layers = tuple(range(made.n_layers + 1))
    for ids, found in zip(texts, made.embed(texts, layers), strict=True):
        with torch.inference_mode():
            states = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states
            wanted = [getattr(reference, norm)(state) if norm else state for state in states[:-1]] + [states[-1]]
        for layer in layers:
            torch.testing.assert_close(torch.tensor(found[layer]), wanted[layer][0], atol=1e-5, rtol=1e-4)
    first, last = made.embed(texts[:1], (1,)), made.embed(texts[:1], (made.n_layers,))
    assert [list(states) for (states,) in (first, last)] == [[1], [made.n_layers]], "kept apart"
    for layer in (-1, made.n_layers + 1):
        with pytest.raises(ModelError, match=f"expected a layer from 0 to {made.n_layers}, got {layer}"):
            made.embed(texts, (layer,))


def test_a_text_in_tokens_has_surfaces_and_words_and_special_tokens_have_neither(folders):
    (found,) = encoder(folders["bert"]).tokenize(["come unha"])
    pieces = AutoTokenizer.from_pretrained(folders["bert"])
    assert found == Tokens(
        pieces("come unha")["input_ids"], ["[CLS]", "come", "unha", "[SEP]"], ["", "come", "unha", ""],
        [None, 0, 1, None], False,
    )  # fmt: skip
    assert encoder(folders["bert"]).tokenize([]) == []


def test_lower_casing_is_that_of_berts_own_tokenizer_and_for_one_call_alone(folders):
    made = encoder(folders["bert"])
    text = "A Coruña\x07 É unha貓mazá"
    before = made.tokenize([text])
    cased = AutoTokenizer.from_pretrained(folders["bert"], do_lower_case=True)
    cased.backend_tokenizer.normalizer = BertNormalizer(lowercase=True)
    (found,) = made.tokenize([text], lower_case=True)
    assert found.ids == cased(text)["input_ids"]
    assert found.ids != before[0].ids
    assert made.tokenize([text]) == before
    kept = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False}
    made.tokenizer.backend_tokenizer.normalizer = BertNormalizer(**kept, lowercase=False)
    cased.backend_tokenizer.normalizer = BertNormalizer(**kept, lowercase=True)
    assert made.tokenize([text], lower_case=True)[0].ids == cased(text)["input_ids"] != found.ids


def test_what_cannot_be_loaded_is_one_sentence_with_the_way_out():
    missing = OSError("no file named model.safetensors.\nSee the docs.")
    assert str(cannot_load("e", missing, allow_pickle=True)) == (
        "e: the encoder cannot be loaded (no file named model.safetensors)."
    )
    assert str(cannot_load("e", missing, allow_pickle=False)) == (
        "e: the encoder cannot be loaded (no file named model.safetensors. "
        "Weights in pickle files are read only with allow_pickle: true)."
    )
    with pytest.raises(ModelError) as error:
        refuse_random("e", {"missing_keys": {"b.weight", "a.weight", "pooler.dense.bias"}})
    assert str(error.value) == "e: 2 of the encoder's weights not found (a.weight, …). Use a complete checkpoint."


def test_of_an_encoder_with_a_decoder_the_encoder_reads(folders, tmp_path):
    AutoTokenizer.from_pretrained(folders["bert"]).save_pretrained(tmp_path)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    torch.manual_seed(0)
    T5Model(T5Config(vocab_size=200, decoder_start_token_id=0, **sizes)).eval().save_pretrained(tmp_path)
    made = encoder(tmp_path)
    (tokens,) = made.tokenize([tiny.LINES[0]])
    (found,) = made.embed([tokens.ids], (made.n_layers,))
    with torch.inference_mode():
        wanted = AutoModel.from_pretrained(tmp_path).eval().encoder(torch.tensor([tokens.ids])).last_hidden_state[0]
    torch.testing.assert_close(torch.tensor(found[made.n_layers]), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("budget", "batches"),
    [(6, [[0, 1, 2], [3, 4], [5]]), (5, [[0, 1], [2], [3], [4], [5]]), (100, [[0, 1, 2, 3, 4, 5]]), (1, [[i] for i in range(6)])],
)  # fmt: skip
def test_a_batch_is_padded_to_no_more_than_its_budget_and_a_longer_text_goes_alone(budget, batches):
    assert list(_batches(list(range(6)), [2, 2, 2, 3, 3, 9], budget)) == batches


def test_pickled_weights_are_read_where_a_person_allowed_it_and_nowhere_else(folders, tmp_path):
    shutil.copytree(folders["bert"], tmp_path, dirs_exist_ok=True)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded .*Weights in pickle files are read only with allow_pickle"):
        TokenEncoder(tiny.record(tmp_path))
    allowed, safe = TokenEncoder(tiny.record(tmp_path, allow_pickle=True)), encoder(folders["bert"])
    (tokens,) = safe.tokenize([tiny.LINES[0]])
    assert (allowed.embed([tokens.ids], (3,))[0][3] == safe.embed([tokens.ids], (3,))[0][3]).all()
