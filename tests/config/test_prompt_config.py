"""`prompts:` and `seeds: paired` in evaluations: which evaluations they give, and errors that name the cause."""

from pathlib import Path

import pytest
from support.messages import assert_states
from support.specs import report_spec, requests_spec, summary_spec
from vernacular.config import dependencies
from vernacular.config import load as config
from vernacular.core.errors import ConfigError
from vernacular.protocols.prompts import PROMPTS_DIR, load_labels, prompt_lines, reviewed
from vernacular.types import Evaluation

NAMES = ["default", "labeled", "instructed", "question_first", "formal"]


def load(tmp_path, entry: str):
    path = Path(tmp_path, "config.yaml")
    tasks = f"tasks: [{tmp_path}]\n" if list(tmp_path.glob("quiz.yaml")) else ""
    text = f"models:\n  mine: {{source: ./mine}}\n{tasks}data: samples\nevaluations:\n  - {{{entry}}}\n"
    path.write_text(text, "utf-8")
    return list(config.load([path]).evaluations.values())


def test_all_takes_what_the_language_has_for_the_layout(tmp_path):
    found = load(tmp_path, "task: belebele, languages: [gl], protocols: [letters, options], prompts: all")
    assert [e.prompt for e in found if e.protocol == "letters"] == NAMES
    assert [e.prompt for e in found if e.protocol == "options"] == ["default", "bare", *NAMES[2:]]
    assert found[0].id == "belebele.gl.letters.0shot"
    assert found[1].id == "belebele.gl.letters.0shot.labeled"


def test_without_prompts_the_default_stands_alone(tmp_path):
    entry = "task: belebele, languages: [gl], protocols: [letters], shots: [0, 2], seeds: [0, 1]"
    found = load(tmp_path, entry)
    assert found == load(tmp_path, f"{entry}, prompts: default")
    assert {e.prompt for e in found} == {"default"}
    assert not any("default" in e.id for e in found)


def test_list_is_in_the_order_of_the_file(tmp_path):
    found = load(tmp_path, "task: belebele, languages: [gl], protocols: [letters], prompts: [formal, default]")
    assert [e.prompt for e in found] == ["default", "formal"]


def test_seeds_cross_with_prompts_or_are_paired(tmp_path):
    entry = "task: belebele, languages: [gl], protocols: [letters], shots: 2, prompts: [default, instructed, formal]"
    crossed = load(tmp_path, f"{entry}, seeds: [0, 1]")
    assert [(e.prompt, e.seed) for e in crossed] == [
        (p, s) for p in ("default", "instructed", "formal") for s in (0, 1)
    ]
    paired = load(tmp_path, f"{entry}, seeds: paired")
    assert [(e.prompt, e.seed) for e in paired] == [("default", 0), ("instructed", 2), ("formal", 4)]
    assert paired[1].id == "belebele.gl.letters.2shot.seed2.instructed"


def test_a_prompt_keeps_its_seed_when_others_are_added(tmp_path):
    entry = "task: belebele, languages: [gl], protocols: [letters], shots: 2, seeds: paired, prompts"
    every = load(tmp_path, f"{entry}: all")
    assert set(load(tmp_path, f"{entry}: [default, formal]")) <= set(every)


def test_paired_draws_nothing_without_few_shot_examples(tmp_path):
    found = load(tmp_path, "task: belebele, languages: [gl], protocols: [letters], prompts: all, seeds: paired")
    assert {e.seed for e in found} == {0}


def test_protocols_without_words_beside_others_keep_their_default(tmp_path):
    found = load(tmp_path, "task: global_piqa, languages: [gl], protocols: [minimal_pair, options], prompts: all")
    assert [e.prompt for e in found if e.protocol == "minimal_pair"] == ["default"]
    assert len([e for e in found if e.protocol == "options"]) == 5


@pytest.fixture
def own_task(tmp_path):
    """A directory with a task in Galician, in Basque with lines and no variants beside it, and in Aragonese, without lines."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "eu.yaml").write_text((PROMPTS_DIR / "eu.yaml").read_text("utf-8").split("variants:")[0])
    (tmp_path / "rows.csv").write_text("question,a,b,answer\n¿Cuála ye la capital?,Uviéu,Xixón,A\n")
    (tmp_path / "quiz.yaml").write_text(
        "task: quiz\nitem_type: question\nprotocols: [options, generation]\n"
        "columns: {question: question, choices: [a, b], gold: answer, gold_format: letter}\nlanguages:\n"
        + "".join(f"  {code}: {{source: {{file: rows.csv}}}}\n" for code in ("gl", "eu", "an"))
    )
    return tmp_path


def test_all_is_the_default_in_languages_without_variants(own_task):
    found = load(own_task, "task: quiz, languages: [eu, gl], prompts: all")
    assert [e.prompt for e in found if e.language == "eu"] == ["default"]
    assert len([e for e in found if e.language == "gl"]) == 5
    with pytest.raises(ConfigError) as raised:
        load(own_task, "task: quiz, languages: [eu], prompts: [formal]")
    assert_states(raised.value, "prompts", '"formal"', "options", "eu.yaml")


def test_english_lines_are_a_style_of_all_languages_and_never_a_fallback(own_task):
    with pytest.raises(ConfigError) as raised:
        load(own_task, "task: quiz, languages: [an]")
    assert_states(raised.value, "languages", '"an"', "prompts/an.yaml", "styles: english")
    entry = "task: quiz, languages: [an], protocols: [options, generation], styles: [english, english-open]"
    assert [e.id for e in load(own_task, entry)] == [
        "quiz.an.options.0shot.english",
        "quiz.an.generation.0shot.english",
        "quiz.an.generation.0shot.english-open",
    ]
    found = load(own_task, "task: quiz, languages: [an, eu], styles: [english], prompts: all")
    assert [e.id for e in found if e.language == "eu"][-1] == "quiz.eu.options.0shot.english.formal"
    assert [e.prompt for e in found if e.language == "an"] == [e.prompt for e in found if e.language == "eu"]
    requests = requests_spec(config.load([own_task / "config.yaml"]))["evaluations"]
    assert requests["quiz.an.options.0shot.english"]["prompts"] == prompt_lines("en")
    assert "The correct answer is:" in str(requests["quiz.an.options.0shot.english.formal"]["prompts"])
    assert {spec["style"] for spec in requests.values()} == {"english"}  # which is part of the signature


def test_tables_depend_on_whether_a_prompt_is_reviewed_and_requests_do_not(own_task):
    entry = "task: quiz, languages: [eu, gl], styles: [default, english], prompts: [default, formal]"
    load(own_task, entry.replace("[eu, gl]", "[gl]"))
    unreviewed = {"quiz.gl.options.0shot.formal": "gl", "quiz.gl.options.0shot.english.formal": "en"}
    assert summary_spec(config.load([own_task / "config.yaml"]))["unreviewed"] == unreviewed
    load(own_task, "task: quiz, languages: [eu]")
    loaded, path = config.load([own_task / "config.yaml"]), own_task / "prompts" / "eu.yaml"
    before = requests_spec(loaded)
    assert summary_spec(loaded)["unreviewed"] == {"quiz.eu.options.0shot": "eu"}
    path.write_text(path.read_text().replace("reviewed: false", "reviewed: A. Speaker, 2026-11-23"))
    clear_caches()
    assert "unreviewed" not in summary_spec(loaded)
    assert requests_spec(loaded) == before
    path.write_text(path.read_text().replace("reviewed: A. Speaker, 2026-11-23", "reviewed: true"))
    clear_caches()
    with pytest.raises(ConfigError) as raised:
        load(own_task, "task: quiz, languages: [eu]")
    assert_states(raised.value, "eu.yaml", "expected the reviewer's name and the date, or false", "got True")


def clear_caches():
    for function in (load_labels, prompt_lines, reviewed):
        function.cache_clear()


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ("task: serbian_cloze, prompts: all", ("evaluations[0].prompts", "cloze", "without words", "remove prompts")),
        ("task: cola, prompts: all", ("prompts", "acceptability", "without words")),
        ("task: calame, protocols: [last_word], prompts: all", ("prompts", "last_word", "without words")),
        ("task: calame, protocols: [generation], prompts: all", ("prompts", "generation", "calame", "without words")),
        ("task: openbookqa, languages: [gl], protocols: [generation], styles: [simil-eval], prompts: all", ("prompts", "generation", "simil-eval")),
        ("task: belebele, languages: [gl], protocols: [letters], prompts: [formall]", ("prompts", '"formall"', "gl.yaml", '"formal"')),
        ("task: belebele, languages: [gl], protocols: [letters], prompts: [bare]", ("prompts", '"bare"', "letters")),
        ("task: belebele, languages: [gl], seeds: paired", ("seeds", "paired", "several prompts")),
        ("task: belebele, languages: [gl], seeds: pairs", ("seeds", '"pairs"', '"paired"')),
        ("task: belebele, languages: [gl], prompt: all", ('"prompts"',)),
    ],
)  # fmt: skip
def test_errors_name_key_and_cause(tmp_path, entry, parts):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, entry)
    assert_states(raised.value, "config.yaml", *parts)


def test_all_mistakes_of_prompts_are_reported_at_once(tmp_path):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, "task: belebele, languages: [gl, xx], protocols: [letters, options], prompts: [formall, bare]")
    lines = str(raised.value).splitlines()
    found = {
        part
        for line in lines
        for part in (
            '"xx"',
            '"formall" not found for letters',
            '"formall" not found for options',
            '"bare" not found for letters',
        )
        if part in line
    }
    assert len(lines) == len(found) == 4


def test_ids_of_prompts_and_styles_differ():
    setting = {
        "task": "t",
        "language": "gl",
        "protocol": "letters",
        "shots": 0,
        "seed": 0,
        "data": "hub",
        "limit": None,
    }
    ids = {Evaluation(**setting, style=style, prompt=prompt).id for style in ("default", "open") for prompt in NAMES}
    assert len(ids) == 10


def test_requests_of_a_prompt_depend_on_all_that_those_of_the_default_do_and_on_its_texts(tmp_path):
    path = Path(tmp_path, "config.yaml")
    entry = "{task: belebele, languages: [gl], protocols: [letters], prompts: [default, formal]}"
    path.write_text(f"models:\n  mine: {{source: ./mine}}\ndata: samples\nevaluations:\n  - {entry}\n", "utf-8")
    default, formal = requests_spec(config.load([path]))["evaluations"].values()
    assert formal.keys() - default.keys() == {"prompt"}
    assert not default.keys() - formal.keys()
    assert formal["prompt"] == "formal"
    differing = {name for name in default if default[name] != formal[name]}
    assert differing == {"evaluation", "prompts"}


@pytest.mark.parametrize("key", ["title", "note"])
def test_tables_depend_on_title_and_note_of_a_task(tmp_path, key):
    path = Path(tmp_path, "config.yaml")
    path.write_text("models:\n  mine: {source: ./mine}\ndata: samples\nevaluations:\n  - {task: cola}\n", "utf-8")
    loaded = config.load([path])
    before = summary_spec(loaded)
    loaded.tasks["cola"][key] = "other"
    assert summary_spec(loaded) != before


def test_report_depends_on_the_descriptions_of_prompts(tmp_path, monkeypatch):
    path = Path(tmp_path, "config.yaml")
    entry = "{task: belebele, languages: [gl], protocols: [letters], prompts: [default, formal]}"
    path.write_text(f"models:\n  mine: {{source: ./mine}}\ndata: samples\nevaluations:\n  - {entry}\n", "utf-8")
    loaded = config.load([path])
    before = report_spec(loaded)
    assert before["prompts"].keys() == {"belebele.gl.letters.0shot.formal"}
    monkeypatch.setattr(dependencies.prompts, "description", lambda language, prompt, _: {"other": prompt})
    assert report_spec(loaded) != before
