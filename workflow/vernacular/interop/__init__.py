"""Formats and prompt styles of other tools; the package can be deleted without effect on other results.

Per-item results are written by protocol, values in the formats of lm-evaluation-harness and Every Eval Ever. A tool
with prompt styles is a package, such as `simil_eval`.
"""
