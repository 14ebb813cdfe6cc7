"""Single checks and forms of a server: samples against their lists, and answers with more or fewer entries."""

import math
import random
from types import SimpleNamespace

import pytest
from support import served
from vernacular.core.model_record import ModelRecord
from vernacular.inference.server.checks import check_generation
from vernacular.inference.server.client import RefusedError
from vernacular.inference.server.completions import Completions, Echo
from vernacular.inference.server.forms import AnswerError
from vernacular.inference.server.sampled import check_samples
from vernacular.inference.server.served import connect

NONE, NOT_SAMPLED = (
    "samples not comparable: no lists are returned",
    "samples not comparable: the server does not sample",
)


def no_lists(prompt, n, k):
    raise RefusedError(400, "no logprobs")


NOT_COMPARED = ", greedy tokens not compared, without lists"


def lister(scale=1.0, *, largest=40, constant=False, listed=True):
    """Return a function that samples tokens and lists the most probable ones, scaled; more than `largest` are refused."""

    def sample(prompt, n, k, *, temperature, seed):
        if k > largest:
            raise RefusedError(422, "too many log-probabilities")
        source, tokens = random.Random(0 if constant else f"{prompt} {seed}"), []
        for _ in range(n):
            weights = [source.gammavariate(0.3, 1) + 1e-9 for _ in range(40)]
            logs = {token: math.log(weight / sum(weights)) for token, weight in enumerate(weights)}
            chosen = source.choices(range(40), weights)[0]
            top = dict(sorted(logs.items(), key=lambda pair: -pair[1])[:k])
            tokens.append((chosen, {token: scale * value for token, value in top.items()} if listed else {}))
        return tokens

    return sample


@pytest.mark.parametrize("largest", [20, 5])
def test_samples_from_their_lists_pass(largest):
    assert check_samples(lister(largest=largest), ["a", "b", "c"]) == "256 sampled tokens have the listed probabilities"


@pytest.mark.parametrize(
    ("scale", "largest"),  # lists of 5 whose values are too high are refused by their sums, before samples are compared
    [(1 / math.log(2), 20), (1 / math.log(2), 5), (2.0, 20), (2.0, 5), (1 / math.log(10), 20), (1 / 1.5, 20)],
)
def test_samples_from_other_distributions_than_listed_are_refused(scale, largest):
    with pytest.raises(AnswerError, match="the values are not natural logarithms, or scaled"):
        check_samples(lister(scale, largest=largest), ["a", "b", "c"])


def test_samples_that_cannot_be_compared_are_stated():
    refused = "samples not comparable: the server refuses lists of sampled tokens (HTTP 422)"
    assert check_samples(lister(largest=4), ["a"]) == refused
    assert check_samples(lister(constant=True), ["a", "b", "c"]) == NOT_SAMPLED
    assert check_samples(lister(2.0, constant=True), ["a", "b", "c"]) == NOT_SAMPLED
    assert check_samples(lister(listed=False), ["a", "b", "c"]) == NONE


STOPPED = {  # the answer to "a b c" with the stop string "b"
    "without it": lambda text, stop: text.partition(stop)[0],
    "with it": lambda text, stop: text[: text.index(stop) + len(stop)],
    "ignored": lambda text, stop: text,
    "later": lambda text, stop: text[: text.index(stop) + len(stop) + 1],
    "another text": lambda text, stop: "x y",
}


@pytest.mark.parametrize("answer", STOPPED)
def test_stop_string_ends_the_text_with_or_without_it(answer):
    def complete(prompt, n, *, stop=None, **sampling):
        return SimpleNamespace(text="a b c" if stop is None else STOPPED[answer]("a b c", *stop))

    expected = f"greedy texts repeat, the seed repeats{NOT_COMPARED}"
    assert check_generation(complete, "p", stops=False, lister=no_lists) == expected
    if answer in ("without it", "with it"):
        assert check_generation(complete, "p", stops=True, lister=no_lists) == expected
    else:
        with pytest.raises(AnswerError, match="the stop string 'b' did not end the text"):
            check_generation(complete, "p", stops=True, lister=no_lists)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("u̬ heZ\ufffd*go\ufffd a B", ""),  # of untrained models; the stop string is "heZ"
        ("\n can\ufffdე\ufffdط .\n", ""),
        (" \ufffdpinguoro \neody", ", no stop string compared"),
        ("no-space", ", no stop string compared"),
    ],
)
def test_stop_string_has_no_part_of_a_character(text, note):
    """As llama.cpp, which finds a stop string among the bytes that it generated, and nothing after a part of a character."""

    def complete(prompt, n, *, stop=("\ufffd",), **sampling):
        before, found, _ = text.partition("\ufffd")[0].partition(*stop)
        return SimpleNamespace(text=before + found if found else text)

    assert check_generation(complete, "p", stops=True, lister=no_lists) == (
        f"greedy texts repeat, the seed repeats{note}{NOT_COMPARED}"
    )


def test_texts_that_differ_are_stated():
    texts = (str(number) for number in range(4))

    def complete(prompt, n, **sampling):
        return SimpleNamespace(text=next(texts))

    assert check_generation(complete, "p", stops=True, lister=no_lists) == (
        f"greedy texts differ, the seed is ignored, no stop string compared{NOT_COMPARED}"
    )


def answers(model, lie, ask):
    """Return `ask(completions, ids)` of an honest server and of one that lies."""
    ids, found = model.tokenizer("O gato dorme no tellado.")["input_ids"], []
    for lies in ({}, lie):
        with served.Server(model, "echo" if "legacy_logprobs" in lie else "vllm", lie=lies) as server:
            client = connect(ModelRecord(name="big", source=server.source), attempts=1)
            found.append(ask(Completions(client, server.name, limit="max_tokens"), ids))
            client.close()
    return found


def test_prompt_after_which_no_token_is_generated_is_scored(model):
    def nothing_generated(server, original, ids, *arguments):
        return {name: values[: len(ids)] for name, values in original(ids, *arguments).items()}

    honest, other = answers(model, {"legacy_logprobs": nothing_generated}, lambda c, ids: Echo(c).score(ids, 0))
    assert len(honest) > 9
    assert other == honest


def test_log_probabilities_of_a_part_of_the_prompt_are_refused(model):
    def cut(server, original, ids, *arguments):
        return {name: values[: len(ids) - 1] for name, values in original(ids, *arguments).items()}

    with pytest.raises(AnswerError, match=r"echo: .* entries for .* tokens"):
        answers(model, {"legacy_logprobs": cut}, lambda completions, ids: Echo(completions).score(ids, 0))


def test_generated_id_without_a_log_probability_is_the_end_of_the_text(model):
    def with_end(server, original, body):
        content = original(body)
        content["choices"][0]["token_ids"] = [*content["choices"][0]["token_ids"], model.eos_id]
        return content

    honest, other = answers(model, {"completions": with_end}, lambda c, ids: Echo(c).generated(ids, 3, temperature=0))
    assert 1 <= len(honest) <= 3
    assert other == honest


def test_every_sampling_field_is_sent_with_a_value_that_changes_nothing(model):
    """Servers take missing ones from the model's `generation_config.json`."""
    bodies = []

    def recording(server, original, body):
        bodies.append(body)
        return original(body)

    answers(model, {"completions": recording}, lambda completions, ids: completions.complete(ids, 2).text)
    [body] = bodies
    assert {name: value for name, value in body.items() if name not in ("model", "prompt")} == {
        "temperature": 0, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "n": 1, "seed": 0, "top_k": -1,
        "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1, "include_stop_str_in_output": False, "stream": False,
        "max_tokens": 2,
    }  # fmt: skip


def test_lines_of_the_probe_state_forms_that_are_not_used_and_checks_with_nothing_to_compare(tmp_path, caplog):
    caplog.set_level("INFO", "vernacular")
    model = served.trained_model()
    with served.Server(model, "echo") as server:
        served.record(server, tmp_path, tokenizer=model)
    assert "check 3 (echo) of prompt_logprobs: failed; the form is not used" in caplog.messages
    assert "check 16 (known answer) of echo: not run: no local copy (reference) is configured" in caplog.messages
    assert "check 3 (echo) of echo: passed" in caplog.messages
