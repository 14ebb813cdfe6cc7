import json

import pytest
from vernacular.exchange.lm_eval_results import lm_eval_results, write_lm_eval_results
from vernacular.summary.grid import combine_tables


def test_results_have_lm_eval_keys(metrics_table):
    rows = [{}, {"metric": "loss", "value": None, "ci_low": None, "ci_high": None, "higher_is_better": None}]
    (result,) = lm_eval_results(combine_tables([metrics_table(*rows)]))
    name = "openbookqa.gl.generation.5shot"
    assert result["results"] == {
        name: {
            "alias": name,
            "accuracy,none": 0.5,
            "accuracy_stderr,none": pytest.approx(0.1 / 1.959964),
            "loss,none": "N/A",
            "loss_stderr,none": "N/A",
        }
    }
    assert result["n-shot"] == {name: 5}
    assert result["higher_is_better"] == {name: {"accuracy": True, "loss": None}}
    assert result["n-samples"] == {name: {"effective": 100}}
    assert result["model_name"] == "m"


def test_one_file_per_model_adapter_and_revision(metrics_table, tmp_path):
    rows = [{"model": "org/a"}, {"model": "org/a", "adapter": "x"}, {"model": "../../Org__A"}, {"model": "\x00 غ"}]
    paths = write_lm_eval_results(
        tmp_path, combine_tables([metrics_table(*rows, {"category": "verbs", "metric": "other"})])
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    assert len(paths) == 4
    for path in paths:
        result = json.loads(path.read_text("utf-8"))
        assert set(result["results"]) <= {"openbookqa.gl.generation.5shot"}
    assert {p.name for p in paths} >= {"results_org__a.json", "results_org__a_2.json"}


def test_no_results_write_no_files(tmp_path):
    assert write_lm_eval_results(tmp_path / "new" / "lm_eval", combine_tables([])) == []
    assert list((tmp_path / "new" / "lm_eval").iterdir()) == []
