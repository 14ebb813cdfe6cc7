"""Hand-made scores for metric tests."""

from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.build import build
from vernacular.protocols.evaluate import evaluate, label_values

from support.sample_items import item as item


def build_requests(items, item_type, protocol, style="default", **options):
    task = {"task": "t", "item_type": item_type, "protocols": [protocol]}
    task |= {"pair": ("en", "gl")} if item_type == "translation" else {}
    types = ["PER", "ORG", "LOC", "DATE", "MISC"]
    task |= {"languages": {"gl": {"columns": {"types": types}}}} if item_type == "entities" else {}
    settings = {"language": "gl", "protocol": protocol, "shots": 0, "seed": 0, "style": style}
    return build(items, task, **settings, options=options)[0]


def results_of(protocol, items, requests, outputs, similarities=(), **options):
    """Return the rows of an evaluation, one per item."""
    return evaluate(protocol, items, requests, outputs, similarities, **options)[0]


def metric_rows(rows, metrics, metadata, signatures, conditions=None):
    """Return rows per METRICS: values of rows per TASK_RESULTS over all items and by category."""
    return label_values(aggregate(rows, metrics, seed=0, categories=True), metadata, signatures, conditions)


def score(request, logprobs, **fields):
    """Return a row of a scores file; `logprobs` is a number (one token) or a list of them."""
    logprobs = logprobs if isinstance(logprobs, list) else [logprobs]
    empty = dict.fromkeys(("entropy", "topk_entropy", "rank", "word_end_logprobs", "rendered", "flags"))
    return (
        {
            "request_id": request["request_id"],
            "item_id": request["item_id"],
            "role": request["role"],
            "tokens": [request["role"]] * len(logprobs),
            "offsets": [[0, 1]] * len(logprobs),
            "logprobs": logprobs,
            "is_greedy": [False] * len(logprobs),
            "n_prompt_tokens": 1,
        }
        | empty
        | fields
    )


def score_rows(requests, by_role):
    """Return the scores of one item's requests from {role: logprobs}; other roles get -10."""
    return [score(request, by_role.get(request["role"], -10.0)) for request in requests]


def without_bits(values):
    """Return per-item values without bits, lengths and Min-K%, which have tests of their own (test_bits.py, …)."""
    others = ("bits", "bytes", "characters", "20")
    return {name: value for name, value in values.items() if name.split("_")[-1] not in others}
