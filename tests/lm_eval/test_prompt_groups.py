"""Tasks of lm-eval whose names differ in the prompt."""

import pytest
from vernacular.lm_eval.catalog import prompt_names, prompt_units, split_name
from vernacular.lm_eval.expansion import Entry

TASK = Entry("task", {"output_type": "multiple_choice"})
NAMES = ["qa_yor_prompt_10", "qa_yor_prompt_2", "qa_yor_prompt_1", "qa_swa_prompt_1", "qa_swa_prompt_2"]
OTHERS = ["qa_yor_prompt_x", "qa_yor_long_prompt_1", "nor_p0", "nor_p1", "mp_at_prompt-1", "mp_at_prompt-2", "old"]
OTHERS += ["old_prompt_1", "old_prompt_2"]
REGISTRY = dict.fromkeys([*NAMES, *OTHERS], TASK) | {
    "qa": Entry("group", {"task": ["qa_prompt_1", "qa_prompt_2"], "aggregate_metric_list": [{"metric": "acc"}]}),
    "qa_prompt_1": Entry("tag", members=("qa_swa_prompt_1", "qa_yor_prompt_1")),
    "qa_prompt_2": Entry("tag", members=("qa_swa_prompt_2", "qa_yor_prompt_2")),
    "nor": Entry("tag", members=("nor_p0", "nor_p1", "old")),
}


def found(name):
    return [(entry.task, entry.prompt, entry.position, entry.unit.name) for entry in prompt_units(name, REGISTRY)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mp_at_prompt-3", ("mp_at", "p3")),
        ("super_glue-boolq-t5-prompt", ("super_glue-boolq-t5-prompt", "default")),
        ("mmlu_p", ("mmlu_p", "default")),
        ("leaderboard::x_prompt_1", ("leaderboard::x", "p1")),
    ],
)
def test_number_at_the_end_of_a_name_is_the_prompt(name, expected):
    assert split_name(name) == expected


def test_prompts_of_a_task_are_in_the_order_of_their_numbers():
    assert prompt_names("qa_yor", REGISTRY) == ["qa_yor_prompt_1", "qa_yor_prompt_2", "qa_yor_prompt_10"]
    assert found("qa_yor") == [
        ("qa_yor", "p1", 0, "qa_yor_prompt_1"),
        ("qa_yor", "p2", 1, "qa_yor_prompt_2"),
        ("qa_yor", "p10", 2, "qa_yor_prompt_10"),
    ]


def test_group_that_combines_prompts_and_languages_has_the_prompts_of_each_language():
    assert found("qa") == [
        ("qa_swa", "p1", 0, "qa_swa_prompt_1"),
        ("qa_swa", "p2", 1, "qa_swa_prompt_2"),
        ("qa_yor", "p1", 0, "qa_yor_prompt_1"),
        ("qa_yor", "p2", 1, "qa_yor_prompt_2"),
    ]


def test_task_without_a_number_beside_others_has_one_prompt():
    assert found("nor") == [("nor", "p0", 0, "nor_p0"), ("nor", "p1", 1, "nor_p1"), ("old", "default", 0, "old")]


def test_prompts_of_a_name_that_is_also_a_task_are_the_numbered_ones():
    assert [entry[1] for entry in found("old")] == ["p1", "p2"]


def test_unknown_name_has_no_prompts():
    assert prompt_units("qa_xx", REGISTRY) == []
