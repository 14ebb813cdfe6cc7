"""Expansion of an lm-eval name (task, group or tag) to units: what is evaluated together and gets one value.

A group whose `aggregate_metric_list` combines its subtasks is one unit, if all of them either score texts or generate
text. All other groups, and tags, are expanded to their members. Overrides are passed down as `TaskFactory` of lm-eval
passes them (lm_eval/tasks/_factory.py, 0.4.13).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

GROUP_FIELDS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
GENERATE, SCORE = "generate", "score"
DEFAULT_TYPE = "generate_until"  # output_type of a task file without one


@dataclass(frozen=True)
class Entry:
    """One name that lm-eval knows."""

    kind: str  # "task", "group" or "tag"
    config: dict = field(default_factory=dict)  # of a task: output_type, num_fewshot; of a group: its file
    members: tuple[str, ...] = ()  # of a tag, sorted
    own: bool = False  # from a user's directory, not from the package
    reason: str | None = None  # why it cannot be run


@dataclass(frozen=True)
class Leaf:
    """A task of a unit, with the overrides of the groups that contain it."""

    name: str
    config: dict  # output_type and num_fewshot, after overrides
    own: bool
    reason: str | None

    @property
    def kind(self) -> str:
        return GENERATE if self.config.get("output_type", DEFAULT_TYPE) == "generate_until" else SCORE


@dataclass(frozen=True)
class Unit:
    """A task, or a group that is evaluated as one; `config` is that of a group or task that is defined in its group."""

    name: str
    overrides: dict
    leaves: tuple[Leaf, ...]
    is_group: bool = False
    config: dict | None = None

    @property
    def generates(self) -> bool:
        return self.leaves[0].kind == GENERATE

    @property
    def own(self) -> bool:
        return any(leaf.own for leaf in self.leaves)

    @property
    def reason(self) -> str | None:
        """Why the unit cannot be run: the reason of its first task that cannot."""
        return next((f"{leaf.name}: {leaf.reason}" for leaf in self.leaves if leaf.reason), None)


Load = Callable[[str], dict]  # returns the content of the file of a registered group


def units(name: str, registry: Mapping[str, Entry], load: Load | None = None, *, combine: bool = True) -> list[Unit]:
    """Return the units of a registered name, in the order of the files, each name once.

    Args:
        load: Reads a group; None: `config` of its entry.
        combine: Whether a group that combines its tasks is one unit; otherwise, its tasks are.

    Raises:
        ValueError: A group contains itself, or has an entry that is neither a task nor a group.
    """
    load = load or (lambda group: registry[group].config)
    found = _Expander(registry, load, combine).expand(name, {}, ())
    return list({unit.name: unit for unit in found}.values())


class _Expander:
    def __init__(self, registry: Mapping[str, Entry], load: Load, combine: bool):
        self.registry, self.load, self.combine = registry, load, combine

    def expand(self, name: str, overrides: dict, parents: tuple[str, ...]) -> Iterator[Unit]:
        entry = self.registry[name]
        if entry.kind == "task":
            yield Unit(name, overrides, (self.leaf(name, overrides),))
        elif entry.kind == "tag":
            for member in entry.members:
                if member in self.registry:
                    yield from self.expand(member, overrides, parents)
        else:
            yield from self.group(name, self.load(name), overrides, parents, registered=True)

    def group(self, name, config, overrides, parents, *, registered: bool) -> Iterator[Unit]:
        if name in parents:
            raise ValueError(f"group {name} contains itself")
        merged = {key: value for key, value in config.items() if key not in (*GROUP_FIELDS, "tag")} | overrides
        members = [unit for item in _members(config) for unit in self.member(item, name, merged, (*parents, name))]
        leaves = tuple({leaf.name: leaf for unit in members for leaf in unit.leaves}.values())
        is_combined = self.combine and config.get("aggregate_metric_list")
        if is_combined and leaves and len({leaf.kind for leaf in leaves}) == 1:
            yield Unit(name, overrides, leaves, is_group=True, config=None if registered else config)
        else:
            yield from members

    def member(self, item, group: str, overrides: dict, parents: tuple[str, ...]) -> Iterator[Unit]:
        if isinstance(item, str):
            if item in self.registry:
                yield from self.expand(item, overrides, parents)
            else:
                yield self.inline_task(item, group, overrides)
        elif isinstance(item, dict) and "group" in item:
            if item["group"] in self.registry:
                inline = {key: value for key, value in item.items() if key != "group"}
                yield from self.expand(item["group"], overrides | inline, parents)
            else:
                yield from self.group(f"{group}::{item['group']}", item, overrides, parents, registered=False)
        elif isinstance(item, dict) and "task" in item:
            if item["task"] in self.registry:
                yield from self.expand(item["task"], overrides | item, parents)
            else:
                yield self.inline_task(item["task"], group, overrides | item)
        else:
            raise ValueError(f"group {group}: expected a name, or task or group, got {item!r}")

    def leaf(self, name: str, overrides: dict) -> Leaf:
        entry = self.registry[name]
        return Leaf(name, entry.config | overrides, entry.own, entry.reason)

    def inline_task(self, name: str, group: str, config: dict) -> Unit:
        own = group in self.registry and self.registry[group].own
        leaf = Leaf(f"{group}::{name}", config, own, None if "output_type" in config else "its file does not exist")
        return Unit(leaf.name, {}, (leaf,), config=config | {"task": leaf.name})


def _members(config: dict) -> list:
    members = config.get("task")
    return members if isinstance(members, list) else []
