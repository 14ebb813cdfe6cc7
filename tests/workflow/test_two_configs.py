"""Two configs in one folder: what a run of one wrote, a run of the other leaves as it is."""

import pytest
from support.workplace import Workplace, said

PALMX = {"task": "palmx_culture", "languages": ["ar"], "protocols": ["letters"]}
CLOZE = {"task": "serbian_cloze", "languages": ["sr"]}
WITHOUT = {"task": "cola", "languages": ["es"]}  # of a protocol that no source tool has files for


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Workplace(tmp_path_factory.mktemp("configs"), [])
    place.config["models"]["masked"] = {"source": "./masked", "dtype": "float32"}
    return place


def ran(place, *evaluations) -> None:
    place.config["evaluations"] = list(evaluations)
    run = place.run()
    assert run.returncode == 0, said(run)


def written(place) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of the source tools' formats, by its path below `results/exports`."""
    top = place.folder / "results" / "exports"
    files = [path for path in top.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(top).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.slow
def test_the_files_of_one_configs_evaluations_outlive_a_run_of_the_other(place):
    ran(place, PALMX)
    first = written(place)
    names = ("README.txt", "outputs_log.csv", "predictions.csv", "scores.txt")
    assert set(first) == {
        f"tiny/palmx_culture.ar.letters.0shot/{name}" for name in names
    }  # letters need a causal model

    ran(place, CLOZE)
    both = written(place)
    new = {f"{model}/serbian_cloze.sr.cloze.0shot" for model in ("tiny", "masked")}
    assert set(both) - set(first) == {f"{folder}/{name}" for folder in new for name in ("README.txt", "results.jsonl")}
    assert {name: both[name] for name in first} == first

    ran(place, WITHOUT)
    assert written(place) == both
