"""Servers that return wrong numbers: each is refused by the check that it fails, and honest ones by none."""

import pytest
from support import served, tiny
from vernacular.core.model_record import Forms, ModelRecord
from vernacular.inference.server.forms import CHECKS
from vernacular.inference.server.probe import probe
from vernacular.inference.server.served import connect

pytestmark = pytest.mark.slow


def echo_ignored(server, original, body):
    return original({name: value for name, value in body.items() if name not in ("prompt_logprobs", "echo")})


def shifted_by_one(server, original, ids, body):
    values = original(ids, body)
    return [values[0], *values[2:], values[1]]


def null_inside_the_span(server, original, ids, body):
    values = original(ids, body)
    return [*values[:4], (None, None, None), *values[5:]]


def all_the_same(server, original, ids, body):
    return [(None, None, None)] + [(-9999.0, -9999.0, 0)] * (len(ids) - 1)


def values_of_the_previous_request(server, original, ids, body):
    values = original(ids, body)
    previous, server.previous = getattr(server, "previous", values), values
    return (previous + values[len(previous) :])[: len(values)]


def order_dependent(server, original, ids, body):
    server.number = getattr(server, "number", 0) + 1
    return [(None, None, None), *((v - server.number % 2, b, t) for v, b, t in original(ids, body)[1:])]


def bos_twice(server, original, prompt):
    ids = original(prompt)
    return [server.loaded.bos_id, *ids]


def prompt_cut(server, original, prompt):
    return original(prompt)[-64:]


def prompt_cut_and_concealed(server, original, ids, body):
    values = original(ids, body)
    return values if len(ids) < 62 else [*values[:-20], *original(ids[-60:], body)[-20:]]


def byte_tokens_missing(server, original, ids, body):
    parts = ["\ufffd" in server.loaded.tokenizer.decode([token]) for token in ids]
    return [value for value, part in zip(original(ids, body), parts, strict=True) if not part]


def temperature_scaled(server, original, ids, body):
    values, temperature = original(ids, body), body["temperature"] or 1.0
    return [values[0], *((v / temperature, b / temperature, t) for v, b, t in values[1:])]


def zeros(server, original, ids, body):
    return [(None, None, None)] + [(0.0, 0.0, token) for token in ids[1:]]


def penalized(server, original, ids, body):
    """A repetition penalty of the server's own: repeated tokens are less probable in prompts."""
    return [(v if i < 1 or ids[i] not in ids[:i] else v - 2.0, b, t) for i, (v, b, t) in enumerate(original(ids, body))]


def shuffled(server, original, ids, body):
    values = original(ids, body)
    return [values[0], *sorted(values[1:], reverse=True)]


def batch_dependent(server, original, ids, body):
    return [(v if v is None or server.most_active < 3 else v - 3.0, b, t) for v, b, t in original(ids, body)]


def floored(server, original, ids, body, rank=20, value=-20.0):
    """Tokens that are not among the most probable ones have the value of a limit."""
    rows = server.logprobs(ids)
    limits = [float(row.topk(rank).values[-1]) for row in rows]
    values = original(ids, body)
    return [
        (v if v is None or v >= limits[i - 1] else limits[i - 1] if value is None else value, b, t)
        for i, (v, b, t) in enumerate(values)
    ]


def floored_at_the_50th(server, original, ids, body):
    return floored(server, original, ids, body, 50, None)


def clipped(server, original, ids, body):
    return [(v if v is None else max(v, -3.0), b, t) for v, b, t in original(ids, body)]


def cached_by_length_and_end(server, original, ids, body):
    """A cache whose key is the end of a prompt, and its length: another beginning has the values of the first one."""
    cache = server.__dict__.setdefault("cache", {})
    values = cache.setdefault((len(ids), tuple(ids[-4:])), original(ids, body))
    return [(v, b, t) for v, b, t in values]


def shifted_in_long_prompts(server, original, ids, body):
    values = original(ids, body)
    return values if len(ids) < 200 else [values[0], *values[2:], values[1]]


def context_shifted(server, original, ids, body):
    """Of a long prompt, the middle is dropped, and its full length stated."""
    if len(ids) < 132:
        return original(ids, body)
    values = original([*ids[:16], *ids[-100:]], body)
    return [*values[:16], *[values[16]] * (len(ids) - 116), *values[16:]]


def renormalized(server, original, ids, size=20):
    rows = original(ids)
    return rows - rows.topk(size).values.logsumexp(-1, keepdim=True)


VALUES, PROMPT = "prompt_values", "prompt_ids"
LIARS = [
    ("completions", echo_ignored, {3}),
    (VALUES, shifted_by_one, {5, 6, 7, 9}),
    (VALUES, null_inside_the_span, {4}),
    (VALUES, all_the_same, {4}),
    (VALUES, zeros, {4}),
    (VALUES, values_of_the_previous_request, {7}),
    (VALUES, order_dependent, {7}),
    (PROMPT, bos_twice, {2}),
    (PROMPT, prompt_cut, {3, 14}),
    (VALUES, prompt_cut_and_concealed, {6, 14}),
    (VALUES, byte_tokens_missing, {11}),
    (VALUES, temperature_scaled, {9}),
    (VALUES, penalized, {6, 7, 9}),
    (VALUES, shuffled, {6, 7, 9}),
    (VALUES, batch_dependent, {8}),
    (VALUES, floored, {5, 6, 7}),
    (VALUES, floored_at_the_50th, {5, 6, 7}),
    (VALUES, clipped, {5, 6, 7}),
    (VALUES, cached_by_length_and_end, {5, 6, 7, 9}),
    (VALUES, shifted_in_long_prompts, {14}),
    (VALUES, context_shifted, {14}),
    ("logprobs", renormalized, {5, 6, 9}),
]


NAMED = {  # the lies that servers were seen to tell; another tokenizer has a test of its own
    echo_ignored, shifted_by_one, null_inside_the_span, all_the_same, values_of_the_previous_request, order_dependent,
    bos_twice, prompt_cut, byte_tokens_missing, temperature_scaled,
}  # fmt: skip


def test_all_lies_that_servers_were_seen_to_tell_are_tested():
    assert {lie for _, lie, _ in LIARS} >= NAMED
    assert len(NAMED) >= 10


def run_probe(server, tokenizer):
    record = ModelRecord(name="big", source=server.source, concurrency=4)
    client = connect(record, attempts=2)
    try:
        return probe(record, client, tokenizer, model=server.name)
    finally:
        client.close()


@pytest.mark.parametrize(("method", "lie", "checks"), LIARS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_liar_is_refused_by_the_check_that_it_fails(model, form, method, lie, checks):
    if lie is echo_ignored and form == "sglang":
        pytest.skip("/generate has no echo")
    with served.Server(model, form, lie={method: lie}, faults=served.slow) as server:
        server.most_active = 0
        found = run_probe(server, model.tokenizer)
    assert found.forms.spans is None
    if lie is floored or lie is clipped:
        assert found.forms.labels is not None, "sampled tokens have the values of labels"
    reason = found.reasons["spans"]
    assert any(reason.startswith(f"the server fails check {n} ({CHECKS[n]}): ") for n in checks), reason
    assert "\n" not in reason
    assert found.forms.generation is not None


def stop_ignored(server, original, ids, n, temperature, seed, stop):
    return original(ids, n, temperature, seed, [])


def stop_kept_in_the_middle(server, original, body):
    return original({name: value for name, value in body.items() if name != "stop"})


def sampled_with_temperature_0(server, original, ids, n, temperature, seed, stop):
    return original(ids, n, temperature or 1.0, 3, stop)


def second_best_first(server, original, ids, n, temperature, seed, stop):
    new, values, reason = original(ids, n, temperature, seed, stop)
    if temperature == 0 and len(new) > 1:
        best = server.logprobs(ids)[-1].topk(2)
        new[0], values[0] = int(best.indices[1]), float(best.values[1])
    return new, values, reason


@pytest.mark.parametrize("lie", [sampled_with_temperature_0, second_best_first])
@pytest.mark.parametrize("form", ["vllm", "echo", "text"])
def test_server_whose_greedy_tokens_are_not_the_most_probable_is_refused_for_generation(model, form, lie):
    with served.Server(model, form, lie={"generate": lie}) as server:
        found = run_probe(server, None if form == "text" else model.tokenizer)
    assert found.forms.generation is None
    assert "a token is not the most probable one of its list" in found.reasons["generation"]


def test_server_that_ignores_stop_strings_is_refused_for_generation(model):
    lies = {"generate": stop_ignored, "completions": stop_kept_in_the_middle}
    with served.Server(model, lie=lies) as server:
        found = run_probe(server, model.tokenizer)
    assert found.forms.generation is None
    assert found.reasons["generation"].startswith("the server fails check 15 (stop and seed): the stop string ")
    assert found.forms.spans == "prompt_logprobs"


def labels_shifted(server, original, ids, new, values, k, body):
    content = original(ids, new, values, k, body)
    if wanted := body.get("logprob_token_ids"):
        top = content["top_logprobs"][0]
        names = [server.token_name(token, body) for token in wanted]
        top |= dict(zip(names, [top[name] for name in [*names[1:], names[0]]], strict=True))
    return content


def test_server_with_other_values_of_labels_is_refused_for_labels(model):
    with served.Server(model, lie={"legacy_logprobs": labels_shifted}) as server:
        found = run_probe(server, model.tokenizer)
    assert found.forms.labels is None
    [seen] = [check["seen"] for check in found.checks if check["form"] == "logprob_token_ids"]
    assert seen == "logprob_token_ids: labels have other values as part of a prompt"
    assert found.forms.spans == "prompt_logprobs", "which score the labels as texts"


@pytest.mark.parametrize("form", ["vllm", "sglang", "echo"])
def test_server_with_another_tokenizer_is_refused(model, form):
    other = tiny.tokenizer("metaspace")
    with served.Server(model, form) as server:
        found = run_probe(server, other)
    assert found.forms.spans is None
    assert found.forms.labels in (None, "top 20 texts")  # no tokenizer is needed
    assert "fails check 10 (tokenizer)" in found.reasons["spans"]
    assert found.forms.generation == "text"


def test_server_that_serves_another_name_is_refused_with_the_names_it_lists(model):
    with served.Server(model, name="org/other") as server:
        record = ModelRecord(name="big", source=server.source)
        client = connect(record, attempts=1)
        with pytest.raises(
            Exception, match=r'lists org/other, and the model is "org/othr"\. Did you mean "org/other"\?'
        ):
            probe(record, client, model.tokenizer, model="org/othr")


@pytest.mark.parametrize(("change", "passes"), [(0.0, True), (2.0, False)])
def test_known_answers_of_a_local_copy_are_compared(model, change, passes):
    from vernacular.inference.server import checks

    with served.Server(model) as server:
        rows = {text: server.prompt_values(server.encode(text), {})[1:] for text in checks.TEXTS}
        known = {text: [value - change for value, _, _ in values] for text, values in rows.items()}
        record = ModelRecord(name="big", source=server.source)
        client = connect(record)
        found = probe(record, client, model.tokenizer, known, model=server.name)
    assert (found.forms.spans is not None) == passes
    assert passes or "fails check 16 (known answer)" in found.reasons["spans"]


@pytest.mark.parametrize(("form", "labels"), [("text", "top 20 texts"), ("chat", None)])
def test_servers_without_token_ids_generate_and_score_labels_only(model, form, labels):
    with served.Server(model, form) as server:
        found = run_probe(server, None)
    assert found.forms == Forms(generation=form, chat=form == "chat", spans=None, labels=labels)
    assert found.reasons["spans"]
