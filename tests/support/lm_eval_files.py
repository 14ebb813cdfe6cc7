"""Task files in the format of lm-evaluation-harness."""

import textwrap

from vernacular.data.lm_eval.settings import translate


def write(directory, name, text):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), "utf-8")
    return path


def settings(directory, text, **source):
    write(directory, "theirs.yaml", text)
    return translate({"lm-eval": "theirs.yaml", **source}, directory)
