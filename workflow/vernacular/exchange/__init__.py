"""Formats of other tools: per-item results by protocol, and values of lm-evaluation-harness and Every Eval Ever."""

from vernacular.core.paths import WORKFLOW

# protocol -> the tool whose format its per-item results have (`source_tools.TOOLS`)
EXPORTS = {"letters": "palmx", "cloze": "serbian_cloze", "target_word": "grew_tse",
           "translation": "line_files"}  # fmt: skip
READMES = WORKFLOW / "exports"  # a file for each tool: how its format differs from what the tool itself writes
SUMMARY_EXPORTS = ("lm_eval", "every_eval_ever")  # directories next to the tables of all models
