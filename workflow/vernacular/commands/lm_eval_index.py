"""Command `lm-eval-index`: list the tasks of the lm_eval that is installed next to the running interpreter."""

import compileall
import json
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode

from vernacular.core.artifacts import replacing
from vernacular.core.errors import format_count
from vernacular.lm_eval.catalog import index_path
from vernacular.lm_eval.coverage import index


def lm_eval_index(args) -> str:
    """Write the index next to the environment's `bin`; it is read whenever the workflow is planned."""
    # Python recognizes stale bytecode by the time of the source, which an edit can keep, unless it has a hash of it
    compileall.compile_dir(
        Path(find_spec("lm_eval").origin).parent,
        quiet=2,
        force=True,
        invalidation_mode=PycInvalidationMode.CHECKED_HASH,
    )
    content = index()
    path = index_path(Path(sys.prefix) / "bin" / "python")
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    reasons = Counter(task["reason"] for task in content["tasks"].values() if task["reason"])
    for reason, count in reasons.most_common():
        print(f"  {format_count(count, 'task')}: {reason}")
    n_runnable = len(content["tasks"]) - sum(reasons.values())
    return f"lm-eval-index: {path}: {n_runnable} of {format_count(len(content['tasks']), 'task')} can be run"
