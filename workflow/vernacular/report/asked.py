"""What the models were asked, once per evaluation: each item's prompt as sent, its options, and the spans scored."""

import re
from dataclasses import dataclass, field

from vernacular.requests.schema import REQUESTS

# The roles whose tokens are drawn: whole sentences or options, not the same text a second time without its context.
_DRAWN = re.compile(r"(choice|whole|sentence|token):\d+|sentence|word")
COLUMNS = [name for name in REQUESTS.schema.names if name in ("item_id", "role", "prefix", "text", "span_start",
                                                              "span_end", "turns", "kind")]  # fmt: skip


@dataclass
class Asked:
    """The items of one evaluation in the order they are shown, and where each stands.

    items     per item [item_id, category, prompt, options, gold, sent, prefix, message, spans]:
              `sent` the text after the few-shot block up to the scored span, None where it is the prompt;
              `prefix` the position of its few-shot block in `prefixes`, None where there is none;
              `message` the last chat turn's content, None where it is `sent`; `spans` a list of [role, text]
    """

    items: list[list] = field(default_factory=list)
    position: dict[str, int] = field(default_factory=dict)
    prefixes: list[str] = field(default_factory=list)
    spans: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)  # (item, role): text and start
    _requests: dict[str, list[dict]] = field(default_factory=dict)

    def add_requests(self, rows: list[dict]) -> None:
        """Take the rows of a requests file (the columns `COLUMNS`) in; call it before `add_items`."""
        by_item: dict[str, list[dict]] = {}
        for row in rows:
            if row["span_start"] is None or row["span_start"] < row["span_end"]:  # an empty span: it was not asked
                by_item.setdefault(row["item_id"], []).append(row)
        for item, asked in by_item.items():
            self._requests[item] = asked
            for row in _drawn(asked):
                whole = row["prefix"] + row["text"]
                self.spans[item, row["role"]] = (whole[row["span_start"] : row["span_end"]], row["span_start"])

    def add_items(self, rows: list[dict]) -> None:
        """Take in the items of a task-results file that no other model's file had yet."""
        for row in rows:
            item = row["item_id"]
            if item not in self.position:
                self.position[item] = len(self.items)
                head = [item, row["category"] or "", row["prompt"], row["options"], row["gold"]]
                self.items.append([*head, *self._as_sent(item, row["prompt"])])

    def own_text(self, item: str) -> str | None:
        """What a chat template wraps: the last turn's content, or the text as sent without one."""
        if item not in self.position:
            return None
        _, _, prompt, _, _, sent, _, message, _ = self.items[self.position[item]]
        return next(text for text in (message, sent, prompt) if text is not None)

    @property
    def roles(self) -> set[str]:
        return {role for _, role in self.spans}

    def _as_sent(self, item: str, prompt: str) -> list:
        asked = self._requests.get(item)
        if not asked:
            return [None, None, None, []]
        drawn = _drawn(asked)
        first = (drawn or asked)[0]
        end = None if first["span_start"] is None else first["span_start"] - len(first["prefix"])
        sent = first["text"] if end is None else first["text"][: max(end, 0)]
        message = first["turns"][-1]["content"] if first["turns"] else None
        return [
            None if sent == prompt or (not sent and drawn) else sent,
            self._prefix(first["prefix"]),
            None if message in (None, sent) else message,
            [[row["role"], self.spans[item, row["role"]][0]] for row in drawn],
        ]

    def _prefix(self, text: str) -> int | None:
        if not text:
            return None
        if text not in self.prefixes:
            self.prefixes.append(text)
        return self.prefixes.index(text)


def _drawn(asked: list[dict]) -> list[dict]:
    """The requests whose tokens are drawn; a masked word alone only where its sentence was not scored whole."""
    rows = [row for row in asked if row["kind"] == "score" and _DRAWN.fullmatch(row["role"])]
    whole = [row for row in rows if not row["role"].startswith("token:")]
    return whole or rows
