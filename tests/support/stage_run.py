"""Run all stages of the workflow in this process, with the fields of the rules.

The tables are those of `snakemake`, in a fifth of its time: no process imports torch again. Tests of what Snakemake plans,
or of the processes that it starts, need a `Workspace`.
"""

import contextlib
import functools
from pathlib import Path

from vernacular.config import load as config
from vernacular.core.fingerprint import code_fingerprint, libraries

from support import specs, stages

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
    """Runs stages in the current directory, with the fields of the rules."""

    def __init__(self, loaded_config: config.Config, *, has_versions: bool = False):
        self.config, self.has_versions = loaded_config, has_versions

    def __call__(self, command: str, model: str = "one") -> int:
        if command == "infer":
            return max(self._run("infer", self.infer(model, shard)) for shard in self._shards(model))
        if command == "judges":
            for name in (name for name, judge in self.config.judges.items() if model in judge.models):
                self.judge(name, model)
            return 0
        if command == "model" and model in self.config.servers:
            command = "server"
        return self._run(command, getattr(self, command.replace("-", "_"))(model))

    def _run(self, command: str, fields: dict) -> int:
        if self.has_versions and "spec" in fields:
            fields = fields | {"spec": fields["spec"] | _versions(command)}
        return stages.run(command, **fields)

    def _shards(self, base: str) -> list[str]:
        count = self.config.models[base]["shards"]
        return [f"{k}of{count}" for k in range(1, count + 1)]

    def run_all(self, *, exports: bool = False) -> int:
        """Run the stages in the order of the rules; return the status of the last, which tells if values are missing."""
        has_responses = bool(self._request_paths(config.COMPARED))
        per_model = ["collect", *["similarity"] * has_responses, "judges", "metrics", *["export"] * exports]
        assert self("items") == self("requests") == 0
        for encoder in self.config.encoders if has_responses else ():
            assert self("encoder", encoder) == 0
        for command, names in (("model", self.config.models), ("infer", self.config.bases)):
            assert {self(command, name) for name in names} == {0}
        assert {self(command, model) for command in per_model for model in self.config.models} == {0}
        for command in (*self.comparing_stages(), "summary", "report"):
            assert self(command) == 0
        return self("finish")

    def comparing_stages(self) -> list[str]:
        """Return the stages between `metrics` and `summary`, some of which only some configs have."""
        conditions = {
            "external": self.config.external_results,
            "faults": self.config.verdicts,
            "estimates": self.config.labels or self.config.borrow_from,
            "curves": self.config.checkpoints,
            "audit-lists": self.config.audit is not None,
            "between-languages": specs.languages_spec(self.config)["evaluations"],
        }
        return ["compare", *(stage for stage, is_needed in conditions.items() if is_needed), "changes"]

    def _request_paths(self, protocols=None) -> list[str]:
        return [
            f"results/requests/{e.id}.parquet"
            for e in self.config.evaluations.values()
            if protocols is None or e.protocol in protocols
        ]

    def items(self, _: str) -> dict:
        return {"spec": specs.items_spec(self.config), "out": "resources/items"}

    def requests(self, _: str) -> dict:
        return {"spec": specs.requests_spec(self.config), "items_dir": "resources/items", "out": "results/requests"}

    def model(self, name: str) -> dict:
        base = self.config.models[name].get("base")
        fields = {"spec": specs.model_spec(self.config, name), "out": f"resources/models/{name}.json"}
        return fields | ({"base": f"resources/models/{base}.json"} if base else {})

    def server(self, name: str) -> dict:
        return {"spec": specs.server_spec(self.config, name), "out": f"resources/models/{name}.json"}

    def judge(self, judge: str, model: str) -> None:
        """Run the three stages of a judge on the texts of a model."""
        entry, out = self.config.judges[judge], f"results/judges/{judge}/{model}"
        requests = [f"{out}/requests/{evaluation}.parquet" for evaluation in entry.evaluations]
        spec = specs.judge_requests_spec(self.config, judge, model)
        fields = {"spec": spec, **_DIRECTORIES, "results": "results", "out": f"{out}/requests"}
        assert self._run("judge-requests", fields) == 0
        record, status = f"resources/models/{entry.model}.json", f"{out}/inference_status/1of1.json"
        common = {
            "spec": specs.inference_spec(self.config, [entry.model]),
            "requests": requests,
            "store": "results/store",
        }
        assert self._run("infer", common | {"models": [record], "out": status}) == 0
        assert self._run("collect", common | {"model": record, "status": [status], "out": out}) == 0

    def encoder(self, name: str) -> dict:
        return {"spec": specs.encoder_spec(self.config, name), "out": f"resources/encoders/{name}.json"}

    def infer(self, base: str, shard: str = "1of1") -> dict:
        names = self.config.bases[base]
        inputs = {"models": [f"resources/models/{name}.json" for name in names], "requests": self._request_paths()}
        outputs = {"out": f"results/inference_status/{base}/{shard}.json", "store": "results/store"}
        return {"spec": specs.inference_spec(self.config, names), **inputs, **outputs, "shard": shard}

    def collect(self, name: str) -> dict:
        base = self.config.models[name].get("base", name)
        status = [f"results/inference_status/{base}/{shard}.json" for shard in self._shards(base)]
        inputs = {"model": f"resources/models/{name}.json", "requests": self._request_paths(), "status": status}
        spec = specs.inference_spec(self.config, [name])
        return {"spec": spec, **inputs, "out": f"results/{name}", "store": "results/store"}

    def similarity(self, name: str) -> dict:
        generations = [path.replace("requests", f"{name}/generations") for path in self._request_paths(config.COMPARED)]
        encoders = [f"resources/encoders/{encoder}.json" for encoder in self.config.encoders]
        files = {"model": f"resources/models/{name}.json", "encoders": encoders, "generations": generations}
        spec = specs.similarity_spec(self.config)
        return {"spec": spec, **files, **_DIRECTORIES, "out": f"results/{name}/similarity", "store": "results/store"}

    def metrics(self, name: str) -> dict:
        files = {"model": f"resources/models/{name}.json", **_DIRECTORIES, "out": f"results/{name}"}
        return {"spec": specs.metrics_spec(self.config, name), **files}

    def export(self, name: str) -> dict:
        tasks = [path.replace("requests", f"{name}/tasks") for path in self._request_paths(config.EXPORTED)]
        files = {"items_dir": "resources/items", "tasks": tasks, "out": f"results/exports/{name}"}
        return {"spec": specs.export_spec(self.config), **files}

    def compare(self, _: str) -> dict:
        files = {"results": "results", "out": "results/summary", "pairs": "results/compared/pairs.parquet"}
        return {"spec": specs.comparisons_spec(self.config), **files}

    def external(self, _: str) -> dict:
        files = {"results": "results", "items_dir": "resources/items", "out": "results/compared/external.parquet"}
        return {"spec": specs.external_results_spec(self.config), **files}

    def changes(self, _: str) -> dict:
        files = {"results": "results", "items_dir": "resources/items", "out": "results/comparisons"}
        return {"spec": specs.changes_spec(self.config), **files, **self._matched()}

    def faults(self, _: str) -> dict:
        files = {"results": "results", "items_dir": "resources/items", "out": "results/summary"}
        return {"spec": specs.faults_spec(self.config), **files, **self._matched()}

    def _matched(self) -> dict:
        return {"matched": "results/compared/external"} if self.config.external_results else {}

    def estimates(self, _: str) -> dict:
        return {
            "spec": specs.estimates_spec(self.config),
            "results": "results",
            "out": "results/summary/labels.parquet",
        }

    def audit_lists(self, _: str) -> dict:
        files = {"results": "results", "items_dir": "resources/items", "out": "results/summary"}
        return {"spec": specs.audit_spec(self.config), **files}

    def between_languages(self, _: str) -> dict:
        return {"spec": specs.languages_spec(self.config), "results": "results", "out": "results/summary"}

    def curves(self, _: str) -> dict:
        return {"spec": specs.curves_spec(self.config), "results": "results", "out": "results/summary"}

    def summary(self, _: str) -> dict:
        metrics = [f"results/{name}/metrics.parquet" for name in self.config.models]
        names = ["pairs", *["external"] * bool(self.config.external_results)]
        compared = [f"results/compared/{name}.parquet" for name in names]
        files = {"metrics": metrics, "compared": compared, "out": "results/summary"}
        return {"spec": specs.summary_spec(self.config), **files}

    def report(self, _: str) -> dict:
        models = [f"resources/models/{name}.json" for name in self.config.models]
        files = {"results": "results", "changes": "results/comparisons", "out": "results/report"}
        return {"spec": specs.report_spec(self.config), "models": models, **files}

    def finish(self, _: str) -> dict:
        return {"notes": "results/summary/notes.csv", "out": "results/summary/complete.txt"}


_DIRECTORIES = {"items_dir": "resources/items", "requests_dir": "results/requests"}


def run_stages(directory: Path, *, exports: bool = False) -> int:
    """Run all stages in `directory`, which has a config; return the status of the last.

    To stages of Snakemake, what they write is up to date, and the other way round.
    """
    with contextlib.chdir(directory):
        return Run(config.load(["config.yaml"]), has_versions=True).run_all(exports=exports)


@functools.cache
def _versions(command: str) -> dict:
    """Return the versions of code and libraries in the spec of a rule, as rules/common.smk adds them."""
    names = {"model": "fetch", "encoder": "fetch", "audit-lists": "audit"}
    module = f"vernacular.stages.{names.get(command, command.replace('-', '_'))}"
    return {"code": code_fingerprint(module), "libraries": {} if command == "infer" else libraries(module)}
