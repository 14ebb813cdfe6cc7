"""Command `treebank`: treebanks and patterns -> minimal pairs, as an explanation or as CSV."""

from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.data.treebank.pairs import MASK, Pairs, shorten_context
from vernacular.data.treebank.patterns import builtin_patterns, load_pattern
from vernacular.data.treebank.source import Extraction, extract


def treebank(args) -> str:
    """Extract minimal pairs from treebanks with patterns; print an explanation, write a CSV file, or both.

    Without a pattern, list the included ones.
    """
    if not args.pattern:
        patterns = {name: load_pattern(name)["phenomenon"] for name in builtin_patterns()}
        width = max(map(len, patterns))
        print("\n".join(f"{name:<{width}}  {phenomenon}" for name, phenomenon in patterns.items()))
        return f"treebank: {format_count(len(patterns), 'included pattern')}; choose with --pattern NAME"
    extracted = extract(args.treebank, [load_pattern(name) for name in args.pattern], args.forms)
    if args.csv:
        from vernacular.interop.grew_tse import pairs_csv

        with artifacts.replacing(args.csv) as temporary:
            temporary.write_text(pairs_csv(extracted.rows), "utf-8")
    if args.explain or not args.csv:
        print(explain(extracted, examples=args.examples))
    matches = sum(pairs.related for pairs in extracted.pairs)
    used = [format_count(matches, "match", "matches"), format_count(extracted.sentences, "sentence")]
    return f"treebank: {format_count(len(extracted.rows), 'pair')} from {' in '.join(used)}"


def explain(extracted: Extraction, examples: int = 5) -> str:
    """Return the steps of each pattern with counts, up to `examples` pairs, and a few rejected matches per reason."""
    lines = [f"{extracted.sentences:,} sentences, {extracted.words:,} words"]
    if extracted.mismatches:
        ids = ", ".join(extracted.mismatches[:5]) + (", …" if len(extracted.mismatches) > 5 else "")
        lines.append(
            f"{len(extracted.mismatches)} of them: `# text` differs from the joined tokens, which are used ({ids})"
        )
    for name, reasons in extracted.skipped_lines.items():
        lines.append(f"{name}: lines skipped: " + ", ".join(f"{reason} ({n})" for reason, n in reasons.items()))
    for pairs in extracted.pairs:
        lines += ["", *_steps(pairs), *_pairs(pairs, examples), *_rejected_matches(pairs, min(examples, 3))]
    return "\n".join(lines)


def _steps(pairs: Pairs) -> list[str]:
    pattern = pairs.pattern
    lines = [f"{pattern['pattern']} ({pattern['phenomenon']})"]
    if "grew" in pattern:
        lines.append(f"{pairs.related:9,}  matches of the GREW request")
    else:
        lines.append(f"{pairs.targets:9,}  words match the target")
        lines.append(f"{pairs.related - pairs.targets:9,}    related words missing, or a forbidden word present")
        lines.append(f"{pairs.related:9,}  matches")
    lines += [f"{-n:9,}    {reason}" for reason, n in pairs.rejections.most_common()]
    return [*lines, f"{len(pairs.rows):9,}  pairs, {len({row['lemma'] for row in pairs.rows}):,} lemmas"]


def _pairs(pairs: Pairs, examples: int) -> list[str]:
    """Return pairs evenly spread over the treebank, so that a larger number of examples covers other texts."""
    step = max(1, len(pairs.rows) // examples) if examples else 1
    lines = []
    for row in pairs.rows[::step][:examples]:
        incorrect = [text for name, text in row.items() if name.startswith("form_ungrammatical")]
        forms = f"[[{row['form_grammatical']}|{'|'.join(incorrect)}]]"
        prefix, suffix = row["masked_text"].split(MASK, 1)
        lines.append(f"    {row['sentence_id']}  {shorten_context(prefix, forms, suffix)}")
        lines.append(f"        {row['lemma']}: {row['features']} -> {row['swapped']}")
    return lines


def _rejected_matches(pairs: Pairs, examples: int) -> list[str]:
    lines = []
    for reason, texts in pairs.rejection_examples.items() if examples else ():
        lines += [f"  {reason}, for example:", *(f"    {text}" for text in texts[:examples])]
    return lines
