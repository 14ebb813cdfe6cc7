"""Models in a notebook: values equal a run's to the last digit, and mistakes are stated."""

import contextlib
import errno
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import vernacular
from support import lora_training, served, tiny
from support.hub_server import environment
from support.messages import assert_states
from support.stage_run import Run
from vernacular import results
from vernacular.config.load import load
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, ModelError, UserError, WriteError
from vernacular.data.schema import ITEMS

ROOT = Path(vernacular.__file__).parents[2]
SETTINGS = {"dtype": "float32", "device": "cpu"}
SENTENCES, WORDS, PAIRS = (
    "cola.gl.acceptability.0shot",
    "calame.gl.last_word.0shot",
    "global_piqa.gl.minimal_pair.0shot",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a run of a tiny model and an adapter on it."""
    root = tmp_path_factory.mktemp("run")
    tiny.save("llama", root / "base", tokens="bytes")
    lora_training.train(root / "base", root / "adapter")
    tasks = {SENTENCES: 6, WORDS: 4, PAIRS: 4}
    evaluations = [
        {"task": task, "languages": [language], "protocols": [protocol], "limit": limit}
        for name, limit in tasks.items()
        for task, language, protocol, _ in [name.split(".")]
    ]
    models = {
        "base": {"source": "./base", **SETTINGS},
        "adapted": {"base": "base", "adapter": "./adapter"},
    }
    with contextlib.chdir(root):
        stages = Run(load([], {"models": models, "data": "samples", "evaluations": evaluations}))
        for command in ("items", "requests"):
            assert stages(command) == 0
        for name in models:
            assert stages("model", name) == 0
        assert stages("infer", "base") == 0
        for name in models:
            assert stages("collect", name) == stages("metrics", name) == 0
    return root


@pytest.fixture(scope="module", params=["base", "adapted"])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(run, name):
    adapter = run / "adapter" if name == "adapted" else None
    with vernacular.load(run / "base", adapter=adapter, resources=run / "other", **SETTINGS) as loaded:
        yield loaded


def items(run, evaluation):
    stem = ".".join(evaluation.split(".")[:2])
    (path,) = (run / "resources" / "items").glob(f"{stem}*.parquet")
    return artifacts.read(path, ITEMS).to_pylist(maps_as_pydicts="strict")


def assert_equal_values(frame, stored, rows):
    """Assert that all values of a run are in a frame of the same texts, to the last digit."""
    stored = stored.set_index("item_id").loc[[row["item_id"] for row in rows]].reset_index(drop=True)
    # of texts that are not labeled as acceptable, a run has no bits
    names = [
        name
        for name in stored.columns
        if name in frame and name not in ("prediction", "flag_text", "option_scores", "predicted_indices")
    ]
    known = stored[names].notna()
    assert known.to_numpy().sum() >= 3 * len(rows)
    pd.testing.assert_frame_equal(
        frame[names].where(known), stored[names].where(known), check_exact=True, check_dtype=False
    )


def test_surprisal_equals_a_runs(run, name, model):
    rows = items(run, SENTENCES)
    texts = [row["context"] for row in rows]
    assert_equal_values(model.surprisal(texts, per="text"), results.items(run / "results", name, SENTENCES), rows)
    frame, stored = model.surprisal(texts), results.tokens(run / "results", name, SENTENCES)
    stored["item_id"] = stored["item_id"].map({row["item_id"]: n for n, row in enumerate(rows)})
    stored = stored.sort_values(["item_id", "position"], ignore_index=True)
    pd.testing.assert_frame_equal(frame, stored, check_exact=True)
    joined = ["".join(part) for _, part in frame.groupby("item_id")["token"]]
    assert any("<0x" in text for text in joined)  # parts of characters, which are not tokens of this tokenizer
    runs = [
        re.sub("(<0x..>)+", lambda m: bytes.fromhex(m[0].replace("<0x", "").replace(">", "")).decode(), text)
        for text in joined
    ]
    assert runs == texts
    assert frame.attrs["engine"]["strategy"]


def test_pairs_equal_a_runs(run, name, model):
    rows = items(run, WORDS)
    frame = model.score([row["context"] for row in rows], [row["target"] for row in rows])
    assert_equal_values(frame, results.items(run / "results", name, WORDS), rows)
    rows = items(run, PAIRS)
    pairs = [(row["choices"][row["gold"][0]], row["choices"][1 - row["gold"][0]]) for row in rows]
    contexts = ["\n".join(part for part in (row["context"], row["question"]) if part.strip()) for row in rows]
    good, bad = zip(*pairs, strict=True)
    frame = model.compare(good, bad, contexts=contexts if any(contexts) else None)
    assert_equal_values(frame, results.items(run / "results", name, PAIRS), rows)
    assert frame["good"].tolist() == list(good)


def test_adapter_has_another_value(run):
    tables = [results.tokens(run / "results", name, SENTENCES)["logprob"] for name in ("base", "adapted")]
    assert not tables[0].equals(tables[1])


def test_generation_is_greedy_or_sampled_with_a_seed(model):
    frame = model.generate(["O gato", "A choiva"], max_new_tokens=5)
    assert frame["prompt"].tolist() == ["O gato", "A choiva"]
    assert frame["n_tokens"].between(0, 5).all()
    sampled = [model.generate("O gato", max_new_tokens=5, samples=2, temperature=1.5, seed=3) for _ in range(2)]
    assert sampled[0]["sample"].tolist() == [0, 1]
    pd.testing.assert_frame_equal(*sampled)


def test_text_that_cannot_be_scored_has_a_row_with_the_reason(model):
    frame = model.surprisal(["O gato dorme.", " "])
    assert frame.groupby("item_id").size().loc[1] == 1
    assert frame.loc[frame["item_id"] == 1, "flag_text"].tolist() == ["empty"]
    frame = model.score("O gato", ["dorme", ""])
    assert frame["surprisal"].isna().tolist() == [False, True]
    assert "no context or no last word" in frame["flag_text"][1]
    assert model.score("O gato", [""])["surprisal"].isna().tolist() == [True]
    frame = model.compare(["O gato", "O gato"], ["O gatos", "O gato "])  # two equal texts are no pair
    assert frame["accuracy"].isna().tolist() == [False, True]
    assert "fewer than two texts" in frame["flag_text"][1]


def test_half_characters_are_replaced_as_in_datasets(model):
    assert model.surprisal("O \ud83d", per="text")["text"].tolist() == ["O \ufffd"]


def test_mistakes_are_stated(run, model):
    cases = [
        (UserError, lambda: model.score(["a", "b"], ["c"]), ("continuations: expected 2 texts, got 1",)),
        (UserError, lambda: model.surprisal(["a", None]), ("texts[1]", "None")),
        (UserError, lambda: model.surprisal([]), ("at least one text",)),
        (UserError, lambda: model.surprisal("a", per="word"), ('"token" or "text"', '"word"')),
        (UserError, lambda: model.score("a", "b", language=None), ("language", '"gl"', "None")),
        (UserError, lambda: model.score("a", "b", language=""), ("language", '"gl"', "''")),
        (UserError, lambda: model.generate("a", language=1), ("language", '"gl"', "1")),
        (UserError, lambda: model.surprisal(None), ("texts", "None")),
        (UserError, lambda: vernacular.load(run / "base", threads=0, resources=run / "r"), ("threads", "0")),
        (ConfigError, lambda: model.generate("a", temprature=1), ("temprature", '"temperature"')),
        (ConfigError, lambda: vernacular.load(run / "base", dtyp="auto", resources=run / "r"), ("dtyp", '"dtype"')),
        (ModelError, lambda: vernacular.load(run / "missing", resources=run / "r"), ("missing",)),
    ]
    for kind, call, parts in cases:
        with pytest.raises(kind) as raised:
            call()
        assert_states(raised.value, *parts)


def test_read_only_directory_is_stated(run, monkeypatch):
    def mkdir(*_, **__):
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr("pathlib.Path.mkdir", mkdir)
    with pytest.raises(WriteError, match=r"notebook.*cannot be written"):
        vernacular.load(run / "base", resources=run / "r")


def test_masked_model_scores_texts_and_generates_none(tmp_path):
    tiny.save("bert", tmp_path / "bert")
    model = vernacular.load(tmp_path / "bert", resources=tmp_path, **SETTINGS)
    assert model.surprisal(["O gato dorme."])["surprisal"].gt(0).all()
    with pytest.raises(ModelError) as raised:
        model.generate("O gato")
    assert_states(raised.value, "generation", "masked")
    model.close()
    with pytest.raises(ModelError) as raised:
        model.surprisal("O gato")
    assert_states(raised.value, "closed")


@pytest.mark.slow
def test_model_behind_a_server(tmp_path):
    local = served.trained_model()
    local.model.save_pretrained(tmp_path / "local")
    local.tokenizer.save_pretrained(tmp_path / "local")
    texts = ["O gato dorme no tellado.", "Xestión ñandú"]
    with vernacular.load(tmp_path / "local", resources=tmp_path, **SETTINGS) as model:
        expected = model.surprisal(texts)
    with (
        served.Server(local) as server,
        vernacular.load(
            server.source, model=server.name, tokenizer=str(tmp_path / "local"), resources=tmp_path
        ) as model,
    ):
        frame = model.surprisal(texts)
        assert frame["token"].tolist() == expected["token"].tolist()
        assert frame["surprisal"].tolist() == pytest.approx(expected["surprisal"].tolist(), abs=1e-3)
        assert model.generate("O gato", max_new_tokens=4)["finish_reason"].notna().all()


@pytest.mark.slow
def test_model_of_the_hub_is_pinned_and_has_the_values_of_its_files(hub, run, tmp_path):
    code = """
import vernacular
from vernacular.core.errors import ModelError
with vernacular.load("lab/tiny@v1", dtype="float32", device="cpu") as model:
    model.surprisal(["O gato dorme."]).to_parquet("surprisal.parquet")
    print(model.record.revision)
try:
    vernacular.load("lab/none", dtype="float32", device="cpu")
except ModelError as error:
    print(str(error).splitlines()[0])
"""
    repository = hub.add("lab/tiny", {"config.json": "{}"})  # main is another commit
    commit = repository.push({path.name: path.read_bytes() for path in (run / "base").iterdir()}, branch="v1")
    settings = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONPATH": str(ROOT / "workflow")}
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(hub.address, tmp_path / "home", **settings),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    revision, message = process.stdout.splitlines()[-2:]
    assert revision == commit
    assert "lab/none" in message
    with vernacular.load(run / "base", resources=tmp_path, **SETTINGS) as loaded:
        expected = loaded.surprisal(["O gato dorme."])
    frame = pd.read_parquet(tmp_path / "surprisal.parquet")
    assert frame["token"].tolist() == expected["token"].tolist()
    assert frame["surprisal"].tolist() == expected["surprisal"].tolist()
