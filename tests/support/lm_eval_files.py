"""Task files in the layout of lm-evaluation-harness."""

import textwrap

from vernacular.data.lm_eval.settings import translate


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), "utf-8")
    return path


def settings(folder, text, **source):
    write(folder, "theirs.yaml", text)
    return translate({"lm-eval": "theirs.yaml", **source}, folder)
