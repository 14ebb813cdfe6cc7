"""Models that share a base in one job: outputs equal those with a separate base, in any order."""

import itertools
import os
import shutil
import signal

import peft
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file
from support import observed, tiny, tuners
from support.engines import generate, score
from transformers import AutoModelForCausalLM
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ModelError
from vernacular.core.processes import Stopped
from vernacular.inference.job.run import run_group
from vernacular.inference.model.load import Base, load
from vernacular.inference.schema import SCORES, MemoryJournal
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.collect import write_outputs

pytestmark = pytest.mark.usefixtures("default_signals")

RECORD = {"dtype": "float32", "device": "cpu", "strategy": "auto", "chat": False, "bos": "auto"}
TABLE = tiny.score_requests([("A casa é grande", 2, 15), ("O neno come pan", 0, 15), ("As flores son azuis", 10, 19)])
EMPTY_REQUEST = dict.fromkeys(REQUESTS.schema.names) | {
    "role": "response", "kind": "generate", "prefix": "", "stop": [], "max_new_tokens": 12,
}  # fmt: skip
NAMES = ("lora", "lora pissa", "lora bias all", "lora embedding and lm_head")


@pytest.fixture(scope="module")
def models_and_outputs(tmp_path_factory):
    """Return a base with biases and tied embeddings, four adapters of it, and the outputs of each with its own base."""
    directory = tmp_path_factory.mktemp("base")
    tiny.save("qwen2", directory / "base")
    base = resolve("base", str(directory / "base"), directory / "converted") | RECORD
    records = {"base": base}
    for index, name in enumerate(NAMES):
        model = AutoModelForCausalLM.from_pretrained(directory / "base", dtype=torch.float32)
        tuners.save(tuners.CASES[name], "qwen2", model, directory / str(index), seed=index)
        records[name] = resolve_adapter(name, str(directory / str(index)), base)
    return records, {name: model_outputs(Base(base), record) for name, record in records.items()}


def model_outputs(base: Base, record: dict) -> list[list[float]]:
    with base.model(record) as loaded:
        return score(loaded, TABLE)[0]["logprobs"].to_pylist()


def requests_file(directory, table=TABLE):
    return tiny.write_requests(directory / "e.parquet", table)


def test_outputs_are_independent_of_model_order(models_and_outputs):
    records, expected_outputs = models_and_outputs
    base = Base(records["base"])
    editing_adapters = ("lora pissa", "lora bias all")
    names = list(records)  # each name comes once directly after each other name
    model_order = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            model_order += [first, second]
        model_order.append(first)
    assert set(itertools.permutations(names, 2)) <= set(itertools.pairwise(model_order))
    for name in model_order:
        assert model_outputs(base, records[name]) == expected_outputs[name]
    assert [reload["after"] for reload in base.reloads] == [
        name for name in model_order[:-1] if name in editing_adapters
    ]


def test_random_state_is_neither_used_nor_changed(models_and_outputs, tmp_path):
    base = Base(models_and_outputs[0]["base"])
    model = AutoModelForCausalLM.from_pretrained(base.record.directory, dtype=torch.float32)
    tuners.save(tuners.CASES["lora pissa_niter_4"], "qwen2", model, tmp_path / "one")  # its SVD is initialized randomly
    record = resolve_adapter("one", str(tmp_path / "one"), base.record)
    outputs_by_seed = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        rng_state = torch.get_rng_state()
        outputs_by_seed.append(model_outputs(base, record))
        assert torch.equal(torch.get_rng_state(), rng_state)
    assert outputs_by_seed[0] == outputs_by_seed[1]


def test_base_is_reloaded_after_adapter_that_edits_it(models_and_outputs, tmp_path):
    records, expected_outputs = models_and_outputs
    path = requests_file(tmp_path)
    jobs = {"there": [*records.values()], "back": [records["base"], *reversed(list(records.values())[1:])]}
    for job_name, models in jobs.items():
        statuses, failed = run_group(models, {"e": path}, tmp_path / job_name)
        assert statuses == {name: {"e": "computed"} for name in records}
        assert not any(failed.values())
        loads, reload_counts = 0, []
        for record in models:
            name = record.name
            write_outputs(record, {"e": path}, tmp_path / job_name / name, tmp_path / job_name)
            output_path = tmp_path / job_name / name / "scores" / "e.parquet"
            assert artifacts.read(output_path, SCORES)["logprobs"].to_pylist() == expected_outputs[name], (
                job_name,
                name,
            )
            metadata = artifacts.metadata(output_path)
            loads += metadata["counters"]["loads"]
            reload_counts.append(metadata["model"].get("base_loaded_again", {}).get("times", 0))
        assert loads == 3  # initially, and after each of the two adapters that edit it
        assert reload_counts == [0, 0, 0, 1, 2]
        assert metadata["model"]["base_loaded_again"]["after"] == (
            "lora bias all" if job_name == "there" else "lora pissa"
        )


def test_job_stopped_during_reload_resumes_with_identical_scores(models_and_outputs, tmp_path):
    records, expected_outputs = models_and_outputs
    path = requests_file(tmp_path)
    models = [records[name] for name in ("base", "lora pissa", "lora")]
    numbers = itertools.count(1)

    def stop_second(_):
        if next(numbers) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with observed.calls(load, stop_second), pytest.raises(Stopped):
        run_group(models, {"e": path}, tmp_path / "store")
    assert next(numbers) == 3
    statuses, failed = run_group(models, {"e": path}, tmp_path / "store")
    assert [statuses[record.name]["e"] for record in models] == ["found in the store"] * 2 + ["computed"]
    assert not any(failed.values())
    for record in models:
        write_outputs(record, {"e": path}, tmp_path / record.name, tmp_path / "store")
        output_path = tmp_path / record.name / "scores" / "e.parquet"
        assert artifacts.read(output_path, SCORES)["logprobs"].to_pylist() == expected_outputs[record.name]


def test_base_changed_by_evaluation_is_reloaded(models_and_outputs):
    records, expected_outputs = models_and_outputs
    base = Base(records["base"])
    with base.model(records["base"]) as loaded:
        loaded.model.get_input_embeddings().weight.data[7] *= -1
    assert model_outputs(base, records["lora"]) == expected_outputs["lora"]
    assert base.reloads == [{"after": "base", "changed": 2, "first": "lm_head.weight"}]  # the head is tied to it


def test_partially_applied_adapter_does_not_affect_others(models_and_outputs, tmp_path):
    records, expected_outputs = models_and_outputs
    shutil.copytree(records["lora bias all"].adapter.directory, tmp_path / "half")
    weights = load_file(tmp_path / "half" / "adapter_model.safetensors")
    weights["base_model.model.model.layers.0.self_attn.zz.lora_A.weight"] = torch.zeros(4, 32)
    save_file(weights, tmp_path / "half" / "adapter_model.safetensors")
    partial_adapter = resolve_adapter("half", str(tmp_path / "half"), records["base"])
    base = Base(records["base"])
    with pytest.raises(ModelError, match="1 of its weights"):
        model_outputs(base, partial_adapter)
    assert model_outputs(base, records["base"]) == expected_outputs["base"]
    assert [reload["after"] for reload in base.reloads] == ["half"]


def test_files_changed_during_job_fail_later_models(models_and_outputs, tmp_path):
    records, expected_outputs = models_and_outputs
    shutil.copytree(records["base"].directory, tmp_path / "base")
    moved_records = {name: record | {"directory": str(tmp_path / "base")} for name, record in records.items()}
    base = Base(moved_records["base"])
    assert model_outputs(base, moved_records["lora pissa"]) == expected_outputs["lora pissa"]
    weights = load_file(tmp_path / "base" / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"changed while the job ran: 1 of its tensors \(model.norm.weight\) differ"):
        model_outputs(base, moved_records["lora"])
    assert base.loaded is None
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(ModelError, match="directory not found"):
        model_outputs(base, moved_records["lora"])


def test_unshared_base_rejects_second_model(models_and_outputs):
    records, _ = models_and_outputs
    base = Base(records["base"], shared=False)
    model_outputs(base, records["lora"])
    with pytest.raises(ValueError, match="loaded for a single model"):
        model_outputs(base, records["base"])


@pytest.mark.parametrize("name", ["lora pissa", "lora embedding and lm_head"])
def test_generated_texts_match_peft_generate(models_and_outputs, name):
    records, _ = models_and_outputs
    prompts = ["A casa é grande e", "O neno come", "Question: What is"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(records["base"].directory, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(model, records[name].adapter.directory).eval()
    base = Base(records["base"])
    model_outputs(base, records["lora bias all"])
    with base.model(records[name]) as loaded:
        rows = [
            {**EMPTY_REQUEST, "request_id": f"r{i}", "item_id": "i", "text": text} for i, text in enumerate(prompts)
        ]
        table, _ = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema), journal=MemoryJournal())
        for prompt, raw_output in zip(prompts, table["raw_output"].to_pylist(), strict=True):
            ids = loaded.tokenizer(prompt, return_tensors="pt")["input_ids"]
            output_ids = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
            assert raw_output == loaded.tokenizer.decode(output_ids[0], skip_special_tokens=True)[len(prompt) :]


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
    base_outputs = model_outputs(base, record)
    with base.model(resolve_adapter("one", str(tmp_path / "one"), record)) as loaded:
        assert loaded.dtype is torch.bfloat16
        engines = [score(loaded, TABLE, strategy=strategy)[1]["engine"] for strategy in ("plain", "prefix", "tree")]
        assert [engine["strategy"] for engine in engines] == ["plain", "prefix", "tree"]
    assert model_outputs(base, record) == base_outputs
    assert not base.reloads
