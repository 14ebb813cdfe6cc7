"""Models that use one base in one job: whatever the order, each gives what it gives alone."""

import itertools
import os
import shutil
import signal

import peft
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny, tuners
from transformers import AutoModelForCausalLM
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ModelError
from vernacular.core.processes import Stopped
from vernacular.inference.generation.generate import generate
from vernacular.inference.job.collect import lay_out
from vernacular.inference.job.run import run_group
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.model import base as base_module
from vernacular.inference.model.base import Base
from vernacular.inference.model.load import load as real_load
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring.score import score
from vernacular.protocols.schema import REQUESTS

pytestmark = pytest.mark.usefixtures("heard_signals")

RECORD = {"dtype": "float32", "device": "cpu", "strategy": "auto", "chat": False, "bos": "auto"}
TABLE = tiny.score_requests([("A casa é grande", 2, 15), ("O neno come pan", 0, 15), ("As flores son azuis", 10, 19)])
BLANK = dict.fromkeys(REQUESTS.schema.names) | {
    "role": "response", "kind": "generate", "prefix": "", "stop": [], "max_new_tokens": 12,
}  # fmt: skip
NAMES = ("lora", "lora pissa", "lora bias all", "lora embedding and lm_head")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A base with biases and tied embeddings, four adapters of it, and what each gives with a base of its own."""
    folder = tmp_path_factory.mktemp("base")
    tiny.save("qwen2", folder / "base")
    base = resolve("base", str(folder / "base"), folder / "converted") | RECORD
    records = {"base": base}
    for number, name in enumerate(NAMES):
        model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
        tuners.save(tuners.CASES[name], "qwen2", model, folder / str(number), seed=number)
        records[name] = resolve_adapter(name, str(folder / str(number)), base)
    return records, {name: outputs(Base(base), record) for name, record in records.items()}


def outputs(base: Base, record: dict) -> list[list[float]]:
    with base.model(record) as loaded:
        return score(loaded, TABLE)[0]["logprobs"].to_pylist()


def requests_file(folder, table=TABLE):
    note = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": "f"}
    return artifacts.write(folder / "e.parquet", REQUESTS, table, note)


def test_the_order_of_models_does_not_matter(place):
    records, alone = place
    base = Base(records["base"])
    edit = ("lora pissa", "lora bias all")
    users = [name for pair in itertools.permutations(records, 2) for name in pair]
    for name in users:
        assert outputs(base, records[name]) == alone[name]
    assert [reload["after"] for reload in base.reloads] == [name for name in users[:-1] if name in edit]


def test_no_random_state_is_taken_or_left(place, tmp_path):
    base = Base(place[0]["base"])
    model = AutoModelForCausalLM.from_pretrained(base.record["folder"], dtype=torch.float32)
    tuners.save(tuners.CASES["lora pissa_niter_4"], "qwen2", model, tmp_path / "one")  # its SVD begins at random
    record = resolve_adapter("one", str(tmp_path / "one"), base.record)
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        expected = torch.get_rng_state()
        found.append(outputs(base, record))
        assert torch.equal(torch.get_rng_state(), expected)
    assert found[0] == found[1]


def test_a_job_loads_the_base_again_after_an_adapter_that_edits_it_and_records_that(place, tmp_path):
    records, alone = place
    path = requests_file(tmp_path)
    jobs = {"there": [*records.values()], "back": [records["base"], *reversed(list(records.values())[1:])]}
    for job, models in jobs.items():
        done, failed = run_group(models, {"e": path}, tmp_path / job)
        assert done == {name: {"e": "computed"} for name in records}
        assert not any(failed.values())
        loads, times = 0, []
        for record in models:
            name = record["name"]
            lay_out(record, {"e": path}, tmp_path / job / name, tmp_path / job)
            file = tmp_path / job / name / "scores" / "e.parquet"
            assert artifacts.read(file, SCORES)["logprobs"].to_pylist() == alone[name], (job, name)
            metadata = artifacts.metadata(file)
            loads += metadata["counters"]["loads"]
            times.append(metadata["model"].get("base_loaded_again", {}).get("times", 0))
        assert loads == 3  # once, and after each of the two that edit it
        assert times == [0, 0, 0, 1, 2]
        assert metadata["model"]["base_loaded_again"]["after"] == ("lora bias all" if job == "there" else "lora pissa")


def test_a_job_that_is_stopped_while_the_base_is_loaded_again_goes_on_with_the_same_numbers(
    place, tmp_path, monkeypatch
):
    records, alone = place
    path = requests_file(tmp_path)
    models = [records[name] for name in ("base", "lora pissa", "lora")]
    loads = []

    def load(*given, **more):
        loads.append(1)
        if len(loads) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real_load(*given, **more)

    monkeypatch.setattr(base_module, "load", load)
    with pytest.raises(Stopped):
        run_group(models, {"e": path}, tmp_path / "store")
    assert len(loads) == 2
    done, failed = run_group(models, {"e": path}, tmp_path / "store")
    assert [done[record["name"]]["e"] for record in models] == ["found in the store"] * 2 + ["computed"]
    assert not any(failed.values())
    for record in models:
        lay_out(record, {"e": path}, tmp_path / record["name"], tmp_path / "store")
        file = tmp_path / record["name"] / "scores" / "e.parquet"
        assert artifacts.read(file, SCORES)["logprobs"].to_pylist() == alone[record["name"]]


def test_a_base_that_its_own_evaluation_changed_is_loaded_again_before_an_adapter(place):
    records, alone = place
    base = Base(records["base"])
    with base.model(records["base"]) as loaded:
        loaded.model.get_input_embeddings().weight.data[7] *= -1
    assert outputs(base, records["lora"]) == alone["lora"]
    assert base.reloads == [{"after": "base", "changed": 2, "first": "lm_head.weight"}]  # the head is tied to it


def test_an_adapter_that_fails_halfway_leaves_the_others_as_they_are(place, tmp_path):
    records, alone = place
    shutil.copytree(records["lora bias all"]["adapter"]["folder"], tmp_path / "half")
    weights = load_file(tmp_path / "half" / "adapter_model.safetensors")
    weights["base_model.model.model.layers.0.self_attn.zz.lora_A.weight"] = torch.zeros(4, 32)
    save_file(weights, tmp_path / "half" / "adapter_model.safetensors")
    half = resolve_adapter("half", str(tmp_path / "half"), records["base"])
    base = Base(records["base"])
    with pytest.raises(ModelError, match="1 of its weights"):
        outputs(base, half)
    assert outputs(base, records["base"]) == alone["base"]
    assert [reload["after"] for reload in base.reloads] == ["half"]


def test_files_that_change_during_a_job_fail_the_models_after_and_no_number_is_wrong(place, tmp_path):
    records, alone = place
    shutil.copytree(records["base"]["folder"], tmp_path / "base")
    moved = {name: {**record, "folder": str(tmp_path / "base")} for name, record in records.items()}
    base = Base(moved["base"])
    assert outputs(base, moved["lora pissa"]) == alone["lora pissa"]
    weights = load_file(tmp_path / "base" / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"changed while the job ran: 1 of its tensors \(model.norm.weight, …\) differ"
    ):
        outputs(base, moved["lora"])
    assert base.loaded is None
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(ModelError, match="directory not found"):
        outputs(base, moved["lora"])


def test_a_base_for_one_model_is_not_verified_and_not_given_to_another(place):
    records, _ = place
    base = Base(records["base"], shared=False)
    outputs(base, records["lora"])
    with pytest.raises(ValueError, match="loaded for a single model"):
        outputs(base, records["base"])


@pytest.mark.parametrize("name", ["lora pissa", "lora embedding and lm_head"])
def test_generated_texts_are_those_of_pefts_own_generate(place, name):
    records, _ = place
    prompts = ["A casa é grande e", "O neno come", "Question: What is"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(records["base"]["folder"], dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(model, records[name]["adapter"]["folder"]).eval()
    base = Base(records["base"])
    outputs(base, records["lora bias all"])
    with base.model(records[name]) as loaded:
        rows = [{**BLANK, "request_id": f"r{i}", "item_id": "i", "text": text} for i, text in enumerate(prompts)]
        table, _ = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema), journal=MemoryJournal())
        for prompt, raw in zip(prompts, table["raw_output"].to_pylist(), strict=True):
            ids = loaded.tokenizer(prompt, return_tensors="pt")["input_ids"]
            found = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
            assert raw == loaded.tokenizer.decode(found[0], skip_special_tokens=True)[len(prompt) :]


@pytest.mark.parametrize(
    "name", ["lora embedding", "lora trainable_token_indices", "lora saved embedding", "trainable tokens"]
)
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_half_precision_with_changed_embeddings(tmp_path, arch, name):
    tiny.save(arch, tmp_path / "base")
    record = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | RECORD | {"dtype": "bfloat16"}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    tuners.save(tuners.CASES[name], arch, model, tmp_path / "one")
    base = Base(record)
    before = outputs(base, record)
    with base.model(resolve_adapter("one", str(tmp_path / "one"), record)) as loaded:
        assert loaded.dtype is torch.bfloat16
        engines = [score(loaded, TABLE, strategy=strategy)[1]["engine"] for strategy in ("plain", "prefix", "tree")]
        assert [engine["strategy"] for engine in engines] == ["plain", "prefix", "tree"]
    assert outputs(base, record) == before
    assert not base.reloads
