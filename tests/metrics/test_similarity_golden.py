"""Similarities compared with bert_score, direct calls of POT, sentence-transformers, and reference formulas."""

import copy
import math

import bert_score
import numpy as np
import pytest
import torch
from oracles import similarity
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, util
from support import lora_training, tuners
from support import similarity_encoders as tiny
from support import tiny as causal
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import bertscore, cosine, moverscore
from vernacular.metrics.similarity.compute import similarities

OUTPUTS = ["O rapaz come", "a mazá é vermella!", "Мачка", "gatos 🐈", "The boy eats a red apple (at home) and sleeps."]
OPTIONS = ["unha mazá vermella", "The boy", "Os gatos dormen moito.", "A Coruña"]


@pytest.fixture(scope="module")
def encoder_dirs(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("encoders")
    builders = {"bert": tiny.bert, "roberta": tiny.roberta, "modern_bert": tiny.modern_bert}
    for name in builders:
        (root / name).mkdir()
    return {name: build(root / name) for name, build in builders.items()}


def item(i, choices=tuple(OPTIONS), gold=(0,), target=None):
    return {"item_id": f"i{i}", "choices": list(choices), "gold": list(gold), "target": target}


def generation(i, output, flag=None, role="response"):
    return {"item_id": f"i{i}", "role": role, "raw_output": output, "output": output, "rendered": None, "flags": flag}


def run(metric, encoder_dir, outputs=OUTPUTS, **record_fields):
    rows, metadata = similarities(
        [item(i) for i in range(len(outputs))],
        [generation(i, output) for i, output in enumerate(outputs)],
        [metric],
        {"default": tiny.record(encoder_dir, **record_fields)},
        requests=tiny.requests([generation(i, output) for i, output in enumerate(outputs)]),
    )
    return np.array([row["similarities"] for row in rows], dtype=float), metadata


@pytest.mark.parametrize("idf", [False, True], ids=["no-idf", "idf"])
@pytest.mark.parametrize("family", ["bert", "roberta", "modern_bert"])
def test_bertscore_matches_the_package(encoder_dirs, family, idf):
    similarity_matrix, _ = run({"metric": "bertscore", "idf": idf}, encoder_dirs[family], layer=2)
    documents = OPTIONS * len(OUTPUTS)
    scorer = bert_score.BERTScorer(
        model_type=str(encoder_dirs[family]), num_layers=2, idf=idf, idf_sents=documents if idf else None, nthreads=0
    )
    candidates = [output for output in OUTPUTS for _ in OPTIONS]
    # batch size 1: in a larger batch, the package can match a token to the padding of a shorter text, with a similarity of 0
    expected = scorer.score(candidates, OPTIONS * len(OUTPUTS), batch_size=1)[2].reshape(len(OUTPUTS), len(OPTIONS))
    np.testing.assert_allclose(similarity_matrix, expected.numpy(), atol=2e-6)


@pytest.mark.parametrize("idf", [False, True], ids=["no-idf", "idf"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_moverscore_matches_direct_earth_movers_distance(encoder_dirs, family, idf):
    similarity_matrix, metadata = run({"metric": "moverscore", "idf": idf}, encoder_dirs[family])
    assert f"|layer:last|idf:{'yes' if idf else 'no'}|" in metadata["signatures"]["moverscore"]
    tokenizer, model = (
        AutoTokenizer.from_pretrained(encoder_dirs[family]),
        AutoModel.from_pretrained(encoder_dirs[family]),
    )
    documents = [set(tokenizer(option)["input_ids"]) for option in OPTIONS] * len(OUTPUTS)
    weights = {"weight": similarity.idf(documents)} if idf else {}
    for i, output in enumerate(OUTPUTS):
        for j, option in enumerate(OPTIONS):
            expected = similarity.moverscore(tokenizer, model, output, option, **weights)
            assert similarity_matrix[i, j] == pytest.approx(expected, abs=1e-6)


def test_moverscore_of_simple_vectors():
    vectors = {"a": np.array([[2.0, 0.0]]), "ab": np.array([[1.0, 0.0], [0.0, 3.0]]), "b": np.array([[0.0, 1.0]])}
    weights = {"a": np.array([1.0]), "ab": np.array([1.0, 1.0]), "b": np.array([5.0])}
    scores = moverscore.moverscore([("a", "ab"), ("a", "b"), ("a", "a")], vectors, weights)
    np.testing.assert_allclose(scores, [1 / (1 + math.sqrt(2) / 2), 1 / (1 + math.sqrt(2)), 1.0], atol=1e-12)


def test_moverscore_uses_token_weights():
    vectors = {"a": np.array([[1.0, 0.0]]), "ab": np.array([[1.0, 0.0], [0.0, 1.0]])}
    weights = {"a": np.array([1.0]), "ab": np.array([3.0, 1.0])}
    assert moverscore.moverscore([("a", "ab")], vectors, weights)[0] == pytest.approx(1 / (1 + math.sqrt(2) / 4))


def test_moverscore_is_independent_of_threads():
    rng = np.random.default_rng(0)
    texts = [str(i) for i in range(12)]
    vectors = {text: rng.normal(size=(60, 8)) for text in texts}
    weights = {text: rng.random(60) for text in texts}
    pairs = [(a, b) for a in texts for b in texts]
    single, parallel = (moverscore.moverscore(pairs, vectors, weights, threads) for threads in (1, 2))
    np.testing.assert_array_equal(single, parallel)


def test_cosine_matches_sentence_transformers(encoder_dirs):
    similarity_matrix, _ = run("cosine", encoder_dirs["bert"], prefix="query: ")
    encoder = SentenceTransformer(str(encoder_dirs["bert"]))
    a, b = (encoder.encode(texts, prompt="query: ", convert_to_tensor=True) for texts in (OUTPUTS, OPTIONS))
    np.testing.assert_allclose(similarity_matrix, util.cos_sim(a, b).numpy(), atol=1e-6)


def test_cosine_of_plain_directory_uses_mean_pooling(encoder_dirs):
    similarity_matrix, _ = run("cosine", encoder_dirs["bert"])
    tokenizer, model = (
        AutoTokenizer.from_pretrained(encoder_dirs["bert"]),
        AutoModel.from_pretrained(encoder_dirs["bert"]),
    )

    def mean(text):
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)

    expected = torch.cosine_similarity(mean(OUTPUTS[0]), mean(OPTIONS[1]), dim=0).item()
    assert similarity_matrix[0, 1] == pytest.approx(expected, abs=1e-6)


def test_record_prefix_overrides_encoder_prefix(encoder_dirs, tmp_path):
    encoder = SentenceTransformer(str(encoder_dirs["bert"]), prompts={"query": "query: "}, default_prompt_name="query")
    encoder.save(str(tmp_path))
    default, metadata = run("cosine", tmp_path)
    explicit, _ = run("cosine", encoder_dirs["bert"], prefix="query: ")
    empty, _ = run("cosine", tmp_path, prefix="")
    plain, _ = run("cosine", encoder_dirs["bert"])
    np.testing.assert_allclose(default, explicit, atol=1e-6)
    np.testing.assert_allclose(empty, plain, atol=1e-6)
    assert not np.allclose(default, empty, atol=1e-4)
    assert "prefix:'query: '" in metadata["signatures"]["cosine"]


def test_causal_model_is_mean_pooled(tmp_path):
    """The evaluated model as its own encoder (as in Simil-Eval), without a padding token, in batches."""
    causal.save("llama", tmp_path)
    similarity_matrix, _ = run("cosine", tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)

    def mean(text):
        with torch.no_grad():
            return model(tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[0].mean(0)

    for i, output in enumerate(OUTPUTS):
        for j, option in enumerate(OPTIONS):
            expected = torch.cosine_similarity(mean(output), mean(option), dim=0).item()
            assert similarity_matrix[i, j] == pytest.approx(expected, abs=1e-5)


def test_cosine_uses_adapter_of_evaluated_model(tmp_path):
    """As its own encoder, an adapted model has the embeddings of its merged weights."""
    causal.save("llama", tmp_path / "base")
    lora_training.train(tmp_path / "base", tmp_path / "adapter", steps=2)
    similarity_matrix, _ = run("cosine", tmp_path / "base", adapter=tiny.adapter(tmp_path / "adapter"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(tmp_path / "base").save_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(similarity_matrix, run("cosine", tmp_path / "merged")[0], atol=1e-5)
    assert not np.allclose(similarity_matrix, run("cosine", tmp_path / "base")[0], atol=1e-3)


@pytest.mark.parametrize("name", ["lora pissa_niter_4", "lora olora", "lora embedding", "trainable tokens"])
def test_adapter_that_changes_the_base_matches_merged_weights(tmp_path, name):
    causal.save("llama", tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    tuners.save(tuners.CASES[name], "llama", model, tmp_path / "adapter")
    torch.manual_seed(1)
    similarity_matrix, _ = run("cosine", tmp_path / "base", adapter=tiny.adapter(tmp_path / "adapter"))
    torch.manual_seed(0)
    merged = PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload().model
    merged.save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(tmp_path / "base").save_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(similarity_matrix, run("cosine", tmp_path / "merged")[0], atol=1e-5)
    assert not np.allclose(similarity_matrix, run("cosine", tmp_path / "base")[0], atol=1e-3)


@pytest.mark.parametrize("metric", ["cosine", "moverscore", "bertscore"])
def test_pickled_weights_require_allow_pickle(encoder_dirs, tmp_path, metric):
    for file in encoder_dirs["bert"].iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save(load_file(encoder_dirs["bert"] / "model.safetensors"), tmp_path / "pytorch_model.bin")
    allowed, _ = run(metric, tmp_path, allow_pickle=True, name="pickled")
    np.testing.assert_allclose(allowed, run(metric, encoder_dirs["bert"])[0], atol=1e-6)
    _, metadata = run(metric, tmp_path, name="pickled")
    assert metadata["outcome"].missing[metric].startswith("pickled: ")


@pytest.mark.parametrize("metric", ["cosine", "moverscore", "bertscore"])
def test_half_precision_weights_are_computed_in_single_precision(encoder_dirs, tmp_path, metric):
    half = AutoModel.from_pretrained(encoder_dirs["bert"], dtype=torch.bfloat16)
    for name, model in (("half", half), ("widened", copy.deepcopy(half).float())):
        model.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(encoder_dirs["bert"]).save_pretrained(tmp_path / name)
    np.testing.assert_allclose(run(metric, tmp_path / "half")[0], run(metric, tmp_path / "widened")[0], atol=1e-6)


def test_bertscore_is_rescaled_with_the_package_baseline(encoder_dirs):
    name = "google-bert/bert-base-multilingual-cased"
    plain, _ = run("bertscore", encoder_dirs["bert"], layer=2, name=name)
    offset = bertscore.rescale_offset(ModelRecord(name=name), "pt", 2)
    rows, metadata = similarities(
        [item(0)],
        [generation(0, OUTPUTS[0])],
        [{"metric": "bertscore", "rescale": True}],
        {"default": tiny.record(encoder_dirs["bert"], name=name, layer=2)},
        requests=tiny.requests([generation(0, OUTPUTS[0])]),
        language="pt",
    )
    np.testing.assert_allclose(rows[0]["similarities"], (plain[0] - offset) / (1 - offset), atol=1e-6)
    assert "rescaled:yes" in metadata["signatures"]["bertscore"]
    assert metadata["encoders"]["bertscore"]["layer"] == 2
    rows, metadata = similarities(
        [item(0)],
        [generation(0, OUTPUTS[0])],
        ["bertscore"],
        {"default": tiny.record(encoder_dirs["bert"], name=name, layer=2)},
        requests=tiny.requests([generation(0, OUTPUTS[0])]),
        language="pt",
    )
    np.testing.assert_array_equal(rows[0]["similarities"], plain[0])  # not rescaled unless configured
    assert "rescaled:no|" in metadata["signatures"]["bertscore"]


def test_missing_baseline_is_reported(encoder_dirs):
    metric = {"metric": "bertscore", "rescale": True}
    rescaled, metadata = run(metric, encoder_dirs["bert"], layer=2)
    plain, _ = run("bertscore", encoder_dirs["bert"], layer=2)
    np.testing.assert_array_equal(rescaled, plain)
    assert "rescaled:no (no baseline)" in metadata["signatures"]["bertscore"]


def test_idf_counts_documents(encoder_dirs):
    encoder = moverscore.TokenEncoder(tiny.record(encoder_dirs["bert"]))
    texts = encoder.tokenize(["come come", "come", "casa"])
    table = bertscore.idf_table(texts)
    token_id = texts[1].ids[1]
    assert table[token_id] == pytest.approx(math.log(4 / 3))
    assert table[encoder.tokenizer.cls_token_id] == 0
    assert table[10_000] == pytest.approx(math.log(4))


def test_signatures_contain_encoder_layer_and_versions(encoder_dirs):
    _, metadata = run("bertscore", encoder_dirs["bert"], layer=2, revision="abcdef0123456789")
    assert metadata["signatures"]["bertscore"].startswith("bertscore|encoder:tiny@abcdef012345|layer:2|idf:no|")
    signature = cosine.signature(tiny.record("x"), "query: ")
    assert signature.startswith("cosine|encoder:tiny@ffffffffffff|prefix:'query: '|")
