"""Units of lm-eval's groups and tags: which are evaluated as one."""

import pytest
from vernacular.lm_eval.expansion import Entry, involved, units

MEAN = [{"metric": "acc"}]


def task(output_type="multiple_choice", **config):
    return Entry("task", {"output_type": output_type, **config})


def group(*members, aggregate=True, **config):
    combined = {"aggregate_metric_list": MEAN} if aggregate else {}
    return Entry("group", {"task": list(members), **combined, **config})


REGISTRY = {
    "a": task(),
    "b": task("loglikelihood"),
    "text": task("generate_until"),
    "pair": group("a", "b"),
    "list": group("a", "b", aggregate=False),
    "mixed": group("pair", "text"),
    "labeled": Entry("tag", members=("a", "text")),
}


def names(name, registry=REGISTRY):
    return [unit.name for unit in units(name, registry)]


def test_group_that_combines_its_tasks_is_one_unit():
    (unit,) = units("pair", REGISTRY)
    assert unit.is_group
    assert [leaf.name for leaf in unit.leaves] == ["a", "b"]
    assert not unit.generates


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", ["a"]), ("list", ["a", "b"]), ("labeled", ["a", "text"]), ("mixed", ["pair", "text"])],
)
def test_other_names_are_expanded_to_their_members(name, expected):
    assert names(name) == expected


def test_groups_can_be_expanded_to_all_tasks():
    assert [unit.name for unit in units("mixed", REGISTRY, combine=False)] == ["a", "b", "text"]


def test_overrides_of_groups_reach_their_tasks():
    registry = REGISTRY | {"outer": group("list", {"task": "a", "num_fewshot": 3}, aggregate=False, dataset_name="gl")}
    first, second = units("outer", registry)
    assert (first.name, second.name) == ("a", "b"), "each name once"
    assert first.overrides == {"dataset_name": "gl", "task": "a", "num_fewshot": 3}, (
        "the last one counts, as in lm-eval"
    )
    assert second.overrides == {"dataset_name": "gl"}


def test_override_of_output_type_decides_whether_a_group_is_mixed():
    registry = REGISTRY | {"outer": group("a", {"task": "text", "output_type": "loglikelihood"})}
    assert names("outer", registry) == ["outer"]


def test_group_defined_in_a_group_has_the_name_of_both():
    registry = REGISTRY | {
        "outer": group({"group": "inner", "task": ["a"], "aggregate_metric_list": MEAN}, aggregate=False)
    }
    (unit,) = units("outer", registry)
    assert unit.name == "outer::inner"
    assert unit.config["task"] == ["a"]


def test_group_that_contains_itself_is_an_error():
    with pytest.raises(ValueError, match="contains itself"):
        units("loop", {"loop": group("loop")})


def test_reason_is_that_of_the_first_task_that_cannot_be_run():
    registry = REGISTRY | {"b": Entry("task", {"output_type": "loglikelihood"}, reason="needs images")}
    (unit,) = units("pair", registry)
    assert unit.reason == "b: needs images"


@pytest.mark.parametrize("shots", [-1, 10**12, 2.5, "five", True, [1]])
def test_invalid_number_of_examples_is_the_reason_of_its_task_only(shots):
    registry = REGISTRY | {"b": task(num_fewshot=shots)}
    first, second = units("list", registry)
    assert (first.reason, second.reason) == (None, f"b: num_fewshot: expected 0 to 10000, got {shots!r}")


def test_names_that_a_name_involves_are_those_of_its_members_at_any_depth():
    inline = {"group": "inline", "task": [{"task": "b"}, "absent"]}
    registry = REGISTRY | {"outer": group("labeled", inline, {"group": "loop"}), "loop": group("loop")}
    assert involved(["outer", "unknown"], registry) == {"outer", "labeled", "a", "text", "b", "loop"}
