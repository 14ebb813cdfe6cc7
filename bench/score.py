"""Time the scoring engine against lm-evaluation-harness (HFLM) and minicons: same requests, model, dtype and threads.

    python bench/score.py --model DIRECTORY [--threads 1] [--reps 3] [--sets letters5,text5] [--items 60]

Each engine runs in a separate process, which loads the model; then they take turns, one pass over the full dataset
each, and the ratio of their times is computed per turn. Peak memory is that of the process. lm-eval uses the batch size
that is fastest on a part of the dataset. Requires the packages of bench/requirements.txt; this package runs in its own
environment, if there is one.
"""

import argparse
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

OWN = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "python"
WORDS = re.findall(
    r"\w+",
    "the of and a in to it is was for on as with at by from house river garden morning people water teacher small long "
    "green old music market bridge winter letter animal paper window country story friend table light city school "
    "number mountain voice summer north game bread field music leaf stone",
)


def words(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def letters(rng, items):
    """Return five-shot requests that show four options and score the letter, as in MMLU."""

    def question(label):
        options = "".join(f"{letter}. {words(rng, 5)}\n" for letter in "ABCD")
        return f"Question: {words(rng, 14)}?\n{options}Answer:{label}"

    shots = "".join(question(f" {rng.choice('ABCD')}") + "\n\n" for _ in range(5))
    stems = [question("") for _ in range(items)]
    return [(shots + stem, f" {letter}") for stem in stems for letter in "ABCD"]


def texts(rng, items):
    """Return five-shot requests that score the texts of four options, as in OpenBookQA."""
    shots = "".join(f"Question: {words(rng, 14)}?\nAnswer: {words(rng, 6)}\n\n" for _ in range(5))
    stems = [f"Question: {words(rng, 14)}?\nAnswer:" for _ in range(items)]
    return [(shots + stem, f" {words(rng, 6)}") for stem in stems for _ in range(4)]


def zero(rng, items):
    """Return zero-shot requests with a passage of about 150 tokens and four options."""
    stems = [f"{words(rng, 125)}.\nQuestion: {words(rng, 10)}?\nAnswer:" for _ in range(max(1, items // 3))]
    return [(stem, f" {words(rng, 6)}") for stem in stems for _ in range(4)]


def sentences(rng, items):
    """Return short sentences as in acceptability judgments, scored from the first word, after BOS."""
    return [("", words(rng, rng.randint(6, 18)).capitalize() + ".") for _ in range(4 * items)]


SETS = {"letters5": letters, "text5": texts, "zero4": zero, "sentences": sentences}
PEERS = {
    "letters5": ["lm_eval"],
    "text5": ["lm_eval"],
    "zero4": ["lm_eval", "minicons"],
    "sentences": ["lm_eval", "minicons"],
}


def requests_of(name, items):
    """Return (context, continuation) pairs, the same in every process."""
    return SETS[name](random.Random(f"{name} 0"), items)


def vernacular(directory, pairs):
    """Return a function that scores the pairs with a model in a notebook, and reports the tokens it computed."""
    import tempfile

    from vernacular import load

    model = load(directory, dtype="float32", device="cpu", resources=tempfile.mkdtemp())
    contexts, texts = zip(*pairs, strict=True)

    def run():
        frame = model.score(contexts, texts) if any(contexts) else model.surprisal(texts, per="text")
        counters = frame.attrs["counters"]
        details = f"{counters['tokens_computed']} tokens computed, {counters['tokens_trie']} in the trie"
        return (-frame["surprisal"]).tolist(), details

    return run


def lm_eval(directory, pairs):
    """Return a function that scores the pairs with lm-evaluation-harness, at its fastest batch size."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=directory, dtype="float32", device="cpu", batch_size=1)
    instances = [
        Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=number) for number, pair in enumerate(pairs)
    ]
    best = None
    for size in (1, 8, 32):
        model.batch_size_per_gpu = size
        started = time.perf_counter()
        model.loglikelihood(instances[: max(16, len(instances) // 8)], disable_tqdm=True)
        seconds = time.perf_counter() - started
        best = min(best or (seconds, size), (seconds, size))
    model.batch_size_per_gpu = best[1]

    def run():
        return [value for value, _ in model.loglikelihood(instances, disable_tqdm=True)], f"batch size {best[1]}"

    return run


def minicons(directory, pairs):
    """Return a function that scores the pairs with minicons, in batches of eight of similar length."""
    from minicons.scorer import IncrementalLMScorer

    model = IncrementalLMScorer(directory, "cpu")
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))

    def run():
        logprobs = [0.0] * len(pairs)
        for low in range(0, len(order), 8):
            batch = order[low : low + 8]
            contexts, ends = zip(*(pairs[i] for i in batch), strict=True)
            if any(contexts):
                values = model.conditional_score(
                    list(contexts), list(ends), separator="", reduction=lambda x: x.sum(0).item()
                )
            else:
                values = model.sequence_score(list(ends), bos_token=True, reduction=lambda x: x.sum(0).item())
            for i, value in zip(batch, values, strict=True):
                logprobs[i] = value
        return logprobs, "batch size 8"

    return run


def work(engine, directory, name, items):
    """Run a worker: load the model, then make one timed pass per line of input and print its report on a line."""
    report_stream, sys.stdout = sys.stdout, sys.stderr
    pairs = requests_of(name, items)
    run = {"vernacular": vernacular, "lm_eval": lm_eval, "minicons": minicons}[engine](directory, pairs)
    print("ready", file=report_stream, flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        values, details = run()
        report = {
            "wall": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "about": details,
            "values": values,
        }
        print(json.dumps(report), file=report_stream, flush=True)


def start(engine, arguments, name):
    """Start a worker process and wait until it is ready."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1"}
    own = OWN if engine == "vernacular" and OWN.exists() else sys.executable
    command = [own, __file__, "--model", arguments.model, "--items", str(arguments.items)]
    process = subprocess.Popen(
        [*command, "--worker", engine, "--sets", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if arguments.verbose else subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    if process.stdout.readline().strip() != "ready":
        raise SystemExit(f"{engine} did not start; run with --verbose")
    return process


def compare(name, arguments):
    """Print the rows of the table for one dataset."""
    engines = ["vernacular", *PEERS[name]]
    processes = {engine: start(engine, arguments, name) for engine in engines}
    turns = []
    for _ in range(arguments.reps):
        turn = {}
        for engine, process in processes.items():
            print("go", file=process.stdin, flush=True)
            turn[engine] = json.loads(process.stdout.readline())
        turns.append(turn)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    for engine in engines:
        vernacular_values = turns[-1]["vernacular"]["values"]
        values = turns[-1][engine]["values"]
        ratios = [turn[engine][arguments.clock] / turn["vernacular"][arguments.clock] for turn in turns]
        seconds = [turn[engine][arguments.clock] for turn in turns]
        difference = max(abs(a - b) for a, b in zip(vernacular_values, values, strict=True))
        peak = max(turn[engine]["peak_mb"] for turn in turns)
        cells = [name, engine, f"{statistics.median(seconds):.1f}", f"{min(ratios):.2f}"]
        cells += [f"{statistics.median(ratios):.2f}", f"{peak:.0f}", f"{difference:.1e}", turns[-1][engine]["about"]]
        print(f"| {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="directory of a causal model in Hugging Face's layout")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu where others use the machine")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.model, arguments.sets, arguments.items)
        return
    print(
        f"| set | engine | median {arguments.clock} s | ratio, min | ratio, median | peak MB | max difference, nats | |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.sets.split(","):
        compare(name, arguments)


if __name__ == "__main__":
    main()
