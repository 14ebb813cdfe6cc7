"""olmo-eval's `metrics.json`: a list of tasks, each with values by metric and, since 2026, by scorer."""

from vernacular.exchange.aggregates.rows import Aggregate, aggregate, part, parts


def is_olmo_eval(content: dict) -> bool:
    tasks = content.get("tasks")
    return isinstance(tasks, list) and all(isinstance(each, dict) and "metrics" in each for each in tasks)


def read(content: dict, location: str) -> list[Aggregate | str]:
    """Return the values of all tasks; olmo-eval states no standard errors."""
    rows, general = [], part(content, "config")
    for entry in content["tasks"]:
        own, metrics = part(entry, "config"), part(entry, "metrics")
        source = own.get("data_source")
        source = {"path": source} if isinstance(source, str) else part(own, "data_source")
        path, nested = source.get("path"), [(name, scorer, value) for name, each in parts(metrics)
                                            for scorer, value in each.items()]  # fmt: skip
        flat = [(name, "", value) for name, value in metrics.items() if not isinstance(value, dict)]
        several = {name for name, each in parts(metrics) if len(each) > 1}
        for metric, scorer, value in nested + flat:
            rows.append(
                aggregate(
                    location=location,
                    tool="olmo-eval",
                    version=None,
                    model=entry.get("model") or general.get("model"),
                    task=entry.get("task") or entry.get("task_name"),
                    metric=f"{metric},{scorer}" if metric in several else metric,
                    value=value,
                    n=entry.get("num_instances"),
                    shots=own.get("num_fewshot"),
                    dataset=path.removeprefix("hf://") if isinstance(path, str) else None,
                    configuration=source.get("subset"),
                    split=source.get("split"),
                    revision=source.get("revision"),
                )
            )
    return rows
