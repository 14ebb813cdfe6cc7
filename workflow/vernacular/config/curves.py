"""Dependencies of the results that concern the curves of series: the position of each checkpoint."""

from vernacular.config.load import Config
from vernacular.types import SETTING


def curves_spec(config: Config) -> dict:
    """Return the evaluations, and the checkpoints of each curve in the order of training."""
    evaluations = {e.id: {key: getattr(e, key) for key in SETTING} for e in config.evaluations.values()}
    return {"evaluations": evaluations, **checkpoints_spec(config)}


def checkpoints_spec(config: Config) -> dict:
    """Return the position of each checkpoint; {} without series, whose keys do not change then.

    A list, because the keys of a spec are sorted, and `step10` precedes `step2` then.
    """
    checkpoints = [{"model": name, **checkpoint.as_dict()} for name, checkpoint in config.checkpoints.items()]
    return {"checkpoints": checkpoints} if checkpoints else {}
