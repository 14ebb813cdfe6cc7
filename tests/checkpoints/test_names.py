"""Positions in training that names of checkpoints state, by the conventions of the tools that write them."""

import pytest
from vernacular.config.series import natural_key, parse_name

B = 10**9


@pytest.mark.parametrize(
    ("name", "step", "tokens", "phase"),
    [
        ("step0", 0, None, ""),  # Pythia
        ("step143000", 143000, None, ""),
        ("step1000-tokens4B", 1000, 4 * B, ""),  # OLMo
        ("step500-tokens3M", 500, 3 * 10**6, ""),
        ("stage1-step1610000-tokens3377B", 1610000, 3377 * B, "stage1"),  # OLMo 2
        ("stage2-ingredient3-step21000-tokens45B", 21000, 45 * B, "stage2-ingredient3"),
        ("step1250-seed-default", 1250, None, "seed-default"),  # DataDecide
        ("step-240000", 240000, None, ""),  # SmolLM2
        ("stage1-step-40000", 40000, None, "stage1"),  # SmolLM3
        ("step-001000-2BT", 1000, 2 * B, ""),  # FineWeb
        ("global_step143000", 143000, None, ""),  # BLOOM, GPT-NeoX
        ("240b_tokens", None, 240 * B, ""),  # RedPajama
        ("1.5T-tokens", None, 1500 * B, ""),
        ("pretrain_iter_0373000", 373000, None, "pretrain"),  # OpenCoder
        ("anneal_iter_0001000", 1000, None, "anneal"),
        ("checkpoint-500", 500, None, ""),  # Trainer
        ("./out/checkpoint-1000/", 1000, None, ""),
        ("step_100", 100, None, ""),  # torchtune
        ("hf/iter_0001000", 1000, None, ""),  # Megatron
        ("epoch=3-step=1000", 1000, None, ""),  # Lightning
    ],
)
def test_steps_and_tokens_are_parsed_from_names(name, step, tokens, phase):
    position = parse_name(name)
    assert (position.step, position.tokens, position.phase) == (step, tokens, phase)


def test_babylm_states_words_and_nemo_states_samples():
    assert parse_name("chck_1M").words == 10**6
    assert parse_name("chck_1000M").words == 10**9
    assert parse_name("chck_10M").step is None
    nemo = parse_name("megatron_gpt--val_loss=2.34-step=1000-consumed_samples=8000.0-last")
    assert (nemo.step, nemo.samples, nemo.tokens, nemo.phase) == (1000, 8000, None, "")


@pytest.mark.parametrize(
    "name", ["main", "ckpt_000", "ckpt_356", "epoch_0", "final", "checkpoint-10k", "laststep", "v2"]
)
def test_names_without_a_position_are_not_guessed(name):
    assert not parse_name(name).is_known


def test_numbers_inside_phases_are_ordered_by_value():
    assert sorted(["stage10", "stage2", "", "seed-a"], key=natural_key) == ["", "seed-a", "stage2", "stage10"]


@pytest.mark.parametrize("name", ["step" + "9" * 19, "step" + "9" * 5000, "9" * 15 + "T_tokens", "1" * 400 + ".5BT"])
def test_number_that_no_column_can_hold_is_no_position(name):
    assert not parse_name(name).is_known
