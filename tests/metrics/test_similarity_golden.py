"""Our numbers are those of bert_score, of POT called directly, of sentence-transformers and of the formulas by hand."""

import copy
import math
import string

import bert_score
import numpy as np
import ot
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, util
from support import adapting, tuners
from support import similarity_encoders as tiny
from support import tiny as causal
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
from vernacular.metrics.similarity import bertscore, cosine, moverscore
from vernacular.metrics.similarity.compute import similarities

ANSWERS = ["O rapaz come", "a mazá é vermella!", "Мачка", "gatos 🐈", "The boy eats a red apple (at home) and sleeps."]
OPTIONS = ["unha mazá vermella", "The boy", "Os gatos dormen moito.", "A Coruña"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("encoders")
    build = {"bert": tiny.bert, "roberta": tiny.roberta, "modern_bert": tiny.modern_bert}
    for name in build:
        (root / name).mkdir()
    return {name: make(root / name) for name, make in build.items()}


def item(i, choices=tuple(OPTIONS), gold=(0,), target=None):
    return {"item_id": f"i{i}", "choices": list(choices), "gold": list(gold), "target": target}


def generation(i, answer, flag=None, role="response"):
    return {"item_id": f"i{i}", "role": role, "raw_output": answer, "output": answer, "rendered": None, "flags": flag}


def run(metric, folder, answers=ANSWERS, **more):
    rows, metadata = similarities(
        [item(i) for i in range(len(answers))],
        [generation(i, answer) for i, answer in enumerate(answers)],
        [metric],
        {"default": tiny.record(folder, **more)},
        requests=tiny.requests([generation(i, answer) for i, answer in enumerate(answers)]),
    )
    return np.array([row["similarities"] for row in rows], dtype=float), metadata


@pytest.mark.parametrize("idf", [False, True], ids=["no-idf", "idf"])
@pytest.mark.parametrize("family", ["bert", "roberta", "modern_bert"])
def test_bertscore_is_the_packages_own(folders, family, idf):
    ours, _ = run({"metric": "bertscore", "idf": idf}, folders[family], layer=2)
    documents = OPTIONS * len(ANSWERS)
    scorer = bert_score.BERTScorer(
        model_type=str(folders[family]), num_layers=2, idf=idf, idf_sents=documents if idf else None, nthreads=0
    )
    candidates = [answer for answer in ANSWERS for _ in OPTIONS]
    # one by one: in a batch, the package lets a token match the padding of a shorter text with a similarity of 0
    theirs = scorer.score(candidates, OPTIONS * len(ANSWERS), batch_size=1)[2].reshape(len(ANSWERS), len(OPTIONS))
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-6)


@pytest.mark.parametrize("idf", [False, True], ids=["no-idf", "idf"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_moverscore_is_a_direct_earth_movers_distance(folders, family, idf):
    ours, metadata = run({"metric": "moverscore", "idf": idf}, folders[family])
    assert f"|layer:last|idf:{'yes' if idf else 'no'}|" in metadata["signatures"]["moverscore"]
    tokenizer, model = AutoTokenizer.from_pretrained(folders[family]), AutoModel.from_pretrained(folders[family])
    documents = [set(tokenizer(option)["input_ids"]) for option in OPTIONS] * len(ANSWERS)

    def weight(token):
        among = sum(token in document for document in documents)
        return math.log((len(documents) + 1) / (among + 1)) if idf else 1.0

    def cloud(text):
        encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        with torch.no_grad():
            states = model(encoded["input_ids"]).last_hidden_state[0].double().numpy()
        kept, words = [], set()
        for i, (word, (start, end)) in enumerate(
            zip(encoded.word_ids(0), encoded["offset_mapping"][0].tolist(), strict=True)
        ):
            surface = text[start:end]
            if word is not None and word not in words and surface.strip(string.punctuation + " "):
                words.add(word)
                kept.append(i)
        masses = np.array([weight(token) for token in encoded["input_ids"][0, kept].tolist()])
        return states[kept] / np.linalg.norm(states[kept], axis=1, keepdims=True), masses / masses.sum()

    for i, answer in enumerate(ANSWERS):
        for j, option in enumerate(OPTIONS):
            (a, mass), (b, mass_2) = cloud(answer), cloud(option)
            distances = np.linalg.norm(a[:, None] - b[None], axis=2)
            cost = ot.emd2(mass, mass_2, distances)
            assert ours[i, j] == pytest.approx(1 / (1 + cost), abs=1e-6)


def test_moverscore_by_hand():
    vectors = {"a": np.array([[2.0, 0.0]]), "ab": np.array([[1.0, 0.0], [0.0, 3.0]]), "b": np.array([[0.0, 1.0]])}
    weights = {"a": np.array([1.0]), "ab": np.array([1.0, 1.0]), "b": np.array([5.0])}
    scores = moverscore.moverscore([("a", "ab"), ("a", "b"), ("a", "a")], vectors, weights)
    np.testing.assert_allclose(scores, [1 / (1 + math.sqrt(2) / 2), 1 / (1 + math.sqrt(2)), 1.0], atol=1e-12)


def test_moverscore_moves_mass_by_weight():
    vectors = {"a": np.array([[1.0, 0.0]]), "ab": np.array([[1.0, 0.0], [0.0, 1.0]])}
    weights = {"a": np.array([1.0]), "ab": np.array([3.0, 1.0])}
    assert moverscore.moverscore([("a", "ab")], vectors, weights)[0] == pytest.approx(1 / (1 + math.sqrt(2) / 4))


def test_threads_change_no_moverscore():
    rng = np.random.default_rng(0)
    texts = [str(i) for i in range(12)]
    vectors = {t: rng.normal(size=(60, 8)) for t in texts}
    weights = {t: rng.random(60) for t in texts}
    pairs = [(a, b) for a in texts for b in texts]
    one, two = (moverscore.moverscore(pairs, vectors, weights, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_cosine_is_sentence_transformers_own(folders):
    ours, _ = run("cosine", folders["bert"], prefix="query: ")
    encoder = SentenceTransformer(str(folders["bert"]))
    a, b = (encoder.encode(texts, prompt="query: ", convert_to_tensor=True) for texts in (ANSWERS, OPTIONS))
    np.testing.assert_allclose(ours, util.cos_sim(a, b).numpy(), atol=1e-6)


def test_cosine_of_a_plain_folder_is_the_mean_over_the_attention_mask(folders):
    ours, _ = run("cosine", folders["bert"])
    tokenizer, model = AutoTokenizer.from_pretrained(folders["bert"]), AutoModel.from_pretrained(folders["bert"])

    def mean(text):
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)

    expected = torch.cosine_similarity(mean(ANSWERS[0]), mean(OPTIONS[1]), dim=0).item()
    assert ours[0, 1] == pytest.approx(expected, abs=1e-6)


def test_the_encoders_own_prefix_is_used_unless_the_record_has_one(folders, tmp_path):
    encoder = SentenceTransformer(str(folders["bert"]), prompts={"query": "query: "}, default_prompt_name="query")
    encoder.save(str(tmp_path))
    own, metadata = run("cosine", tmp_path)
    asked, _ = run("cosine", folders["bert"], prefix="query: ")
    none, _ = run("cosine", tmp_path, prefix="")
    plain, _ = run("cosine", folders["bert"])
    np.testing.assert_allclose(own, asked, atol=1e-6)
    np.testing.assert_allclose(none, plain, atol=1e-6)
    assert not np.allclose(own, none, atol=1e-4)
    assert "prefix:'query: '" in metadata["signatures"]["cosine"]


def test_a_causal_model_is_mean_pooled_too(tmp_path):
    """The evaluated model as its own encoder, as Simil-Eval has it; without a padding token, in batches here."""
    causal.save("llama", tmp_path)
    ours, _ = run("cosine", tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)

    def mean(text):
        with torch.no_grad():
            return model(tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[0].mean(0)

    for i, answer in enumerate(ANSWERS):
        for j, option in enumerate(OPTIONS):
            expected = torch.cosine_similarity(mean(answer), mean(option), dim=0).item()
            assert ours[i, j] == pytest.approx(expected, abs=1e-5)


def test_the_evaluated_model_measures_with_its_adapter_on(tmp_path):
    """As its own encoder an adapted model embeds what its merged weights would."""
    causal.save("llama", tmp_path / "base")
    adapting.train(tmp_path / "base", tmp_path / "adapter", steps=2)
    ours, _ = run("cosine", tmp_path / "base", adapter={"folder": str(tmp_path / "adapter")})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(tmp_path / "base").save_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(ours, run("cosine", tmp_path / "merged")[0], atol=1e-5)
    assert not np.allclose(ours, run("cosine", tmp_path / "base")[0], atol=1e-3)


@pytest.mark.parametrize("name", ["lora pissa_niter_4", "lora olora", "lora embedding", "trainable tokens"])
def test_an_adapter_that_changes_the_base_measures_as_its_merged_weights(tmp_path, name):
    causal.save("llama", tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    tuners.save(tuners.CASES[name], "llama", model, tmp_path / "adapter")
    torch.manual_seed(1)
    ours, _ = run("cosine", tmp_path / "base", adapter={"folder": str(tmp_path / "adapter")})
    torch.manual_seed(0)
    merged = PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload().model
    merged.save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(tmp_path / "base").save_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(ours, run("cosine", tmp_path / "merged")[0], atol=1e-5)
    assert not np.allclose(ours, run("cosine", tmp_path / "base")[0], atol=1e-3)


@pytest.mark.parametrize("metric", ["cosine", "moverscore", "bertscore"])
def test_pickled_weights_are_read_only_where_a_person_allowed_it(folders, tmp_path, metric):
    for file in folders["bert"].iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save(load_file(folders["bert"] / "model.safetensors"), tmp_path / "pytorch_model.bin")
    allowed, _ = run(metric, tmp_path, allow_pickle=True, name="pickled")
    np.testing.assert_allclose(allowed, run(metric, folders["bert"])[0], atol=1e-6)
    _, metadata = run(metric, tmp_path, name="pickled")
    assert metadata["without"][metric].startswith("pickled: ")


@pytest.mark.parametrize("metric", ["cosine", "moverscore", "bertscore"])
def test_weights_of_half_precision_measure_in_single_precision(folders, tmp_path, metric):
    halved = AutoModel.from_pretrained(folders["bert"], dtype=torch.bfloat16)
    for name, model in (("half", halved), ("widened", copy.deepcopy(halved).float())):
        model.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(folders["bert"]).save_pretrained(tmp_path / name)
    np.testing.assert_allclose(run(metric, tmp_path / "half")[0], run(metric, tmp_path / "widened")[0], atol=1e-6)


def test_bertscore_is_rescaled_where_the_package_has_a_baseline(folders):
    name = "google-bert/bert-base-multilingual-cased"
    plain, _ = run("bertscore", folders["bert"], layer=2, name=name)
    base = bertscore.baseline({"name": name}, "pt", 2)
    rows, metadata = similarities(
        [item(0)],
        [generation(0, ANSWERS[0])],
        [{"metric": "bertscore", "rescale": True}],
        {"default": tiny.record(folders["bert"], name=name, layer=2)},
        requests=tiny.requests([generation(0, ANSWERS[0])]),
        language="pt",
    )
    np.testing.assert_allclose(rows[0]["similarities"], (plain[0] - base) / (1 - base), atol=1e-6)
    assert "rescaled:yes" in metadata["signatures"]["bertscore"]
    assert metadata["encoders"]["bertscore"]["layer"] == 2
    rows, metadata = similarities(
        [item(0)],
        [generation(0, ANSWERS[0])],
        ["bertscore"],
        {"default": tiny.record(folders["bert"], name=name, layer=2)},
        requests=tiny.requests([generation(0, ANSWERS[0])]),
        language="pt",
    )
    np.testing.assert_array_equal(rows[0]["similarities"], plain[0])  # only if it was asked for
    assert "rescaled:no|" in metadata["signatures"]["bertscore"]


def test_a_missing_baseline_is_said_and_not_invented(folders):
    metric = {"metric": "bertscore", "rescale": True}
    rescaled, metadata = run(metric, folders["bert"], layer=2)
    plain, _ = run("bertscore", folders["bert"], layer=2)
    np.testing.assert_array_equal(rescaled, plain)
    assert "rescaled:no (no baseline)" in metadata["signatures"]["bertscore"]


def test_idf_is_counted_over_texts_and_not_over_tokens(folders):
    encoder = moverscore.TokenEncoder(tiny.record(folders["bert"]))
    texts = encoder.tokenize(["come come", "come", "casa"])
    table = bertscore.idf_table(texts)
    come = texts[1].ids[1]
    assert table[come] == pytest.approx(math.log(4 / 3))
    assert table[encoder.tokenizer.cls_token_id] == 0
    assert table[10_000] == pytest.approx(math.log(4))


def test_signatures_name_encoder_layer_and_versions(folders):
    _, metadata = run("bertscore", folders["bert"], layer=2, revision="abcdef0123456789")
    assert metadata["signatures"]["bertscore"].startswith("bertscore|encoder:tiny@abcdef012345|layer:2|idf:no|")
    signature = cosine.signature(tiny.record("x"), "query: ")
    assert signature.startswith("cosine|encoder:tiny@ffffffffffff|prefix:'query: '|")
