"""Formats and prompt styles of other tools, for their users; the package can be deleted as a block.

Per-item results are written by protocol; values as lm-evaluation-harness and Every Eval Ever have them. A tool with
prompt styles is a package, as `simil_eval`.
"""
