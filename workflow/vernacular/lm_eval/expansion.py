"""Expansion of an lm-eval name (task, group or tag) to units: what is evaluated together and gets one value.

A group whose `aggregate_metric_list` combines its subtasks is one unit, if all of them either score texts or generate
text. All other groups, and tags, are expanded to their members. Overrides are passed down as `TaskFactory` of lm-eval
passes them (lm_eval/tasks/_factory.py, 0.4.13).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

GROUP_FIELDS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
GENERATE, SCORE = "generate", "score"
DEFAULT_TYPE = "generate_until"  # output_type of a task file without one
_MAX_SHOTS = 10_000


@dataclass(frozen=True)
class Entry:
    """One name that lm-eval knows."""

    kind: str  # "task", "group" or "tag"
    config: dict = field(default_factory=dict)  # of a task: output_type, num_fewshot; of a group: its file
    members: tuple[str, ...] = ()  # of a tag, sorted
    reason: str | None = None  # why it cannot be run


@dataclass(frozen=True)
class Leaf:
    """A task of a unit, with the overrides of the groups that contain it."""

    name: str
    config: dict  # output_type and num_fewshot, after overrides
    unavailable: str | None = None

    @property
    def kind(self) -> str:
        return GENERATE if self.config.get("output_type", DEFAULT_TYPE) == "generate_until" else SCORE

    @property
    def shots(self) -> int | None:
        """The number of few-shot examples in the task file; None without a valid one."""
        shots = self.config.get("num_fewshot")
        return shots if type(shots) is int and 0 <= shots <= _MAX_SHOTS else None

    @property
    def reason(self) -> str | None:
        """Why the task cannot be run."""
        shots = self.config.get("num_fewshot")
        invalid = None if shots == self.shots else f"num_fewshot: expected 0 to {_MAX_SHOTS}, got {shots!r}"
        return self.unavailable or invalid


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
            yield Unit(name, overrides, (Leaf(name, entry.config | overrides, entry.reason),))
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

    def inline_task(self, name: str, group: str, config: dict) -> Unit:
        leaf = Leaf(f"{group}::{name}", config, None if "output_type" in config else "its file does not exist")
        return Unit(leaf.name, {}, (leaf,), config=config | {"task": leaf.name})


def involved(names: Iterable[str], registry: Mapping[str, Entry]) -> set[str]:
    """Return the registered names among `names`, and those of their members at any depth."""
    found: set[str] = set()
    pending: list = list(names)
    while pending:
        item = pending.pop()
        if isinstance(item, dict):  # a task or group in a group: a reference with overrides, or defined there
            pending += [item.get("task"), item.get("group"), *_members(item)]
        elif isinstance(item, str) and item in registry and item not in found:
            found.add(item)
            entry = registry[item]
            pending += entry.members if entry.kind == "tag" else _members(entry.config)
    return found


def _members(config: dict) -> list:
    members = config.get("task")
    return members if isinstance(members, list) else []
