"""Measure how much of Vernacular's own work an accelerator waits for: a simulated device takes a fixed time per token.

    python bench/overlap.py --model DIRECTORY [--sets sentences,letters5] [--requests 1000] [--rates 10000,30000]

Each set is computed as a job of several evaluations (requests files of their own texts), with the tokenizer of
DIRECTORY and a simulated device instead of a model: it takes a fixed time per token (`--rates`), works while the host
goes on, and returns zeros. Printed are the wall-clock seconds of the job, with and without overlap of evaluations, over
the larger of the device's seconds and the job's own processor seconds: 1.00 means that everything overlaps. The first
evaluation is prepared, and the last one written, while no other computes, so the ratio decreases with their number.
"""

import argparse
import functools
import tempfile
import time
from pathlib import Path

import torch
from overhead import SETS, free_model, write_requests, zeros
from vernacular.core.logs import Progress
from vernacular.core.processes import StopFlag
from vernacular.inference.engine import Local
from vernacular.inference.job.run import Pipeline
from vernacular.inference.job.store import Store
from vernacular.inference.job.work import work_units
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring import head
from vernacular.inference.scoring.head import DeviceScores


class InMemory(Local):
    """An engine of a model that is in memory."""

    def __init__(self, loaded: LoadedModel):
        self.record, self.loaded, self.device = loaded.record, loaded, loaded.device
        self.is_asynchronous, self.shares_prompts = loaded.is_asynchronous, True


class Device:
    """A device that works through forward passes in order, at a fixed rate; outputs are waited for, as on a GPU."""

    def __init__(self, loaded: LoadedModel):
        self.loaded, self.seconds_per_token, self.seconds, self.free_at = loaded, 0.0, 0.0, 0.0
        decoder = loaded.model.get_decoder()
        forward, device = decoder.forward, self

        @functools.wraps(forward)  # the engine reads the signature
        def start(input_ids=None, **kwargs):
            seconds = input_ids.numel() * device.seconds_per_token
            device.free_at = max(device.free_at, time.perf_counter()) + seconds
            device.seconds += seconds
            return forward(input_ids=input_ids, **kwargs)

        class Outputs(DeviceScores):
            def __init__(self, chunks):
                super().__init__(chunks)
                self.ready_at = device.free_at

            def result(self):
                time.sleep(max(0.0, self.ready_at - time.perf_counter()))  # without Python's lock
                return super().result()

        decoder.forward, head.DeviceScores = start, Outputs
        LoadedModel.is_asynchronous = True


def measure(device: Device, paths: dict[str, Path], directory: Path, *, overlaps: bool) -> tuple[float, float, float]:
    """Return (wall-clock seconds, seconds of the device, processor seconds) of a job."""
    device.free_at = 0.0
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        units = work_units(device.loaded.record, paths)
        pipeline = Pipeline(InMemory(device.loaded), units, Store(folder), StopFlag(), overlaps=overlaps)
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
    parser.add_argument("--batch-tokens", type=int, default=16384, help="of a forward pass, as on a GPU")
    parser.add_argument("--rates", default="10000,30000", help="tokens per second of the device")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    head.Head._reduce = zeros
    device = Device(free_model(arguments.model, max_batch_tokens=arguments.batch_tokens))
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
