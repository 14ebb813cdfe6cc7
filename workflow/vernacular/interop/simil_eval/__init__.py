"""Prompt styles of Simil-Eval (Rodríguez et al., Findings of ACL 2025): prompts, answer parser and MoverScore.

Each module is imported by the one that it extends, so that a key covers only what its rule uses: `prompts.py` by
`protocols/generation/requests.py`, `answers.py` by `metrics/similarity/outputs.py`, `moverscore.py` by
`metrics/similarity/moverscore.py`; the names of the styles by `protocols/generation/__init__.py`.
"""

STYLES = ("simil-eval", "simil-eval-open")
