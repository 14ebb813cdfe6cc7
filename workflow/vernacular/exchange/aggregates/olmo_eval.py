"""olmo-eval's `metrics.json`: a list of tasks, each with values by metric and, since 2026, by scorer."""

from collections.abc import Iterator

from vernacular.exchange.aggregates.rows import part


def fits(content: dict) -> bool:
    tasks = content.get("tasks")
    return isinstance(tasks, list) and all(isinstance(each, dict) and "metrics" in each for each in tasks)


def read(content: dict) -> Iterator[dict]:
    """Yield the values of all tasks; olmo-eval states no standard errors."""
    for entry in content["tasks"]:
        own = part(entry, "config")
        source = own.get("data_source")
        source = {"path": source} if isinstance(source, str) else part(own, "data_source")
        path = source.get("path")
        row = {"tool": "olmo-eval", "model": entry.get("model") or part(content, "config").get("model")}
        row |= {"task": entry.get("task") or entry.get("task_name"), "n": entry.get("num_instances")}
        row |= {
            "shots": own.get("num_fewshot"),
            "dataset": path.removeprefix("hf://") if isinstance(path, str) else None,
        }
        row |= {"configuration": source.get("subset"), "split": source.get("split"), "revision": source.get("revision")}
        for metric, values in part(entry, "metrics").items():
            scorers = values if isinstance(values, dict) else {"": values}
            for scorer, value in scorers.items():
                yield row | {"metric": f"{metric},{scorer}" if len(scorers) > 1 else metric, "value": value}
