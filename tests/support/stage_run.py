"""Run all commands of the workflow in this process, with the arguments of the rules."""

import json

from vernacular import cli
from vernacular.config import dependencies as specs
from vernacular.config import load as config
from vernacular.config.dependencies import curves_spec

CONFIG = {
    "models": {"one": {"source": "./one", "dtype": "float32"}, "two": {"source": "./two", "dtype": "float32"}},
    "data": "samples",
    "evaluations": [
        {"task": "openbookqa", "languages": ["gl", "es"], "protocols": ["generation", "options"], "limit": 3}
    ],
    "comparisons": [{"baseline": "one", "candidate": "two"}],
    "similarity": {"metrics": ["cosine"], "encoders": {"default": "./encoder"}},
}

GL, ES = "openbookqa.gl", "openbookqa.es"

OPTIONS, GENERATION = f"{GL}.options.0shot", f"{GL}.generation.0shot"


class Run:
    """Runs commands in the current directory, with the arguments of the rules."""

    def __init__(self, loaded_config: config.Config):
        self.config = loaded_config

    def __call__(self, command: str, model: str = "one") -> int:
        if command == "infer":
            return max(cli.main(["infer", *self.infer(model, shard)]) for shard in self._shards(model))
        return cli.main([command, *getattr(self, command)(model)])

    def _shards(self, base: str) -> list[str]:
        count = self.config.models[base]["shards"]
        return [f"{k}of{count}" for k in range(1, count + 1)]

    def run_all(self) -> None:
        assert self("items") == self("requests") == 0
        for model in self.config.models:
            for command in ("model", "infer", "collect", "similarity", "metrics"):
                if command == "similarity":
                    assert self("encoder") == 0
                assert self(command, model) == 0
        for command in ("compare", "summary", "report", "verify"):
            assert self(command) == 0

    def _request_paths(self, protocols=None) -> list[str]:
        return [
            f"results/requests/{e.id}.parquet"
            for e in self.config.evaluations.values()
            if protocols is None or e.protocol in protocols
        ]

    def items(self, _: str) -> list[str]:
        return ["--spec", _spec(specs.items_spec(self.config)), "--out", "resources/items"]

    def requests(self, _: str) -> list[str]:
        files = ["--items-dir", "resources/items", "--out", "results/requests"]
        return ["--spec", _spec(specs.requests_spec(self.config)), *files]

    def model(self, name: str) -> list[str]:
        base = self.config.models[name].get("base")
        files = ["--base", f"resources/models/{base}.json"] if base else []
        files += ["--out", f"resources/models/{name}.json"]
        return ["--spec", _spec(specs.model_spec(self.config, name)), *files]

    def encoder(self, _: str) -> list[str]:
        [name] = self.config.encoders
        return ["--spec", _spec(specs.encoder_spec(self.config, name)), "--out", f"resources/encoders/{name}.json"]

    def infer(self, base: str, shard: str = "1of1") -> list[str]:
        names = self.config.bases[base]
        inputs = ["--models", *(f"resources/models/{name}.json" for name in names), "--shard", shard]
        outputs = ["--out", f"results/inference_status/{base}/{shard}.json", "--store", "results/store"]
        spec = _spec(specs.inference_spec(self.config, names))
        return ["--spec", spec, *inputs, "--requests", *self._request_paths(), *outputs]

    def collect(self, name: str) -> list[str]:
        base = self.config.models[name].get("base", name)
        inputs = ["--model", f"resources/models/{name}.json", "--requests", *self._request_paths(), "--status"]
        inputs += [f"results/inference_status/{base}/{shard}.json" for shard in self._shards(base)]
        outputs = ["--out", f"results/{name}", "--store", "results/store"]
        return ["--spec", _spec(specs.inference_spec(self.config, [name])), *inputs, *outputs]

    def similarity(self, name: str) -> list[str]:
        generations = [path.replace("requests", f"{name}/generations") for path in self._request_paths(config.COMPARED)]
        encoders = [f"resources/encoders/{encoder}.json" for encoder in self.config.encoders]
        files = ["--encoders", *encoders, "--model", f"resources/models/{name}.json", "--generations", *generations]
        files += [*_DIRECTORIES, "--out", f"results/{name}/similarity"]
        return ["--spec", _spec(specs.similarity_spec(self.config)), *files]

    def metrics(self, name: str) -> list[str]:
        files = ["--model", f"resources/models/{name}.json", *_DIRECTORIES, "--out", f"results/{name}"]
        return ["--spec", _spec(specs.metrics_spec(self.config, name)), *files]

    def export(self, name: str) -> list[str]:
        tasks = [path.replace("requests", f"{name}/tasks") for path in self._request_paths(config.EXPORTED)]
        files = ["--items-dir", "resources/items", "--tasks", *tasks, "--out", f"results/exports/{name}"]
        return ["--spec", _spec(specs.export_spec(self.config)), *files]

    def compare(self, _: str) -> list[str]:
        files = ["--results", "results", "--items-dir", "resources/items", "--out", "results/summary"]
        return ["--spec", _spec(specs.comparisons_spec(self.config)), *files, "--changes", "results/comparisons"]

    def curves(self, _: str) -> list[str]:
        return ["--spec", _spec(curves_spec(self.config)), "--results", "results", "--out", "results/summary"]

    def summary(self, _: str) -> list[str]:
        metrics = [f"results/{name}/metrics.parquet" for name in self.config.models]
        return ["--spec", _spec(specs.summary_spec(self.config)), "--metrics", *metrics, "--out", "results/summary"]

    def report(self, _: str) -> list[str]:
        files = ["--models", *(f"resources/models/{name}.json" for name in self.config.models)]
        files += ["--results", "results", "--changes", "results/comparisons", "--out", "results/report"]
        return ["--spec", _spec(specs.report_spec(self.config)), *files]

    def verify(self, _: str) -> list[str]:
        return ["--notes", "results/summary/notes.csv", "--out", "results/summary/complete.txt"]


_DIRECTORIES = ["--items-dir", "resources/items", "--requests-dir", "results/requests"]


def _spec(spec: dict) -> str:
    return json.dumps(spec, sort_keys=True)  # as in the rules
