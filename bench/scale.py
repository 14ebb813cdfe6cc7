"""Measure every stage of a run at the sizes of real datasets: seconds, peak memory and bytes written.

    python bench/scale.py WORK_DIRECTORY [--sets blimp mmlu] [--fractions 0.1 0.2 1] [--models 12] [--browser]

The rows are synthetic, in the shapes of the real datasets (SETS); the runs are Snakemake's, with the rules, files and
commands of any run. Prompt lines exist for nine languages, so that Belebele's 122 languages are 122 tasks here.

Inference is real, with a random model of a few hidden units, for the first model. For each of the others, the first
model's outputs are written to the store, by the project's own writer, under the key of that model (whose weights have
another seed): log-probabilities with random noise, generated texts exchanged between items. Its job finds them there,
and all later stages compute as usual. With `--derive results`, for many models, the files of `collect` and `metrics`
are those of the first model, too, except that a share of the items have the outcomes of other items; `compare` and all
later stages compute as usual, with the same numbers of values, items and bytes. `server` starts a server of the tests
(a tiny model that answers over HTTP). `lm_eval` needs the environment of `make lm-eval` (--lm-eval PYTHON). `--browser`
needs Chromium and selenium.

Seconds are those of the wall clock, with one thread per stage; memory is the maximum resident set of a process. A row
of several models is the sum of their seconds, and the largest memory of one of them.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORDS_IN_VOCABULARY = 4_000
SHOTS = 285  # candidates for few-shot examples, as in MMLU
NOISE = 0.5  # nats, standard deviation of a token's log-probability between models
EXCHANGED = 0.3  # share of the generated texts, or of the derived outcomes, that differ between models

# set: number of items, content of the task file, entry of the config; categories as in the real datasets: 57 subjects
# of MMLU, 67 paradigms of BLiMP, 15 tasks of a group of lm-eval, none elsewhere
_QUESTION = {"columns": {"question": "question", "choices": "options", "gold": "gold", "gold_format": "index"},
             "item_type": "question"}  # fmt: skip
_SUBJECTS = {**_QUESTION, "columns": {**_QUESTION["columns"], "category": "category"}}
_PAIR = {"columns": {"good": "good", "bad": "bad", "category": "category"}, "item_type": "pair"}
_SENTENCE = {"columns": {"context": "text", "label": "label"}, "item_type": "sentence"}
SETS = {
    "mmlu": (14_042, _SUBJECTS, {"protocols": ["letters", "options"], "shots": [0, 5]}),
    "blimp": (67_000, _PAIR, {"protocols": ["minimal_pair"]}),
    "pairs": (100_000, _PAIR, {"protocols": ["minimal_pair"]}),
    "forms": (20_000, {"columns": {"context": "text", "good": "good", "bad": "bad", "cluster": "cluster"},
                       "item_type": "target_word"}, {"protocols": ["target_word"]}),
    "cola": (10_000, _SENTENCE, {"protocols": ["acceptability"]}),
    "cloze": (5_000, {"columns": {"context": "text", "choices": "options", "gold": "gold", "gold_format": "index"},
                      "item_type": "cloze"}, {"protocols": ["cloze"]}),
    "flores": (1_012, {"columns": {"context": "text"}, "item_type": "text"}, {"protocols": ["text"]}),
    "belebele": (900, {**_QUESTION, "columns": {**_QUESTION["columns"], "context": "text", "cluster": "cluster"},
                       "item_type": "passage"}, {"protocols": ["letters"]}),
    "generation": (5_000, _QUESTION, {"protocols": ["generation"]}),
    "lm_eval": (15_000, None, {}),
    "server": (20_000, _SENTENCE, {"protocols": ["acceptability"]}),
}  # fmt: skip
DEFAULT_SETS = [name for name in SETS if name not in ("pairs", "server")]  # a server is a run of its own
BELEBELE_TASKS, LM_EVAL_TASKS = 122, 15

WRAPPER = """#!{python} -IS
# runs a stage, and notes its seconds and the largest memory of its processes
import json, os, sys, time
arguments, started = sys.argv[1:], time.time()
if not arguments[0].endswith("stage.py"):
    os.execv({python!r}, [{python!r}, *arguments])
pid = os.posix_spawn({target!r}, [{target!r}, *arguments], os.environ)
_, status, usage = os.wait4(pid, 0)
row = {{"stage": arguments[1], "seconds": time.time() - started, "mb": usage.ru_maxrss / 1024,
       "cpu": usage.ru_utime + usage.ru_stime}}
with open({log!r}, "a") as log:
    log.write(json.dumps(row) + chr(10))
sys.exit(os.waitstatus_to_exitcode(status) and 1)
"""
WRITTEN = {  # files of a stage, below the directory of the run
    "items": ["resources/items/*"], "requests": ["results/requests/*"], "infer": ["results/store/**/*"],
    "collect": ["results/*/scores/*", "results/*/generations/*"], "similarity": ["results/*/similarity/*"],
    "lm-eval-metrics": ["results/*/lm_eval/*"], "export": ["results/exports/**/*"],
    "metrics": ["results/*/tasks/*", "results/*/metrics.parquet", "results/*/tokens.parquet"],
    "compare": ["results/summary/comparisons.*", "results/summary/overall.*"],
    "changes": ["results/comparisons/**/*"],
    "summary": ["results/summary/*"], "report": ["results/report/**/*"], "publish": ["publications/first/**/*"],
    "join": ["joined/*"],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, help="a new directory")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=DEFAULT_SETS, help="evaluated in one run")
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0], help="of the items; one run for each")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--derive", choices=("outputs", "results"), default="outputs", help="of other models")
    parser.add_argument("--lm-eval", type=Path, default=ROOT / ".lm-eval" / "bin" / "python", help="its interpreter")
    parser.add_argument("--browser", action="store_true", help="measure how long the report takes to open")
    arguments = parser.parse_args()
    if "server" in arguments.sets and (len(arguments.sets) > 1 or arguments.models > 1):
        parser.error("server: a run of its own, with --models 1.")
    arguments.directory.mkdir(parents=True)
    os.chdir(arguments.directory)
    print("| sets | fraction | models | stage | processes | seconds | CPU seconds | peak MB | MB written |")
    print("|---|---|---|---|---|---|---|---|---|")
    for fraction in arguments.fractions:
        directory = Path(f"{fraction:g}")
        directory.mkdir()
        os.chdir(directory)
        run(arguments, fraction)
        os.chdir("..")


def run(arguments: argparse.Namespace, fraction: float) -> None:
    """Measure one run in the current directory."""
    models = ["served"] if "server" in arguments.sets else [f"m{k:02}" for k in range(1, arguments.models + 1)]
    # in processes of their own: torch and the rows leave the memory with them
    address = start_server() if "server" in arguments.sets else None
    in_process(write_inputs, arguments.sets, fraction, models, arguments.lm_eval, address)
    label = f"{' '.join(arguments.sets)} | {fraction:g} | {len(models)}"
    for name, target in (("python", sys.executable), ("lm_eval_python", str(arguments.lm_eval))):
        write_wrapper(Path("environment/bin", name), target)
    records = [f"resources/models/{name}.json" for name in models]
    if arguments.derive == "results":
        snakemake(*records, *(f"results/{models[0]}/{name}.parquet" for name in ("metrics", "tokens")))
        in_process(derive_results, models)
        snakemake("results/report/.vernacular-complete", "--allowed-rules", "compare", "changes", "summary", "report")
    else:
        snakemake(*records, *(f"results/{models[0]}/{kind}" for kind in collected(arguments)))
        if len(models) > 1:
            in_process(derive_outputs, models)
        snakemake("all")
    Path("publications").mkdir()
    stage("publish", "results", "publications/first")
    Path("publications/second").symlink_to("first")
    stage("join", "publications", "joined")
    for row in table():
        print(f"| {label} | {row}", flush=True)
    if arguments.browser:
        seconds, size = seconds_to_open(Path("results/report/index.html"))
        print(f"| {label} | open the report | 1 | {seconds:.1f} | | | {size:.2f} loaded |")


def collected(arguments: argparse.Namespace) -> list[str]:
    """Return the files of the first model's outputs, as many as needed to run the rule that writes them all."""
    from vernacular.config import load as config
    from vernacular.config.load import SCORED

    first = next(iter(config.load(["config.yaml"]).evaluations.values()))
    return [f"{'scores' if first.protocol in SCORED else 'generations'}/{first.id}.parquet"]


def in_process(function, *arguments) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__} failed.")


def write_wrapper(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = str(Path("stages.jsonl").absolute())
    path.write_text(WRAPPER.format(python=os.path.realpath(sys.executable), target=target, log=log))
    path.chmod(0o755)


def snakemake(*targets: str) -> None:
    command = [sys.executable, "-m", "snakemake", "-c1", "--snakefile", str(ROOT / "Snakefile"), *targets]
    execute([*command, "--workflow-profile", str(ROOT / "profiles" / "default")])


def stage(*arguments: str) -> None:
    execute(["environment/bin/python", str(ROOT / "workflow" / "stage.py"), *arguments])


def execute(command: list[str]) -> None:
    environment = os.environ | {"PATH": f"{Path('environment/bin').absolute()}:{os.environ['PATH']}"}
    with open("log.txt", "ab") as log:
        if subprocess.run(command, stdout=log, stderr=log, env=environment).returncode:
            raise SystemExit(f"{' '.join(command)[:200]}: failed; see {Path('log.txt').absolute()}")


def table() -> list[str]:
    """Return a row per stage, in the order in which they ran."""
    rows: dict[str, list[dict]] = {}
    for line in Path("stages.jsonl").read_text().splitlines():
        rows.setdefault(json.loads(line)["stage"], []).append(json.loads(line))
    return [
        f"{name} | {len(runs)} | {sum(run['seconds'] for run in runs):.1f} | {sum(run['cpu'] for run in runs):.1f} | "
        f"{max(run['mb'] for run in runs):.0f} | {written(name):.1f} |"
        for name, runs in rows.items()
    ]


def written(name: str) -> float:
    """Return the size of a stage's files, in MB."""
    paths = {path for pattern in WRITTEN.get(name, ()) for path in Path(".").glob(pattern) if path.is_file()}
    return sum(path.stat().st_size for path in paths) / 1e6


def seconds_to_open(page: Path) -> tuple[float, float]:
    """Return the seconds from the request of the report to its complete leaderboard in Chromium, and the MB loaded."""
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        started = time.perf_counter()
        driver.get(f"{page.absolute().as_uri()}#/leaderboard")
        WebDriverWait(driver, 120, 0.02).until(lambda d: d.find_elements(By.CSS_SELECTOR, ".board tbody tr"))
        seconds = time.perf_counter() - started
        script = "return [...document.querySelectorAll('script[src], link[href]')].map(node => node.src || node.href)"
        addresses = [name for name in driver.execute_script(script) if name.startswith("file:")]
        files = [page, page.parent / "data" / "index.js", *(Path(unquote(urlsplit(name).path)) for name in addresses)]
        return seconds, sum(file.stat().st_size for file in files) / 1e6
    finally:
        driver.quit()


# ----- models and outputs --------------------------------------------------------------------------------------------


def write_inputs(sets: list[str], fraction: float, models: list[str], lm_eval: Path, address: str | None) -> None:
    """Write task files, rows, models and the config."""
    Path("tasks").mkdir()
    entries = [entry for name in sets for entry in write_set(name, fraction)]
    content = {"tasks": ["./tasks"], "evaluations": entries, "comparisons": []}
    if "lm_eval" in sets:
        Path("environment").mkdir()
        for name in ("vernacular_index.json", "lib"):  # the paths in the index are relative to it
            Path("environment", name).symlink_to(lm_eval.parents[1] / name)
        content["lm_eval"] = {"python": "./environment/bin/lm_eval_python", "tasks": ["./lm_eval_tasks"]}
    if address:
        content["models"] = {models[0]: {"source": address, "concurrency": 4, "tokenizer": "./models/tokenizer"}}
    else:
        settings = {"dtype": "float32", "device": "cpu"}
        content["models"] = {name: {"source": f"./models/{name}", **settings} for name in models}
        for seed, name in enumerate(models):
            save_model(Path("models", name), seed)
        if len(models) > 1:
            content["comparisons"] = [{"baseline": models[0], "candidate": "all"}]
    if "generation" in sets:
        save_encoder(Path("models/encoder"))
        content["similarity"] = {"encoders": {"default": "./models/encoder"}}
    Path("config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def save_model(directory: Path, seed: int) -> None:
    """Write a random model with a vocabulary of bytes and frequent pairs of them."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

    logging.disable_progress_bar()

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(["<s>"]), bos_token="<s>", eos_token="<s>")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, initializer_range=0.3, **sizes)
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def save_encoder(directory: Path) -> None:
    """Write a random RoBERTa, with which responses and options are compared."""
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), special, strict=True))
    names |= {"cls_token": "<s>", "sep_token": "</s>", "model_max_length": 126}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(special), **names)
    tokenizer.save_pretrained(directory)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, pad_token_id=1, **sizes)
    RobertaModel(config).save_pretrained(directory)


def train_tokenizer(special: list[str]):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2_000, special_tokens=special, initial_alphabet=alphabet)
    core.train_from_iterator([" ".join(vocabulary())], trainer)
    if "</s>" in special:
        ids = [(name, core.token_to_id(name)) for name in ("<s>", "</s>")]
        core.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    return core


def derive_outputs(models: list[str]) -> None:
    """Write outputs of all models but the first to the store, from those of the first."""
    import numpy as np
    from vernacular.config import dependencies as specs
    from vernacular.config import load as config
    from vernacular.inference.job.store import Store
    from vernacular.inference.job.work import work_units
    from vernacular.inference.schema import SCORES
    from vernacular.stages.common import inference_record

    cfg, store = config.load(["config.yaml"]), Store("results/store")
    files = {name: Path(f"results/requests/{name}.parquet") for name in cfg.evaluations}
    first, *others = (
        work_units(inference_record(Path(f"resources/models/{name}.json"), specs.inference_spec(cfg, [name])), files)
        for name in models
    )
    for seed, units in enumerate(others):
        for original, unit in zip(first, units, strict=True):
            rows, metadata = store.get(original.key, original.kind)
            change = with_noise if unit.kind is SCORES else exchanged
            rng = np.random.default_rng([seed, len(rows)])
            metadata = {key: value for key, value in metadata.items() if key != "store_key"}
            store.put(unit.key, unit.kind, change(rows, rng), metadata)


def derive_results(models: list[str]) -> None:
    """Write outputs and results of all models but the first, from those of the first."""
    import numpy as np
    import pyarrow as pa
    from vernacular.core import artifacts
    from vernacular.inference.schema import GENERATIONS, SCORES
    from vernacular.metrics.schema import METRICS, TASK_RESULTS, TOKENS

    patterns = {"scores/*": SCORES, "generations/*": GENERATIONS, "tasks/*": TASK_RESULTS, "metrics.*": METRICS}
    first, *others = (Path("results", name) for name in models)
    for pattern, kind in (patterns | {"tokens.*": TOKENS}).items():
        for path in sorted(first.glob(pattern)):
            table, metadata = artifacts.read(path, kind), artifacts.metadata(path)
            del metadata["kind"]
            for seed, directory in enumerate(others):
                rows = table
                if "model" in metadata:
                    metadata["model"] = directory.name
                if kind is METRICS:
                    index = table.column_names.index("model")
                    rows = table.set_column(index, "model", pa.array([directory.name] * len(table)))
                elif kind is TASK_RESULTS:
                    rows = exchanged(table, np.random.default_rng([seed, len(table)]), ("correct", "tie", "metrics"))
                target = directory / path.relative_to(first)
                target.parent.mkdir(parents=True, exist_ok=True)
                artifacts.write(target, kind, rows, metadata)


def with_noise(rows, rng):
    """Return scores whose log-probabilities have random noise; missing ones stay missing."""
    import numpy as np
    import pyarrow as pa

    column = rows["logprobs"].combine_chunks()
    logprobs = column.values.to_numpy(zero_copy_only=False).astype("float32")
    noisy = np.minimum(logprobs + rng.normal(0, NOISE, len(logprobs)).astype("float32"), 0)
    values = pa.array(noisy, pa.float32(), from_pandas=True)
    mask = column.is_null() if column.null_count else None
    new = pa.ListArray.from_arrays(column.offsets, values, mask=mask)
    return rows.set_column(rows.column_names.index("logprobs"), rows.schema.field("logprobs"), new)


def exchanged(rows, rng, names=("raw_output", "output", "finish_reason", "n_tokens", "flags")):
    """Return rows of which a share has the columns `names` of other rows: by default, the texts of generations."""
    import numpy as np
    import pyarrow as pa

    order = np.arange(len(rows))
    chosen = np.flatnonzero(rng.random(len(rows)) < EXCHANGED)
    order[chosen] = rng.permutation(chosen)
    for name in names:
        index = rows.column_names.index(name)
        rows = rows.set_column(index, rows.schema.field(name), rows[name].take(pa.array(order)))
    return rows


def start_server() -> str:
    """Start the tests' server of a tiny model in a process of its own; return its address."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=serve, args=(sender,), daemon=True).start()
    return receiver.recv()


def serve(sender) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from support import served

    loaded = served.trained_model()
    loaded.tokenizer.save_pretrained("models/tokenizer")
    server = served.Server(loaded, "vllm")
    sender.send(server.source)
    server.released.wait()


# ----- rows ----------------------------------------------------------------------------------------------------------


def vocabulary() -> list[str]:
    rng = random.Random(0)
    syllables = [consonant + vowel for consonant in "bcdfglmnprstvxñ" for vowel in "aeiouáé"]
    words = {"".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(2 * WORDS_IN_VOCABULARY)}
    return sorted(words)[:WORDS_IN_VOCABULARY]


class Rows:
    """Rows of one set, all different; the length of texts is that of the real dataset, in words."""

    def __init__(self, seed: int):
        self.rng, self.words = random.Random(seed), vocabulary()

    def text(self, shortest: int, longest: int) -> str:
        words = self.rng.choices(self.words, k=self.rng.randint(shortest, longest))
        return " ".join(words).capitalize() + "."

    def question(self, i: int, n_options: int = 4) -> dict:
        options = [self.text(2, 8) for _ in range(n_options)]
        return {"question": self.text(10, 60), "options": options, "gold": i % n_options}

    generation = question

    def mmlu(self, i: int) -> dict:
        return {**self.question(i), "category": f"subject {i % 57}"}

    def blimp(self, i: int) -> dict:
        good = self.text(6, 12)
        first, second, *rest = good.split()
        return {"good": good, "bad": " ".join([first, second[::-1], *rest]), "category": f"phenomenon {i % 67}"}

    pairs = blimp

    def forms(self, i: int) -> dict:
        text = self.text(8, 18).split()
        text[len(text) // 2] = "[MASK]"
        good, bad = self.rng.choices(self.words, k=2)
        return {"text": " ".join(text), "good": good, "bad": f"{bad}s", "cluster": str(i // 2)}

    def cola(self, i: int) -> dict:
        return {"text": self.text(5, 14), "label": int(i % 3 > 0)}

    server = cola

    def cloze(self, i: int) -> dict:
        text = self.text(8, 18).split()
        text[len(text) // 2] = "__"
        return {"text": " ".join(text), "options": self.rng.sample(self.words, 4), "gold": i % 4}

    def flores(self, i: int) -> dict:
        return {"text": self.text(300, 900)}

    def belebele(self, i: int) -> dict:
        if not i % 2:  # two questions share a passage
            self.passage = self.text(60, 100)
        return {**self.question(i), "text": self.passage, "cluster": str(i // 2)}


def write_set(name: str, fraction: float) -> list[dict]:
    """Write the rows and task files of a set; return its entries of the config."""
    n_items, task, entry = SETS[name]
    if name == "lm_eval":
        return write_lm_eval(round(n_items * fraction))
    names = [f"belebele_{k:03}" for k in range(BELEBELE_TASKS)] if name == "belebele" else [name]
    for seed, task_name in enumerate(names):
        rows, source = Rows(seed), {"file": f"{task_name}.jsonl"}
        count = max(10, round(n_items * fraction))
        write_jsonl(Path("tasks", source["file"]), (getattr(rows, name)(i) for i in range(count)))
        if name == "mmlu":
            source["few_shot"] = "shots.jsonl"
            write_jsonl(Path("tasks/shots.jsonl"), (rows.mmlu(i) for i in range(SHOTS)))
        content = {"task": task_name, "protocols": entry["protocols"], **task, "languages": {"gl": {"source": source}}}
        Path("tasks", f"{task_name}.yaml").write_text(yaml.safe_dump(content))
    return [{"task": task_name, "data": "hub", **entry} for task_name in names]


def write_lm_eval(count: int) -> list[dict]:
    """Write a group of lm-eval tasks with `count` documents, whose value is their weighted mean."""
    directory, rows = Path("lm_eval_tasks"), Rows(0)
    directory.mkdir()
    names = [f"scale_{k:02}" for k in range(LM_EVAL_TASKS)]
    for name in names:
        write_jsonl(directory / f"{name}.jsonl", (rows.question(i) for i in range(max(2, count // LM_EVAL_TASKS))))
        data = {"data_files": {"test": str((directory / f"{name}.jsonl").absolute())}}
        metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
        content = {
            "task": name, "dataset_path": "json", "dataset_kwargs": data, "output_type": "multiple_choice",
            "test_split": "test", "doc_to_text": "{{question}}\nAnswer:", "doc_to_target": "gold",
            "doc_to_choice": "options", "metric_list": metrics,
        }  # fmt: skip
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(content))
    group = {"group": "scale_group", "task": names}
    group["aggregate_metric_list"] = [{"metric": "acc", "aggregation": "mean", "weight_by_size": True}]
    (directory / "scale_group.yaml").write_text(yaml.safe_dump(group))
    return [{"lm_eval": "scale_group", "languages": "gl"}]


def write_jsonl(path: Path, rows) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"\n{time.perf_counter() - started:.0f} s in all")
