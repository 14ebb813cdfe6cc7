"""Command `answers`: the store -> one model's scores and generations."""

from vernacular.commands.common import asked_as
from vernacular.core.errors import ArtifactError
from vernacular.core.records import failures
from vernacular.inference.answers import lay_out


def answers(args) -> str:
    """One model's scores and generations, laid out from the store; `--asked` are the records that the jobs are done."""
    record = asked_as(args.model, args.spec)
    asked = {path.stem: path for path in args.requests}
    try:
        failed = {e: reason for path in args.asked for e, reason in failures(path, record["name"]).items()}
        counts = lay_out(record, asked, args.out, args.store, shards=len(args.asked), failed=failed)
    except ArtifactError:
        for path in args.asked:  # so that the next run asks again
            path.unlink(missing_ok=True)
        raise
    return f"answers: {record['name']}: " + ", ".join(f"{n} evaluations {how}" for how, n in counts.items() if n)
