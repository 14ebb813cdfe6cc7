"""Engines: their choice by a model's record, and evaluations that are beyond their abilities."""

import sys
from types import SimpleNamespace

import pytest
from support.messages import assert_states
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import content_hash
from vernacular.core.metadata import RequestsMetadata, not_applicable
from vernacular.core.model_record import Forms, ModelRecord, ServerRecord
from vernacular.inference.engine import VLLM, Abilities, Engine, Local, Server, engine_of
from vernacular.inference.job.work import engine_version, exclusion
from vernacular.inference.schema import SCORES, missing_statistics

SERVER = ServerRecord("m", {}, forms=Forms(labels="top 20"), reasons={"generation": "no texts", "spans": "no echo"})
LETTERS, OPTIONS, GENERATION = (
    {"protocol": name, "request_kind": kind, "causal_only": True, "label_spans": name == "letters"}
    for name, kind in (("letters", "score"), ("options", "score"), ("generation", "generate"))
)


class Scores(Engine):
    """An engine that scores labels only."""

    @classmethod
    def abilities(cls, record):
        return Abilities(forced_spans=False, generation=False, reasons={"generation": f"{record.name} writes nothing"})

    def prepare(self, kind, requests): ...
    def compute(self, prepared, journal): ...
    def finish(self, prepared): ...


@pytest.fixture
def scores(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(Scores=Scores))
    return ModelRecord(name="m", kind="causal", engine_class="mine:Scores")


def test_engine_follows_from_the_record(scores):
    assert engine_of(scores) is Scores
    assert engine_of(ModelRecord(name="m", kind="causal")) is Local
    assert engine_of(ModelRecord(name="m", kind="causal", generation_engine="vllm")) is VLLM
    assert engine_of(ModelRecord(name="m", kind="causal", server=SERVER)) is Server


@pytest.mark.parametrize(
    ("engine", "parts"),
    [
        ("nowhere:Mine", ("nowhere:Mine cannot be imported", "No module named")),
        ("json:Mine", ("json:Mine cannot be imported", "Mine")),
        ("json:JSONDecoder", ("expected a class derived from Engine", "json:JSONDecoder")),
    ],
)
def test_invalid_class_is_an_error_of_the_model(engine, parts):
    with pytest.raises(ModelError) as raised:
        engine_of(ModelRecord(name="m", kind="causal", engine_class=engine))
    assert_states(raised.value, "model m: engine_class:", *parts)


@pytest.mark.parametrize(
    ("name", "metadata", "reason"),
    [
        ("scores", LETTERS, None),
        ("scores", OPTIONS, "options is not possible: the engine has no forced_spans"),
        ("scores", GENERATION, "generation is not possible: m writes nothing"),
        ("server", LETTERS, None),
        ("server", OPTIONS, "options is not possible: no echo"),
        ("server", GENERATION, "generation is not possible: no texts"),
        ("causal", GENERATION, None),
        ("masked", GENERATION, "generation requires a causal model, and m is a masked model"),
        ("masked", OPTIONS, "options requires a causal model, and m is a masked model"),
        ("masked", OPTIONS | {"causal_only": False}, None),
    ],
)
def test_evaluation_beyond_the_abilities_is_not_applicable(scores, name, metadata, reason):
    records = {"scores": scores, "server": ModelRecord(name="m", kind="causal", server=SERVER)}
    records |= {kind: ModelRecord(name="m", kind=kind) for kind in ("causal", "masked")}
    outcome = exclusion(records[name], RequestsMetadata(**metadata))
    assert outcome == (reason and not_applicable(reason))


@pytest.mark.parametrize("name", ["mine_alone.py", "mine_package/__init__.py", "mine_namespace/engines.py"])
def test_version_changes_with_the_code_of_another_package(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    versions = set()
    for text in ("x = 1", "x = 2"):
        (tmp_path / name).write_text(text)
        engine_version.cache_clear()
        content_hash.cache_clear()
        versions.add(engine_version(SCORES, f"{name.removesuffix('.py').partition('/')[0]}:Mine"))
    assert len(versions) == 2
    assert engine_version(SCORES) not in versions


def test_statistics_that_an_engine_lacks_are_named():
    requests = {"extras": SimpleNamespace(to_pylist=lambda: [None, ["rank", "window:9"], ["entropy"]])}
    assert missing_statistics(requests, "not computed") == ["entropy, rank: not computed"]
    assert missing_statistics({"extras": SimpleNamespace(to_pylist=lambda: [None])}, "not computed") == []
