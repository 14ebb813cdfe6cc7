"""Scores made by hand, for the tests of this folder."""

from vernacular.protocols.build import build

from support.sample_items import item as item


def ask(items, layout, protocol, **options):
    task = {"task": "t", "item_type": layout, "protocols": [protocol]}
    given = {"language": "gl", "protocol": protocol, "shots": 0, "seed": 0, "style": "default"}
    return build(items, task, **given, options=options)[0]


def score(request, logprobs, **extra):
    """A row of the scores file; `logprobs` is a number (one token) or a list of them."""
    logprobs = logprobs if isinstance(logprobs, list) else [logprobs]
    empty = dict.fromkeys(("entropy", "topk_entropy", "rank", "word_end_logprobs", "rendered", "flags"))
    return (
        {
            "request_id": request["request_id"],
            "item_id": request["item_id"],
            "role": request["role"],
            "tokens": ["x"] * len(logprobs),
            "offsets": [[0, 1]] * len(logprobs),
            "logprobs": logprobs,
            "is_greedy": [False] * len(logprobs),
            "n_prompt_tokens": 1,
        }
        | empty
        | extra
    )


def scored(requests, by_role):
    """Scores of one item's requests from {role: logprobs}; a role that is not named gets -10."""
    return [score(request, by_role.get(request["role"], -10.0)) for request in requests]
