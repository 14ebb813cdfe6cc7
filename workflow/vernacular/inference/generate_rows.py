"""Rows of the generations file, whichever engine wrote the texts."""

from vernacular.inference.generate_prompts import Prompt


def row_of(row: dict, prompts: dict[str, Prompt], found: dict[str, dict]) -> dict:
    """The row of GENERATIONS for a request; `prompts` and `found` (what the engine returned) by request id."""
    same = {"request_id": row["request_id"], "item_id": row["item_id"], "role": row["role"]}
    prompt = prompts.get(row["request_id"])
    if prompt is None:
        return same | {"flag": f"error: {row['role']}"}
    outcome = found.get(row["request_id"], {"error": None})
    flags = [prompt.flag, f"error: {outcome['error']}" if outcome["error"] else None]
    return same | {
        **{name: outcome.get(name) for name in ("raw", "answer", "finish_reason", "n_tokens")},
        "n_prompt_tokens": len(prompt.ids) or None,
        "rendered": prompt.rendered,
        "flag": "; ".join(flag for flag in flags if flag) or None,
    }
