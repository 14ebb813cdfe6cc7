"""Values of a tool, one line of JSON each: which of our columns they are compared with, and for which item.

Columns: `option_scores:2`, `chosen` (index of the chosen option), `prompt`, `prediction`, or the name of a per-item
metric; without an item, the name of a metric of the whole evaluation.
"""

import json
from pathlib import Path


class Writer:
    """Collect the values of one tool, and write them on exit."""

    def __init__(self, path: Path, tool: str):
        self.path, self.tool, self.lines = path, tool, []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines), "utf-8")

    def add(
        self, method: str, model: str, evaluation: dict, item: dict | None, column: str, value, *, reason=None
    ) -> None:
        """Add a value. `method`: what the tool was asked, `reason`: key of a known difference (compare.REASONS)."""
        keys = {name: evaluation[name] for name in ("id", "task", "language", "protocol")}
        self.lines.append(
            {"tool": self.tool, "method": method, "model": model, "evaluation": keys.pop("id"), **keys,
             "item": item and item["item_id"], "column": column, "value": value, "reason": reason}
        )  # fmt: skip

    def choose(self, method: str, model: str, evaluation: dict, item: dict, values: list[float], **fields) -> None:
        """Add the index of the largest value as the tool's choice; of several, the first, as in all of these tools."""
        self.add(
            method, model, evaluation, item, "chosen", max(range(len(values)), key=lambda i: (values[i], -i)), **fields
        )


def read(path: Path) -> list[dict]:
    """Return the values in a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def spans(item: dict, role: str) -> list[tuple[str, str]]:
    """Return (context, scored text) of the requests "{role}:0", "{role}:1", … of an item."""
    found = []
    while (request := item["requests"].get(f"{role}:{len(found)}")) is not None:
        text = request["prefix"] + request["text"]
        found.append((text[: request["span_start"]], text[request["span_start"] : request["span_end"]]))
    return found
