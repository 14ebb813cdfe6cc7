"""Compare our values with those of other tools, and write docs/replication.md: `make replicate`.

    python -m replicate --tools .bench/bin/python [--hub] [--threads 1] [--docs docs] [--work DIRECTORY]

The run is kept in .bench/replicate; a second call computes what is missing, and all values of the tools.
Exits with 1 if a difference has no known reason.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from vernacular import __version__
from vernacular import results as run_results

from replicate import bos, published, references, rows
from replicate.compare import Comparison, Run, compare
from replicate.page import PROTOCOLS, page
from replicate.plot import svg

ROOT = Path(__file__).parents[2]
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
OWN_LIBRARIES = (*LIBRARIES, "snakemake", "sentence-transformers", "bert-score", "pot", "scipy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", required=True, help="Python of the environment of bench/requirements.txt")
    parser.add_argument("--hub", action="store_true", help="also evaluate the published models, with the Hub")
    parser.add_argument("--threads", type=int, default=1, help="of the workflow")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("config.yaml"))
    parser.add_argument("--work", type=Path, default=ROOT / ".bench" / "replicate")
    args = parser.parse_args()
    tools, work = str(Path(args.tools).absolute()), args.work.absolute()
    config = args.config.read_text("utf-8")
    targets = [f"results/{model}/metrics.parquet" for model in yaml.safe_load(config)["models"]]
    snakemake(work, config, args.threads, targets, offline=True)
    (work / "rows.json").unlink(missing_ok=True)
    evaluations = rows.write(work, work / "rows.json")["evaluations"]
    commands = [[python, "-m", f"replicate.{module}", str(work)] for module, python in modules(tools).items()]
    with ThreadPoolExecutor() as pool:  # at the same time, each on one thread
        for exit_code in pool.map(call, commands):
            if exit_code:
                sys.exit("a tool failed")
    values = [value for name in modules(tools) for value in references.read(work / f"{name}.jsonl")]
    ours = Run(work)
    comparisons, effects = compare(ours, values), bos.effects(ours, evaluations)
    found = hub(work / "hub", args.threads) if args.hub else [without_hub(row) for row in published.read()]
    versions = {"workflow": {"vernacular": __version__} | versions_here(OWN_LIBRARIES), "tools": versions_of(tools)}
    (args.docs / "replication.md").write_text(page(comparisons, versions, effects, found), "utf-8")
    (args.docs / "images" / "replication.svg").write_text(svg(plotted(comparisons), 1e-4), "utf-8")
    unexplained = sum(not c.equal and c.reason is None for c in comparisons)
    print(f"docs/replication.md: {len(comparisons):,} values, {unexplained} differences without a known reason")
    sys.exit(unexplained > 0)


def snakemake(directory: Path, config: str, threads: int, targets=(), *, offline: bool) -> None:
    """Run the workflow in `directory` with a config, as from the command line; all of it without targets."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text(config, "utf-8")
    command = [sys.executable, "-m", "snakemake", f"-c{threads}", *targets, "--snakefile", str(ROOT / "Snakefile")]
    command += ["--workflow-profile", str(ROOT / "profiles" / "default")]
    if call(command, directory, offline=offline):
        sys.exit("the workflow failed")


def modules(tools: str) -> dict[str, str]:
    """Return the modules that compute values of tools, with the Python of their environment."""
    return {"minicons_values": tools, "lm_eval_values": tools, "restated": sys.executable}


def call(command: list[str], directory: Path = ROOT, *, offline: bool = True) -> int:
    """Run a command on one thread per process, and return its exit status."""
    paths = [str(ROOT / "bench"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment |= {"PYTHONPATH": os.pathsep.join(paths)} | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, cwd=directory, env=environment, check=False).returncode


def hub(work: Path, threads: int) -> list[published.Replicated]:
    """Run each group of published values, and return them with ours."""
    listed, found = published.read(), []
    for group in dict.fromkeys(row.group for row in listed):
        directory, members = work / group, [row for row in listed if row.group == group]
        config = published.config(members, str(ROOT / ".lm-eval" / "bin" / "python"))
        snakemake(directory, yaml.safe_dump(config, sort_keys=False), threads, offline=False)
        found += published.replicate(members, run_results.values(directory / "results").to_dict("records"))
    return found


def without_hub(row: published.Published) -> published.Replicated:
    return published.Replicated(row, None, None, "not run")


def versions_here(packages: tuple[str, ...]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in packages}


def versions_of(python: str) -> dict[str, str]:
    """Return the versions in the environment of the tools."""
    names = ("lm_eval", "minicons", *LIBRARIES)
    code = f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {names}}}))"
    return json.loads(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout)


def plotted(comparisons: list[Comparison]) -> list[tuple[str, list[tuple[float, bool]]]]:
    """Return the numbers of each protocol and tool, for the plot."""
    groups: dict[tuple, list] = {}
    for c in comparisons:
        if c.difference is not None:
            key = (PROTOCOLS.index(c.reference["protocol"]), c.reference["protocol"], c.reference["tool"])
            groups.setdefault(key, []).append((c.difference, not c.equal))
    return [(f"{protocol}, {tool}", groups[key]) for key in sorted(groups) for _, protocol, tool in [key]]


if __name__ == "__main__":
    main()
