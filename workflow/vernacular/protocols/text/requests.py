"""text: a request for the log-probability of an entire text, read in windows if it is longer than the context."""

from vernacular.protocols.request_rows import Setting, pll_extra, score_request, skipped_request
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return one request, role "text"; `overlap` and `window` are in tokens."""
    text = item["context"]
    if not text.strip():
        return [skipped_request(item, "empty text")]
    extras = ["rolling", *pll_extra(setting)]
    extras += [f"{name}:{setting.options[name]}" for name in ("overlap", "window") if name in setting.options]
    if setting.style == "lm_eval":
        extras.append("score_bos")
    return [score_request(item, "text", "", text, extras=extras)]
