"""A run with one encoder that is half a download and one that is nowhere; then both are there."""

import pytest
from support import tiny
from support.workplace import Workplace, said

EVALUATION = "openbookqa.gl.generation.0shot"


@pytest.mark.slow
def test_what_a_lost_encoder_measures_is_missing_with_a_reason_until_it_is_there(tmp_path):
    place = Workplace(tmp_path, [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"], "limit": 3}])
    tiny.save("bert", tmp_path / "cut")
    weights = (tmp_path / "cut" / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(weights[:900])
    place.config["similarity"] |= {
        "cosine_encoders": {"gl": "./nowhere"},
        "encoders": {"gl": "./cut", "default": "./encoder"},
        "metrics": ["cosine", "bertscore"],
    }
    run = place.run()
    assert run.returncode == 1
    assert "the summary is written, but results are missing" in run.stdout + run.stderr
    notes = place.notes().query("kind == 'unavailable'")
    assert set(notes["evaluation"]) == {EVALUATION}
    told = dict(reason.split(" not computed: ", 1) for reason in notes["note"])
    assert set(told) == {"cosine", "bertscore"}
    assert "nowhere" in told["cosine"]
    assert "cut" in told["bertscore"]
    assert "download may be incomplete" in told["bertscore"]
    values = place.results().set_index("metric")
    assert values.loc["exact_match", "n"] == 3, "what needs no encoder is there"
    assert not set(values.index[values["n"] > 0]) & {"cosine_correct", "bertscore_correct"}

    (tmp_path / "cut" / "model.safetensors").write_bytes(weights)
    tiny.save("bert", tmp_path / "nowhere")
    planned = place.planned()
    assert planned["encoder"] == 2
    assert "infer" not in planned
    run = place.run()
    assert run.returncode == 0, said(run)
    assert place.notes().query("kind == 'unavailable'").empty
    values = place.results().set_index("metric")
    assert {"cosine_correct", "bertscore_correct"} <= set(values.index)
    assert place.planned() == {}
