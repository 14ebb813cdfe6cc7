"""Files with a line per item, from translation: source, output and reference, as COMET and sacrebleu read them."""

README = """\
Source texts, outputs and reference translations, one per line, in the same order (ids.txt: the item of each line).

COMET reads them in an environment of its own, because its package does not install beside transformers 5:
    comet-score -s source.txt -t output.txt -r reference.txt --model Unbabel/wmt22-comet-da
It is not trained on all languages: XLM-R, on which it is based, lacks Asturian, Occitan, Maltese, Faroese, Northern
Sámi, Yoruba, Igbo, Kinyarwanda, Shona and Zulu, among others.

sacrebleu computes the values of the tables from them:
    sacrebleu reference.txt -i output.txt -m chrf bleu --chrf-word-order 2
    sacrebleu reference.txt -i output.txt -m bleu -tok flores200

Spaces and line ends within a text are one space. A failed generation has no line; an empty output is an empty line.
"""


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """Return {file name: content}; `pairs`: items with their result rows."""
    known = [(item, row["prediction"]) for item, row in pairs if row["prediction"] is not None]
    columns = {
        "ids.txt": [item["item_id"] for item, _ in known],
        "source.txt": [item["context"] for item, _ in known],
        "output.txt": [prediction for _, prediction in known],
        "reference.txt": [item["target"] for item, _ in known],
    }
    return {name: "".join(" ".join(text.split()) + "\n" for text in texts) for name, texts in columns.items()}
