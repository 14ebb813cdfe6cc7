"""Compare values of lm_eval's own tasks with `lm_eval --model hf`: log-likelihoods, texts and all metrics.

    python bench/lm_eval_values.py --model DIRECTORY --reference .bench/bin/python [--limit 4] [--chat] [--out OUT]
                                   [--inside]

Both tools run tasks of the installed package by their names, on local rows in the columns of their datasets
(`lm_eval_rows.py`), in float32 on the CPU. `wikitext` is run with a context of 512 tokens, so that its pages are scored
in windows. With `--chat`, for a model with a chat template, each task is also run with it (column `template`):
`--apply_chat_template` of lm_eval, `chat: true` of an entry. With `--inside`, Vernacular is lm_eval's model
(`vernacular.lm_eval_model`), not the workflow. The last line is the number of differences; a difference
is listed with its task.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lm_eval_rows
import yaml

ROOT = Path(__file__).parent.parent
BOTH = (  # with 0 and 5 examples
    *("galcola", "catcola", "escola", "belebele_glg_Latn", "openbookqa_gl", "paws_gl", "parafrases_gl", "xnli_gl"),
    *("xstorycloze_gl", "mgsm_direct_gl", "galician_bench_flores_es-gl", "xnli_eu", "eus_trivia", "coqcat", "xquad_es"),
    *("afrixnli_yor_prompt_1", "afrixnli_yor_prompt_2", "afrimmlu_direct_yor_prompt_1", "afrimgsm_yor_prompt_1"),
    *("arabicmmlu", "global_mmlu_es", "lambada_openai", "arc_challenge", "hellaswag", "piqa", "winogrande", "boolq"),
    *("copa", "xcopa_it", "openbookqa"),
    *("xnli_es", "xnli_es_spanish_bench", "xnli_ca", "xnli_va", "xquad_ca", "copa_ca", "copa_es"),
    *("assin_paraphrase", "belebele_por_Latn", "portuguese_bench_flores_pt-gl", "xcopa_eu", "piqa_eu"),
)
AS_STATED = (  # with the number of the task file
    *("truthfulqa_gl", "truthfulqa_mc1", "truthfulqa_mc2", "multiblimp_glg", "blimp_causative", "phrases_es-va"),
    *("gsm8k", "mmlu_prox_lite_es"),
)
RUNS = [*((name, shots) for name in BOTH for shots in (0, 5)), *((name, None) for name in AS_STATED)]
WINDOWS = [("wikitext", 0)]
MAX_LENGTH = 512
PRINTED = 5e-5  # lm_eval prints four digits
PER_TOKEN = 2e-5  # nats by which float32 log_softmax of PyTorch on a CPU is too large where one token is very likely


def reference(directory: str, runs: str, limit: int, max_length: int, chat: int, name: str) -> None:
    """Run lm_eval with a model, "hf" or "vernacular", in its environment; write what it returns to `{name}.json`."""
    import logging

    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer

    logging.disable(logging.WARNING)
    manager, found = TaskManager(), []
    settings = {"dtype": "float32", "device": "cpu", "max_length": max_length or None}
    if name == "hf":
        model = HFLM(pretrained=directory, batch_size=4, **settings)
    else:
        import vernacular

        model = vernacular.lm_eval_model(directory, threads=1, **settings)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for (task, shots), template in itertools.product(json.loads(runs), (False, True)[: 1 + chat]):
        options = {"task_manager": manager, "limit": limit, "bootstrap_iters": 0, "apply_chat_template": template}
        results = simple_evaluate(model=model, tasks=[task], num_fewshot=shots, **options)
        samples = {
            each: [[row["doc_id"], row["resps"], row["filter"], lengths(row["arguments"], tokenizer)] for row in rows]
            for each, rows in results["samples"].items()
        }
        found.append([task, shots, template, results["results"], samples])
        Path("unfinished.json").write_text(json.dumps(found, default=str))
        print(task, shots, template, file=sys.stderr, flush=True)
    Path("unfinished.json").rename(f"{name}.json")


def lengths(arguments: list, tokenizer) -> list[int]:
    """Return the number of tokens of each scored text; 0: a prompt, after which a text is generated."""
    texts = [argument[-1] for argument in arguments]
    return [len(tokenizer(text)["input_ids"]) if isinstance(text, str) else 0 for text in texts]


def run_reference(args, runs: list, directory: Path, max_length: int, name: str = "hf") -> None:
    options = [str(args.model), json.dumps(runs), str(args.limit), str(max_length), str(int(args.chat)), name]
    call([args.reference, __file__, "reference", *options], directory, args.threads)


def run_vernacular(args, runs: list, directory: Path, max_length: int, own: dict | None = None) -> None:
    """Run lm_eval's tasks by their names, and task files (`own`: entries of the config) beside them."""
    entries = [
        {"lm_eval": name} | ({} if shots is None else {"shots": shots}) | ({"chat": True} if chat else {})
        for (name, shots), chat in itertools.product(runs, (False, True)[: 1 + args.chat])
    ]
    own = own or {}
    model = {"source": str(args.model), "dtype": "float32", "device": "cpu"} | ({"chat": False} if own else {})
    config = {
        "models": {"model": model | ({"max_length": max_length} if max_length else {})},
        "lm_eval": {"python": args.lm_eval_python},
        "limit": args.limit,
        **own,
        "evaluations": entries + own.get("evaluations", []),
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    command = [sys.executable, "-m", "snakemake", f"-c{args.threads}", "--snakefile", str(ROOT / "Snakefile")]
    call(
        [*command, "results/summary/results.parquet", "--workflow-profile", str(ROOT / "profiles" / "default")],
        directory,
        args.threads,
    )


def call(command: list[str], directory: Path, threads: int) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(directory / "hf"), "OMP_NUM_THREADS": str(threads)}
    environment |= {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)[:300]}\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")


class Own:
    """Values and outputs of Vernacular's run."""

    def __init__(self, directory: Path):
        from vernacular import results
        from vernacular.core import artifacts
        from vernacular.inference.schema import GENERATIONS, SCORES
        from vernacular.protocols.schema import REQUESTS

        self.directory = directory / "results"
        self.all_rows = results.values(self.directory).to_dict("records")
        self.rows = [row for row in self.all_rows if row["protocol"].startswith("lm_eval")]  # task files share names
        self.read = lambda kind, *path: artifacts.read(self.directory.joinpath(*path), kind).to_pylist()
        self.kinds, self.requests_kind = {"scores": SCORES, "generations": GENERATIONS}, REQUESTS
        self.outputs: dict[str, dict] = {}  # evaluation -> (item, role) -> output and request

    def values(self, task: str, shots: int | None, *, template: bool) -> tuple[str, bool, dict[str, float]]:
        """Return (evaluation, whether the task is part of a group, values by metric) of a task or group."""
        label = task.replace("::", "--")
        found: dict[tuple, dict] = {}
        for row in self.rows:
            category = row["category"] or ""
            is_own = (row["task"] == label and not category) or category == task
            is_chat = row["evaluation"].endswith(".chat")
            if is_own and (shots is None or row["shots"] == shots) and is_chat == template:
                found.setdefault((row["evaluation"], bool(category)), {})[row["metric"]] = row["value"]
        ((evaluation, in_group),) = found  # exactly one
        return evaluation, in_group, found[evaluation, in_group]

    def output(self, evaluation: str) -> dict:
        if evaluation not in self.outputs:
            name = "generations" if "generation." in evaluation else "scores"
            file = f"{evaluation}.parquet"
            requests = {row["request_id"]: row for row in self.read(self.requests_kind, "requests", file)}
            rows = self.read(self.kinds[name], "model", name, file)
            self.outputs[evaluation] = {
                (r["item_id"], r["role"]): r | {"request": requests[r["request_id"]]} for r in rows
            }
        return self.outputs[evaluation]


def compare(own: Own, runs: list) -> int:
    """Print a row per run of lm_eval; return the number of differences."""
    print("| task | shots | template | values | requests | largest difference, nats | different texts |")
    print("|---|---|---|---|---|---|---|")
    total = 0
    for name, shots, template, results, samples in runs:
        n_values, problems = 0, []
        for task, expected in results.items():
            evaluation, in_group, values = own.values(task, shots, template=template)
            for key, value in expected.items():
                if "," not in key or "_stderr" in key or not isinstance(value, int | float):
                    continue
                label = key.removesuffix(",none")
                n_values += 1
                tolerance = 1e-4 if "perplexity" in label else 1e-6
                if not math.isclose(values[label], value, rel_tol=tolerance, abs_tol=PRINTED):
                    problems.append(f"{task} {label}: {value} of lm_eval, {values[label]}")
        n_requests, largest, n_texts = 0, 0.0, 0
        for task, rows in samples.items():
            evaluation, in_group, _ = own.values(task, shots, template=template)
            outputs, filters = own.output(evaluation), {row[2] for row in rows}
            for doc_id, responses, filter_name, _ in rows:
                if filter_name != min(filters):
                    continue
                for index, (response, *_) in enumerate(responses):
                    item, n_requests = f"{task}/{doc_id}" if in_group else str(doc_id), n_requests + 1
                    if ".lm_eval_generation." in evaluation:
                        n_texts += text(outputs[item, "response"]) != response
                        continue
                    row = outputs[item, "text" if name == "wikitext" else f"choice:{index}"]
                    loglik, *greedy = response if isinstance(response, list) else [response]
                    difference = abs(math.fsum(row["logprobs"]) - float(loglik))
                    largest = max(largest, difference)
                    if difference > max(1e-4, PER_TOKEN * len(row["tokens"])):
                        problems.append(f"{task} {item} {index}: {difference:.1e} nats, flags: {row['flags']}")
                    if greedy and str(all(row["is_greedy"])) != str(greedy[0]):
                        problems.append(f"{task} {item} {index}: greedy {greedy[0]} of lm_eval")
        cells = [f"`{name}`", shots, "yes" if template else "no", n_values, n_requests, f"{largest:.0e}", n_texts]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        for problem in problems:
            print(f"  {problem}")
        total += len(problems) + n_texts
    return total


def compare_inside(directory: Path) -> int:
    """Print how results and outputs of lm_eval with the two models differ; return the number of differences."""
    both = [json.loads((directory / f"{name}.json").read_text()) for name in ("hf", "vernacular")]
    total, largest, n_outputs = 0, 0.0, 0
    for (task, shots, template, results, samples), (*_, own_results, own_samples) in zip(*both, strict=True):
        problems = []
        for name, expected in results.items():
            for key, value in expected.items():
                tolerance = 1e-4 if "perplexity" in key else 1e-6
                is_number = isinstance(value, int | float) and "_stderr" not in key
                if is_number and not math.isclose(own_results[name][key], value, rel_tol=tolerance, abs_tol=PRINTED):
                    problems.append(f"{name} {key}: {value} of hf, {own_results[name][key]}")
        for name, rows in samples.items():
            for (item, responses, _, n), (own_item, own_responses, *_) in zip(rows, own_samples[name], strict=True):
                for (response, *_), (own_response, *_), tokens in zip(responses, own_responses, n, strict=True):
                    n_outputs += 1
                    loglik, own_loglik = (x[0] if isinstance(x, list) else x for x in (response, own_response))
                    try:
                        difference, rounding = abs(float(loglik) - float(own_loglik)), PER_TOKEN * tokens
                    except ValueError:  # a text
                        difference, rounding = (0.0 if response == own_response else math.inf), 0.0
                    largest = max(largest, difference)
                    rest = [x[1:] if isinstance(x, list) else [] for x in (response, own_response)]
                    if item != own_item or difference > 2e-4 + rounding or rest[0] != rest[1]:
                        problems.append(f"{name} {item}: {response} of hf, {own_response}")
        for problem in problems:
            print(f"{task}, {shots} examples, template {template}: {problem}", flush=True)
        total += len(problems)
    print(f"{len(both[0])} runs, {n_outputs} outputs, largest difference {largest:.1e} nats")
    return total


def text(output: dict) -> str:
    """Return a generated text up to its first stop string, as lm_eval stores it."""
    found = output["raw_output"]
    for stop in output["request"]["stop"] or ():
        found = found.split(stop)[0]
    return found


def arabic_subjects(python: str) -> list[str]:
    """Return the configurations of the tasks in `arabicmmlu`."""
    code = "import lm_eval, os; print(os.path.dirname(lm_eval.__file__))"
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    files = sorted((Path(run.stdout.strip()) / "tasks" / "arabicmmlu").glob("arabicmmlu_*.yaml"))
    return [yaml.safe_load(path.read_text("utf-8"))["dataset_name"] for path in files]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=lambda path: Path(path).resolve(), required=True)
    parser.add_argument("--reference", required=True, help="Python of an environment with lm_eval and torch")
    parser.add_argument("--lm-eval-python", default=str(ROOT / ".lm-eval" / "bin" / "python"), help="`make lm-eval`")
    parser.add_argument("--tasks", help="names separated by commas, of those in this file; by default, all")
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("--chat", action="store_true", help="also with the chat template of the model")
    parser.add_argument("--inside", action="store_true", help="as lm_eval's model, which PYTHON imports, too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to keep both runs; by default, they are deleted")
    args = parser.parse_args()
    args.reference = str(Path(args.reference).absolute())
    names = args.tasks.split(",") if args.tasks else [name for name, _ in WINDOWS + RUNS]
    with tempfile.TemporaryDirectory() as temporary:
        differences = 0
        for part, all_runs, max_length in (("windows", WINDOWS, MAX_LENGTH), ("tasks", RUNS, 0)):
            if not (runs := [run for run in all_runs if run[0] in names]):
                continue
            directory = (args.out or Path(temporary)).absolute() / part
            if not directory.exists():
                lm_eval_rows.write(directory, arabic_subjects(args.reference))
            if not (directory / "hf.json").exists():
                run_reference(args, runs, directory, max_length)
            if args.inside:
                if not (directory / "vernacular.json").exists():
                    run_reference(args, runs, directory, max_length, "vernacular")
                differences += compare_inside(directory)
                continue
            if not (directory / "results").exists():
                run_vernacular(args, runs, directory, max_length)
            differences += compare(Own(directory), json.loads((directory / "hf.json").read_text()))
    print(f"{differences} differences")


if __name__ == "__main__":
    if sys.argv[1] == "reference":
        reference(*sys.argv[2:4], *map(int, sys.argv[4:7]), sys.argv[7])
    else:
        main()
