"""Measure how much of Vernacular's own work an accelerator waits for: a simulated device takes a fixed time per token.

    python bench/overlap.py --model DIRECTORY [--sets sentences,letters5] [--requests 1000] [--rates 10000,30000]

Each set is computed as a job of several evaluations (requests files of their own texts), with the tokenizer of
DIRECTORY and a model whose forward passes only sleep, at `--rates` tokens per second, and return zeros. Printed are the
wall-clock seconds of the job, with and without overlap, over the larger of the device's seconds and the job's own
processor seconds: 1.00 means that everything overlaps that can. The first evaluation is prepared, and the last one
written, while no other computes, so the ratio decreases with the number of evaluations.
"""

import argparse
import functools
import tempfile
import time
from pathlib import Path

import torch
from overhead import SETS, free_model, write_requests, zeros
from vernacular.core.processes import StopFlag
from vernacular.core.progress import Progress
from vernacular.inference.job.pipeline import Pipeline
from vernacular.inference.job.store import Store
from vernacular.inference.job.work import work_units
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring.head import Head


class Device:
    """A device that takes a fixed time per token; counts the seconds that it worked."""

    def __init__(self, loaded: LoadedModel):
        self.loaded, self.seconds_per_token, self.seconds = loaded, 0.0, 0.0
        decoder = loaded.model.get_decoder()
        forward = decoder.forward

        @functools.wraps(forward)  # the engine reads the signature
        def timed(input_ids=None, **kwargs):
            started = time.perf_counter()
            time.sleep(input_ids.numel() * self.seconds_per_token)  # waits without Python's lock, as for a device
            self.seconds += time.perf_counter() - started
            return forward(input_ids=input_ids, **kwargs)

        decoder.forward = timed


def measure(device: Device, paths: dict[str, Path], directory: Path, *, overlaps: bool) -> tuple[float, float, float]:
    """Return (wall-clock seconds, seconds of the device, processor seconds) of a job."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        units = work_units(device.loaded.record, paths)
        pipeline = Pipeline(device.loaded, units, Store(folder), StopFlag(), overlaps=overlaps)
        device.seconds, wall, own = 0.0, time.perf_counter(), time.process_time()
        _, failed = pipeline.run(lambda *_: None, Progress("bench", len(units), "evaluation"))
        wall, own = time.perf_counter() - wall, time.process_time() - own
    if failed:
        raise SystemExit(f"failed: {failed}")
    return wall, device.seconds, own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--requests", type=int, default=1000, help="of each evaluation")
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--rates", default="10000,30000", help="tokens per second of the device")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    Head._reduce = zeros
    device = Device(free_model(arguments.model))
    print("| set | tokens per s | device s | own CPU s | wall s | without overlap | wall / larger | without |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for name in arguments.sets.split(","):
            paths = {}
            for number in range(arguments.evaluations):
                folder = Path(directory) / f"{name}{number}"
                folder.mkdir()
                paths[f"{name}{number}"] = write_requests(name, arguments.requests, folder, seed=number)
            measure(device, dict([next(iter(paths.items()))]), Path(directory), overlaps=True)  # imports, first uses
            for rate in map(int, arguments.rates.split(",")):
                device.seconds_per_token = 1 / rate
                wall, busy, own = measure(device, paths, Path(directory), overlaps=True)
                plain, plain_busy, plain_own = measure(device, paths, Path(directory), overlaps=False)
                ratios = wall / max(busy, own), plain / max(plain_busy, plain_own)
                cells = [f"`{name}`", f"{rate:,}", *(f"{value:.2f}" for value in (busy, own, wall, plain, *ratios))]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
