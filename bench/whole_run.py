"""Time entire runs, from the command to the results table, against the command line of lm-evaluation-harness.

    python bench/whole_run.py --model DIRECTORY --lm-eval .bench/bin/lm_eval [--threads 1] [--reps 3] [--inside]

With `--inside`, Vernacular is the model of lm-eval's own command line (`vernacular lm-eval run`), not the workflow.

Both tools read the same lm-eval task files and rows: `pairs` are minimal pairs as in BLiMP, `shots5` are five-shot
questions with the texts of four options and the same examples for all (lm-eval's sampler `first_n`), `drawn5` the same
with examples drawn for each question (its default sampler), `zero4` are questions about a passage with the texts of
four options, and `written` are five-shot prompts whose answer is generated. Each run starts a new process in an empty
directory and loads the model. The tools take turns, and the ratio of their times is computed per turn. CPU time
includes all child processes. The values of both tools must be equal.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from score import words

ROOT = Path(__file__).parent.parent
N_SHOTS = {"pairs": 0, "shots5": 5, "drawn5": 5, "zero4": 0, "written": 5}
N_ROWS = {"pairs": 1.0, "shots5": 0.2, "drawn5": 0.2, "zero4": 0.2, "written": 0.2}  # per --items
N_EXAMPLES = {"drawn5": 40}  # rows from which examples are drawn, if more than five


def rows(name: str, split: str, count: int) -> list[dict]:
    """Return rows of a set, the same in every process."""
    rng = random.Random(f"{name} {split} 0")
    if name == "pairs":
        sentences = [words(rng, rng.randint(5, 10)).split() for _ in range(count)]
        return [
            {
                "sentence_good": " ".join(sentence).capitalize() + ".",
                "sentence_bad": " ".join([*sentence[:-2], words(rng, 1), sentence[-1]]).capitalize() + ".",
            }
            for sentence in sentences
        ]
    if name == "written":  # the model copies the beginning of a text
        texts = [words(rng, 40) for _ in range(count)]
        return [{"text": text, "answer": " ".join(text.split()[:8])} for text in texts]
    n_words = 110 if name == "zero4" else 0  # of the passage, about 150 tokens
    return [
        {"passage": words(rng, n_words), "question": words(rng, 14), "choices": [words(rng, 6) for _ in range(4)],
         "answer": rng.randrange(4)}
        for _ in range(count)
    ]  # fmt: skip


def task_file(name: str, directory: Path) -> dict:
    """Return the content of the lm-eval task file of a set, whose rows are in `directory`."""
    files = {split: str(directory / f"{name}.{split}.jsonl") for split in ("test", "train")}
    content = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "output_type": "multiple_choice",
        "test_split": "test",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    if name == "pairs":
        return content | {
            "doc_to_text": "",
            "doc_to_target": 0,
            "doc_to_choice": "{{[sentence_good, sentence_bad]}}",
        }
    if name == "zero4":
        text = "{{passage}}\nQuestion: {{question}}?\nAnswer:"
        return content | {"doc_to_text": text, "doc_to_target": "{{answer}}", "doc_to_choice": "{{choices}}"}
    content |= {"fewshot_split": "train", "doc_to_target": "{{answer}}"}
    content |= {} if name == "drawn5" else {"fewshot_config": {"sampler": "first_n"}}
    if name == "written":
        return content | {
            "output_type": "generate_until",
            "doc_to_text": "Text: {{text}}\nIts first eight words:",
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 32, "do_sample": False},
            "filter_list": [
                {"name": "strip", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}
            ],
            "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        }
    return content | {"doc_to_text": "Question: {{question}}?\nAnswer:", "doc_to_choice": "{{choices}}"}


def prepare(name: str, count: int, directory: Path) -> None:
    """Write the rows and the lm-eval task file of a set."""
    for split, n_rows in (("test", count), ("train", N_EXAMPLES.get(name, 5))):
        lines = [json.dumps(row) for row in rows(name, split, n_rows)]
        (directory / f"{name}.{split}.jsonl").write_text("\n".join(lines) + "\n")
    (directory / "tasks").mkdir(exist_ok=True)
    (directory / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump(task_file(name, directory), sort_keys=False))


def run_lm_eval(args, name: str, directory: Path, out: Path) -> float:
    """Run lm-eval's command and return its value of the set's metric."""
    return _run_lm_eval([args.lm_eval, "--model", "hf"], args, name, directory, out)


def run_inside(args, name: str, directory: Path, out: Path) -> float:
    """Run lm-eval's command with Vernacular as the model."""
    python = Path(args.lm_eval).with_name("python")
    return _run_lm_eval([str(python), "-m", "vernacular", "lm-eval", "run"], args, name, directory, out)


def _run_lm_eval(command: list[str], args, name: str, directory: Path, out: Path) -> float:
    model_args = f"pretrained={args.model},dtype=float32"
    command = [*command, "--model_args", model_args, "--tasks", name, "--device", "cpu"]
    command += [
        "--include_path",
        str(directory / "tasks"),
        "--batch_size",
        str(args.batch_size),
        "--output_path",
        str(out),
    ]
    command += ["--num_fewshot", str(N_SHOTS[name])] if N_SHOTS[name] else []
    call(command, args.threads, out)
    (results,) = out.rglob("results_*.json")
    return _value(json.loads(results.read_text())["results"][name])


def run_vernacular(args, name: str, directory: Path, out: Path) -> float:
    """Run the workflow and return its value of the set's metric."""
    config = {
        "models": {"model": {"source": str(args.model), "dtype": "float32", "device": "cpu"}},
        "lm_eval": {"python": args.lm_eval_python, "tasks": [str(directory / "tasks")]},
        "evaluations": [{"lm_eval": name, "languages": "en", "shots": N_SHOTS[name]}],
    }
    (out / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    command = [sys.executable, "-m", "snakemake", f"-c{args.threads}", "--snakefile", str(ROOT / "Snakefile")]
    call(
        [*command, "--workflow-profile", str(ROOT / "profiles" / "default"), "--directory", str(out)], args.threads, out
    )
    (path,) = (out / "results" / "summary" / "lm_eval").glob("*.json")
    (values,) = json.loads(path.read_text())["results"].values()
    return _value(values)


def _value(values: dict) -> float:
    """Return the only value among those of a task, whose names are `metric,filter`."""
    (value,) = (value for name, value in values.items() if "," in name and "_stderr" not in name)
    return value


def call(command: list[str], threads: int, directory: Path) -> None:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment |= {
        "HF_HOME": str(directory / "hf"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    run = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)}\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")


def timed(function, *arguments) -> tuple[float, float, float]:
    """Return (result, wall-clock seconds, CPU seconds of all child processes)."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = function(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result, time.perf_counter() - started, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--lm-eval", required=True, help="the lm_eval command of another environment")
    parser.add_argument("--lm-eval-python", default=str(ROOT / ".lm-eval" / "bin" / "python"), help="`make lm-eval`")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--items", type=int, default=300, help="rows of `pairs`; the other sets have a fifth of them")
    parser.add_argument("--batch-size", type=int, default=8, help="of lm-eval")
    parser.add_argument("--inside", action="store_true", help="Vernacular as the model of lm-eval's command line")
    parser.add_argument("--sets", default=",".join(N_SHOTS))
    args = parser.parse_args()
    args.model, args.lm_eval = args.model.resolve(), str(Path(args.lm_eval).absolute())
    print("| set | turn | lm-eval wall s | Vernacular wall s | ratio | lm-eval cpu s | Vernacular cpu s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for name in args.sets.split(","):
            prepare(name, round(args.items * N_ROWS[name]), directory)
            ratios = []
            for turn in range(args.reps):
                measured = {}
                own = run_inside if args.inside else run_vernacular
                for tool in (run_lm_eval, own) if turn % 2 else (own, run_lm_eval):
                    out = directory / f"{tool.__name__}.{name}.{turn}"
                    out.mkdir()
                    measured[tool] = timed(tool, args, name, directory, out)
                (theirs, wall, cpu), (value, own_wall, own_cpu) = measured[run_lm_eval], measured[own]
                if abs(theirs - value) > 1e-6:
                    sys.exit(f"{name}: {theirs} of lm-eval, {value} of Vernacular")
                ratios.append((wall / own_wall, cpu / own_cpu))
                print(
                    f"| {name} | {turn + 1} | {wall:.1f} | {own_wall:.1f} | {wall / own_wall:.2f} | {cpu:.1f} | "
                    f"{own_cpu:.1f} | {cpu / own_cpu:.2f} |",
                    flush=True,
                )
            medians = [statistics.median(column) for column in zip(*ratios, strict=True)]
            print(f"| {name} | median | | | {medians[0]:.2f} | | | {medians[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
