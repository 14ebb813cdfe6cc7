"""Command `treebank`: treebanks and patterns -> minimal pairs, explained or as CSV."""

from vernacular.core import artifacts
from vernacular.data.treebank.explain import csv_text, explain
from vernacular.data.treebank.patterns import load_pattern
from vernacular.data.treebank.source import extract


def treebank(args) -> str:
    """The minimal pairs that patterns find in treebanks: explained, or as a CSV file, or both."""
    found = extract(args.treebank, [load_pattern(name) for name in args.pattern], args.forms)
    if args.csv:
        with artifacts.replacing(args.csv) as temporary:
            temporary.write_text(csv_text(found.rows), "utf-8")
    if args.explain or not args.csv:
        print(explain(found, examples=args.examples))
    matches = sum(pairs.related for pairs in found.pairs)
    return f"treebank: {len(found.rows)} pairs of {matches} matches in {found.sentences} sentences"
