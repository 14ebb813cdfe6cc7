"""Decoding by the settings of a model and an evaluation, the card's values, and several samples per item."""

import json

import pytest
import torch
from support import reasoning, sample_items
from support.engines import generate
from vernacular.core.errors import ModelError
from vernacular.inference.generation.prepare import decoding_of, prepare_prompt
from vernacular.protocols.build import build
from vernacular.protocols.schema import REQUESTS, request_size

CARD = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": 1}
SAMPLED = {"temperature": 5.0, "max_gen_toks": 6}


@pytest.fixture(autouse=True)
def single_thread():
    torch.set_num_threads(1)


def samples(repeats, gen_kwargs=None, seed=0):
    """Return the requests of one item."""
    task = {"task": "t", "item_type": "question", "protocols": ["generation"]}
    items = [sample_items.item("a", question="Que animal durme?", choices=["o gato", "o can"], gold=[0])]
    options = {"repeats": repeats} | ({"gen_kwargs": gen_kwargs} if gen_kwargs else {})
    settings = {"language": "gl", "shots": 0, "seed": seed, "style": "default"}
    return build(items, task, protocol="generation", options=options, **settings)[0]


def texts(loaded, rows):
    return [row["raw_output"] for row in generate(loaded, reasoning.table(*rows))[0].to_pylist()]


def test_samples_are_requests_of_their_own():
    rows = samples(4, SAMPLED)
    assert [row["role"] for row in rows] == ["response", "response:0@1", "response:0@2", "response:0@3"]
    assert len({row["request_id"] for row in rows}) == 4
    assert rows[0]["request_id"] == samples(1, SAMPLED)[0]["request_id"]
    loaded = reasoning.load("llama3")
    table, metadata = generate(loaded, reasoning.table(*rows))
    results = table.to_pylist()
    assert (len(results), metadata["counters"]["distinct"]) == (4, 4)
    assert len({row["raw_output"] for row in results}) >= 3
    assert texts(loaded, rows) == [row["raw_output"] for row in results]
    assert texts(loaded, rows[::-1]) == [row["raw_output"] for row in results[::-1]]
    assert texts(loaded, samples(4, SAMPLED, seed=1)) != [row["raw_output"] for row in results]


def test_tokens_of_samples_and_budgets_are_in_the_estimate_of_a_job():
    sizes = [request_size(rows) for rows in (samples(1, SAMPLED), samples(4, SAMPLED))]
    assert [(size["new_tokens"], size["reasoning_tokens"], size["default_budgets"]) for size in sizes] == [
        (6, 0, 1), (24, 0, 4),
    ]  # fmt: skip
    size = request_size(samples(2, SAMPLED | {"think_max_toks": 100}))
    assert (size["new_tokens"], size["reasoning_tokens"], size["default_budgets"]) == (12, 200, 0)


def test_request_ids_without_settings_are_as_before_there_were_any():
    [row] = samples(1)
    assert row["gen_kwargs"] is None
    assert row["request_id"] == "4dacf8f4c9fc085502e174e86bb3dee9"


def test_several_greedy_samples_are_an_error():
    with pytest.raises(ModelError, match="repeats: decoding is greedy, so that all samples are equal; set gen_kwargs"):
        generate(reasoning.load("llama3"), reasoning.table(*samples(2)))


def with_card(loaded, directory, card=CARD):
    (directory / "generation_config.json").write_text(json.dumps(card))
    loaded.record |= {"directory": str(directory)}
    return loaded


def values_of(loaded, **row):
    decoding = prepare_prompt(loaded, reasoning.request(**row)).decoding
    return {name: value for name, value in decoding.items() if value is not None}


def test_recommended_decoding_is_that_of_the_checkpoint(tmp_path):
    loaded = with_card(reasoning.load("llama3", gen_kwargs="recommended"), tmp_path)
    assert values_of(loaded) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    with_card(loaded, tmp_path, {"eos_token_id": 1})
    with pytest.raises(
        ModelError, match=r"generation_config.json states no sampling; set the values of the model's card"
    ):
        values_of(loaded)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6')
    with pytest.raises(ModelError, match=r"generation_config.json is not valid JSON; the download may be incomplete"):
        values_of(loaded)
    with pytest.raises(ModelError, match=r"generation_config.json states no sampling"):
        values_of(with_card(loaded, tmp_path, []))


def test_reasoning_is_decoded_as_the_card_asks_and_noted_if_it_asks_for_nothing(tmp_path):
    loaded = with_card(reasoning.load("qwen3"), tmp_path)
    assert values_of(loaded)["temperature"] == 0.6
    loaded.record |= {"gen_kwargs": {"think_max_toks": 9, "top_k": 5}}
    assert values_of(loaded) == {"temperature": 0.6, "top_k": 5, "top_p": 0.95}
    loaded.record |= {"gen_kwargs": {"do_sample": False}}
    assert values_of(loaded) == {"temperature": 0.0}
    loaded.record |= {"enable_thinking": False, "gen_kwargs": None}
    assert values_of(loaded) == {"temperature": 0.0}
    greedy = reasoning.load("qwen3")
    assert values_of(greedy) == {"temperature": 0.0}
    [note] = [
        note
        for note in generate(greedy, reasoning.table(reasoning.request()))[1]["tokenizer"]["reasoning"]["notes"]
        if "greedy" in note
    ]
    assert "model cards advise against" in note


def test_settings_of_the_evaluation_precede_those_of_the_model_and_the_task():
    task = {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": 7}
    model = {"temperature": 0.7, "top_p": 0.8, "min_p": 0.1, "max_gen_toks": 9, "do_sample": True}
    loaded = reasoning.load("llama3", gen_kwargs=model)
    row = reasoning.request(decoding=task)
    decoding = decoding_of(loaded, row, is_chat=True)
    assert decoding.values == {
        "temperature": 0.7, "top_k": 50, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 0.5, "seed": 7,
    }  # fmt: skip
    assert decoding.max_new_tokens == 9
    plain = decoding_of(loaded, row, is_chat=False)  # of the model, for rendered prompts only
    assert (plain.values["temperature"], plain.max_new_tokens) == (0.5, None)
    evaluation = dict.fromkeys(REQUESTS.schema.field("gen_kwargs").type.names) | {"temperature": 0.0, "max_gen_toks": 3}
    decoding = decoding_of(loaded, row | {"gen_kwargs": evaluation}, is_chat=True)
    assert (decoding.values["temperature"], decoding.max_new_tokens) == (0.0, 3)


@pytest.mark.parametrize(
    ("kwargs", "temperature"),
    [({"do_sample": False, "temperature": 0.6}, 0.0), ({"do_sample": True}, 1.0), ({"max_gen_toks": 9}, 0.0)],
)
def test_do_sample_decides_as_in_transformers(kwargs, temperature):
    loaded = reasoning.load("llama3", gen_kwargs=kwargs)
    assert decoding_of(loaded, reasoning.request(), is_chat=True).values["temperature"] == temperature


def test_limit_of_sampling_without_sampling_is_an_error():
    with pytest.raises(ModelError, match="gen_kwargs: no effect of top_p with greedy decoding; set a temperature"):
        decoding_of(reasoning.load("llama3", gen_kwargs={"top_p": 0.9}), reasoning.request(), is_chat=True)


def test_min_p_limits_sampling():
    from vernacular.inference.generation.decode import Sampler
    from vernacular.inference.generation.prepare import PreparedPrompt

    decoding = {"temperature": 1.0, "top_k": None, "top_p": None, "repetition_penalty": None, "seed": 1, "min_p": 0.5}
    prompts = [PreparedPrompt(str(i), [1], None, 8, [], decoding) for i in range(300)]
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(300, 3)
    assert set(Sampler(prompts, 3, "cpu").sample(logits, list(range(300))).tolist()) == {0, 1}
