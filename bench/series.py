"""Measure planning, tables and report of a run with many checkpoints: processor time, peak memory and size.

    python bench/series.py WORK_DIRECTORY [--checkpoints 50 100 200] [--evaluations 20] [--items 100] [--series 2]

One checkpoint of a tiny model is evaluated by all stages. The results of the others are copies of its files in which
other items are correct, as if the model learned; inference is not measured. See docs/resources.md.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml
from vernacular.config import dependencies as specs
from vernacular.config import load as config
from vernacular.core import artifacts
from vernacular.core.fields import to_json
from vernacular.core.model_record import read_record, write_record
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import METRICS, TASK_RESULTS, TOKENS

ROOT = Path(__file__).resolve().parents[1]
WORDS = ["gato", "neno", "can", "lobo", "home", "amigo", "mestre", "rato", "paxaro", "cabalo"]
CATEGORIES = ("agreement", "order", "negation")
STEPS_PER_CHECKPOINT = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, help="a new directory")
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--items", type=int, default=100, help="of each evaluation")
    parser.add_argument("--series", type=int, default=2)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True)
    os.chdir(arguments.directory)
    write_tasks(arguments.evaluations, arguments.items)
    # in a process of its own: the memory of this one counts as that of those it starts
    process = multiprocessing.get_context("spawn").Process(target=save_model, args=(Path("model"),))
    process.start()
    process.join()
    print("| checkpoints × evaluations | stage | processor seconds | peak MB | written |")
    print("|---|---|---|---|---|")
    for count in arguments.checkpoints:
        run(count // arguments.series, arguments.series, arguments.evaluations)


def run(count: int, n_series: int, n_evaluations: int) -> None:
    """Measure `n_series` series of `count` checkpoints each, in a directory of their own."""
    directory = Path(f"{count * n_series}x{n_evaluations}")
    directory.mkdir()
    os.chdir(directory)
    write_config(count, n_series, n_evaluations)
    label = f"{count * n_series} × {n_evaluations}"
    cfg = config.load(["config.yaml"])
    command = [sys.executable, "-m", "snakemake", "-n", "--quiet", "all", "--snakefile", str(ROOT / "Snakefile")]
    report(label, "plan", measure([*command, "--workflow-profile", str(ROOT / "profiles" / "default")]))
    write_results(cfg)
    names = list(cfg.models)
    common = {"results": "results", "changes": "results/comparisons"}
    metrics = [f"results/{name}/metrics.parquet" for name in names]
    models = [f"resources/models/{name}.json" for name in names]
    stages = {
        "compare": {"spec": specs.comparisons_spec(cfg), **common, "items_dir": "resources/items"},
        "curves": {"spec": specs.curves_spec(cfg), "results": "results"},
        "summary": {"spec": specs.summary_spec(cfg), "metrics": metrics, "config": []},
        "report": {"spec": specs.report_spec(cfg), "models": models, **common},
    }
    for stage, fields in stages.items():
        fields["out"], before = f"results/{'report' if stage == 'report' else 'summary'}", size(Path("results"))
        report(label, stage, measure(vernacular(stage), fields), size(Path("results")) - before)
    os.chdir("..")


def vernacular(stage: str) -> list[str]:
    return [sys.executable, "-m", "vernacular", stage]


def measure(command: list[str], fields: dict | None = None) -> tuple[float, float]:
    """Run a command that reads `fields`; return (processor seconds, peak MB) of it and its child processes."""
    with open("log.txt", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        process.stdin.write(json.dumps(to_json(fields), sort_keys=True).encode())
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)[:200]}: failed; see {Path('log.txt').resolve()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def report(label: str, stage: str, measured: tuple[float, float], n_bytes: int | None = None) -> None:
    written = "" if n_bytes is None else f"{n_bytes / 1e6:.1f} MB"
    print(f"| {label} | {stage} | {measured[0]:.1f} | {measured[1]:.0f} | {written} |", flush=True)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def write_tasks(count: int, n_items: int) -> None:
    """Write `count` tasks of minimal pairs."""
    Path("tasks").mkdir()
    for number in range(count):
        rows = []
        for i in range(n_items):
            words = [WORDS[(i + shift * number) % len(WORDS)] for shift in (1, 3, 7)]
            good = f"O {words[0]} ve o {words[1]} e o {words[2]} {i}."
            bad = good.replace(" ve ", " ven ")
            rows.append({"good": good, "bad": bad, "category": CATEGORIES[i % len(CATEGORIES)]})
        Path(f"tasks/t{number:02}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        task = {
            "task": f"t{number:02}", "protocols": ["minimal_pair"], "item_type": "pair",
            "columns": {"good": "good", "bad": "bad", "category": "category"},
            "languages": {"gl": {"source": {"file": f"t{number:02}.jsonl"}}},
        }  # fmt: skip
        Path(f"tasks/t{number:02}.yaml").write_text(yaml.safe_dump(task))


def save_model(directory: Path) -> None:
    """Write a random model with a vocabulary of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*alphabet, "<s>"])}, merges=[]))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="<s>")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def write_config(count: int, n_series: int, n_evaluations: int) -> None:
    """Write a config of local series, and the files of their checkpoints; the weights are different."""
    entries = {}
    for number in range(n_series):
        name = f"series{number}"
        entries[name] = {"series": f"./{name}/checkpoint-*", "dtype": "float32", "device": "cpu"}
        for k in range(1, count + 1):
            directory = Path(name, f"checkpoint-{STEPS_PER_CHECKPOINT * k}")
            shutil.copytree("../model", directory)
    tasks = [{"task": f"t{number:02}", "data": "hub"} for number in range(n_evaluations)]
    content = {"models": entries, "tasks": ["../tasks"], "evaluations": tasks}
    Path("config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def write_results(cfg: config.Config) -> None:
    """Evaluate the first checkpoint, and write results of the others from its files."""
    first, *others = cfg.models
    requests = [f"results/requests/{name}.parquet" for name in cfg.evaluations]
    record, status = f"resources/models/{first}.json", f"results/inference_status/{first}/1of1.json"
    inference = specs.inference_spec(cfg, [first])
    inputs = {"items_dir": "resources/items", "requests_dir": "results/requests"}
    outputs = {"spec": inference, "requests": requests, "store": "results/store"}
    stages = {
        "items": {"spec": specs.items_spec(cfg), "out": "resources/items"},
        "requests": {"spec": specs.requests_spec(cfg), "items_dir": "resources/items", "out": "results/requests"},
        "model": {"spec": specs.model_spec(cfg, first), "out": record},
        "infer": {**outputs, "models": [record], "out": status},
        "collect": {**outputs, "model": record, "status": [status], "out": f"results/{first}"},
        "metrics": {"spec": specs.metrics_spec(cfg, first), "model": record, **inputs, "out": f"results/{first}"},
    }
    for stage, fields in stages.items():
        measure(vernacular(stage), fields)
    template = Template(first, cfg)
    for model in [*others, first]:
        template.write(model, cfg.checkpoints[model].step / max(c.step for c in cfg.checkpoints.values()))


class Template:
    """The results of one checkpoint, from which those of others are written."""

    def __init__(self, model: str, cfg: config.Config):
        self.model, directory = model, Path("results", model)
        self.record = read_record(f"resources/models/{model}.json")
        self.rows, self.metadata, self.scores = {}, {}, {}
        for name in cfg.evaluations:
            path = directory / "tasks" / f"{name}.parquet"
            self.rows[name] = artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
            self.metadata[name] = artifacts.metadata(path)
            path = directory / "scores" / f"{name}.parquet"
            self.scores[name] = artifacts.read(path, SCORES), artifacts.metadata(path)
        self.values = artifacts.read(directory / "metrics.parquet", METRICS).to_pylist()
        self.values_metadata = artifacts.metadata(directory / "metrics.parquet")
        self.tokens = artifacts.read(directory / "tokens.parquet", TOKENS)
        self.tokens_metadata = artifacts.metadata(directory / "tokens.parquet")

    def write(self, model: str, progress: float) -> None:
        """Write the results of a checkpoint after this share of the training."""
        directory, shares = Path("results", model), {}
        for number, (name, rows) in enumerate(self.rows.items()):
            order = np.random.default_rng(number).permutation(len(rows))  # in which the items are learned
            noise = 0.02 * np.sin(97 * progress + number + sum(map(ord, model.partition(".")[0])))
            share = 0.5 + 0.4 * (1 - np.exp(-4 * progress)) * (number % 4) / 3 + noise
            learned = [
                row | {"correct": c, "metrics": row["metrics"] | {"accuracy": float(c)}, "predicted_indices": [1 - c]}
                for row, c in zip(rows, (order < share * len(rows)).tolist(), strict=True)
            ]
            artifacts.write(directory / "tasks" / f"{name}.parquet", TASK_RESULTS, learned, self.metadata[name])
            artifacts.write(directory / "scores" / f"{name}.parquet", SCORES, *self.scores[name])
            for category in ("", *CATEGORIES):
                selected = [row["correct"] for row in learned if category in ("", row["category"])]
                shares[name, category] = float(np.mean(selected))
        values = [row | {"model": model} for row in self.values]
        for row in values:
            if row["metric"] == "accuracy":
                share = shares[row["evaluation"], row["category"] or ""]
                row |= {"value": share, "ci_low": max(0.0, share - 0.1), "ci_high": min(1.0, share + 0.1)}
        record = self.record | {"name": model, "fingerprint": f"{model:0>40}"}
        metadata = self.values_metadata | {"model": model, "record": self.values_metadata["record"] | record}
        artifacts.write(directory / "metrics.parquet", METRICS, pa.Table.from_pylist(values, METRICS.schema), metadata)
        artifacts.write(directory / "tokens.parquet", TOKENS, self.tokens, self.tokens_metadata | {"model": model})
        write_record(f"resources/models/{model}.json", record)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"\n{time.perf_counter() - started:.0f} s in all")
