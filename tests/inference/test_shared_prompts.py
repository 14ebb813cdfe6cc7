"""Evaluations that differ in the prompt only are computed as one; each has the outputs that it has alone."""

import numpy as np
import pytest
from support import tiny
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import UserError
from vernacular.inference.engine import Local
from vernacular.inference.job.run import CACHED, COMPUTED, run_group, share
from vernacular.inference.job.store import Store
from vernacular.inference.job.work import work_units
from vernacular.inference.schema import SCORES
from vernacular.protocols.schema import REQUESTS

PASSAGES = [" ".join(tiny.LINES[i : i + 4]) for i in range(4)]
WORDINGS = ["Question: {}\nAnswer:", "{}\nThe answer is:", "Reply to this: {}\nReply:", "Say, {} Well,", "{}:"]
QUESTIONS = ["Where does the cat sleep?", "Who barks?"]
OPTIONS = [" on the roof", " in the street", " nobody"]
SETTING = {
    "task": "t",
    "language": "en",
    "protocol": "options",
    "style": "default",
    "seed": 0,
    "shots": 0,
    "options": {},
}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Return a model record, and the requests files of five prompts with the passage first."""
    directory = tmp_path_factory.mktemp("shared")
    tiny.save("llama", directory / "model")
    settings = {"dtype": "float32", "device": "cpu", "chat": False, "max_batch_tokens": 4096}
    record = resolve("m", str(directory / "model"), directory / "converted") | settings
    paths = {}
    for number, wording in enumerate(WORDINGS):
        texts = []
        for passage in PASSAGES:
            for question in QUESTIONS:
                asked = f"{passage}\n{wording.format(question)}"
                texts += [(asked + option, len(asked), len(asked + option)) for option in OPTIONS]
        texts += texts[:1] if number == 0 else []  # an equal request in the first
        name = f"e.{number}"
        metadata = SETTING | ({"prompt": f"p{number}"} if number else {})
        paths[name] = tiny.write_requests(directory / f"{name}.parquet", tiny.score_requests(texts), **metadata)
    return record, paths


def outputs(store, record, paths):
    """Return (table, metadata) of each evaluation in the store."""
    return {unit.evaluation: Store(store).get(unit.key, unit.kind) for unit in work_units(record, paths)}


@pytest.fixture(scope="module")
def together_and_alone(job, tmp_path_factory):
    record, paths = job
    directory = tmp_path_factory.mktemp("stores")
    done, _ = run_group([record], paths, directory / "together")
    assert done["m"] == dict.fromkeys(paths, COMPUTED)
    for name, path in paths.items():
        run_group([record], {name: path}, directory / "alone")
    return outputs(directory / "together", record, paths), outputs(directory / "alone", record, paths)


def test_scores_are_those_of_single_evaluations(together_and_alone):
    together, alone = together_and_alone
    for name, (table, _) in together.items():
        expected = alone[name][0]
        assert table.drop_columns("logprobs").equals(expected.drop_columns("logprobs"))
        ours, theirs = (np.concatenate([list(row) for row in t["logprobs"].to_pylist()]) for t in (table, expected))
        np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_chunks_of_requests_end_in_the_rows_of_each_evaluation(job, together_and_alone, low_limits, tmp_path):
    record, paths = job
    low_limits("inference.scoring.score", CHUNK_CHARACTERS=40_000, BATCH_ROWS=5)
    low_limits("core.artifacts", ROWS_PER_GROUP=7)
    done, _ = run_group([record], paths, tmp_path)
    assert done["m"] == dict.fromkeys(paths, COMPUTED)
    for name, (table, metadata) in outputs(tmp_path, record, paths).items():
        expected, expected_metadata = together_and_alone[0][name]
        assert metadata["counters"]["chunks"] >= 5
        assert metadata["tokenizer"] == expected_metadata["tokenizer"]
        assert table.drop_columns("logprobs").equals(expected.drop_columns("logprobs"))
        ours, theirs = (np.concatenate([list(row) for row in t["logprobs"].to_pylist()]) for t in (table, expected))
        np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_a_passage_before_the_wordings_is_computed_once(together_and_alone):
    together, alone = (
        sum(metadata["counters"]["tokens_computed"] for _, metadata in results.values())
        for results in together_and_alone
    )
    assert together < 0.9 * alone
    assert together < 0.6 * alone  # these passages are longer than their questions


def test_metadata_are_those_of_each_evaluation(together_and_alone):
    together, alone = together_and_alone
    for name, (_, metadata) in together.items():
        expected = alone[name][1]
        assert metadata["counters"]["requests"] == expected["counters"]["requests"]
        assert metadata["flags"] == expected["flags"]
        assert metadata["tokenizer"] == expected["tokenizer"]
        assert set(metadata["engine"]["computed_with"]) == set(together) - {name}
        assert "computed_with" not in expected["engine"]
    assert sum(metadata["counters"]["loads"] for _, metadata in together.values()) == 1


def test_another_prompt_later_computes_that_prompt_alone(job, tmp_path):
    record, paths = job
    *first, last = paths
    run_group([record], {name: paths[name] for name in first}, tmp_path)
    done, _ = run_group([record], paths, tmp_path)
    assert done["m"] == dict.fromkeys(first, CACHED) | {last: COMPUTED}


def test_without_overlap_after_a_crash_evaluations_are_single(job, tmp_path):
    record, paths = job
    run_group([record], paths, tmp_path, overlaps=False)
    assert not any("computed_with" in metadata["engine"] for _, metadata in outputs(tmp_path, record, paths).values())


class FailingEngine(Local):
    def compute(self, prepared, journal):
        if any("Reply to this" in text for text in prepared.requests["text"].to_pylist()):
            raise UserError("this wording fails")
        super().compute(prepared, journal)


def test_a_failure_of_one_affects_no_other(job, tmp_path):
    record, paths = job
    done, failed = run_group([record | {"engine_class": f"{__name__}:FailingEngine"}], paths, tmp_path)
    assert failed["m"] == {"e.2": "this wording fails"}
    assert done["m"] == {name: COMPUTED for name in paths if name != "e.2"}


def test_only_prompts_of_one_evaluation_without_examples_are_shared(job, tmp_path):
    record, paths = job
    changes = [{}, {"prompt": "a"}, {"language": "gl"}, {"shots": 5}, {"shots": 5, "prompt": "a"}, {"style": "open"}]
    table, others = artifacts.read(paths["e.1"], REQUESTS), {}
    for number, change in enumerate(changes):
        others[str(number)] = tiny.write_requests(tmp_path / f"{number}.parquet", table, **(SETTING | change))
    units = share(work_units(record, others))
    assert [[part.evaluation for part in unit.units] for unit in units] == [["0", "1"], ["2"], ["3"], ["4"], ["5"]]
    assert units[0].kind is SCORES
