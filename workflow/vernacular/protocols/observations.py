"""What the rows of one evaluation of a model show: counts of symptoms in prompts and responses, labels and lengths.

Rows are counted in parts while the metrics read them; `diagnosis.py` decides what explains the value.
"""

import itertools
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from vernacular.core.errors import shortened
from vernacular.core.metadata import Example, LabelCount, Profile
from vernacular.metrics.classification import is_classification
from vernacular.metrics.spans import probabilities
from vernacular.metrics.tokens import readable_token
from vernacular.protocols.generation.metrics import normalize
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import Generation, Item, Request, Result, Role, Score, correct_answers, skipped_reason

N_EXAMPLES, EXCERPT = 3, 120  # items per symptom; characters of a text
MIN_WORDS = 20  # of a text that can repeat itself, and of a run of words from the prompt
_LABELS = 12  # largest number of distinct correct texts that count as labels
_NOTHING_EXTRACTED = "[invalid]"  # of lm-eval's filters
_FORMS = (
    r"<[|｜][\w▁ ]+[|｜]?>|<[\w]+\|>|</?(?:think|thinking|thought|reason|reasoning|assistant|user|system|start_of_turn|"
    r"end_of_turn|bos|eos|pad|unk|s)>|\[/?(?:INST|THINK|SYS)\]|◁/?think▷"
)
_MARKER = re.compile(rf"\s*(?:{_FORMS}|(?:analysis|thought|assistant|user|system)(?=$|[\n:<A-ZА-Я]|final))")
_TEMPLATE_TOKEN = re.compile(
    r"<\|(?:im_start|start_header_id|user|assistant|turn|channel|start)\|?>|<start_of_turn>|\[INST\]"
)
_TWO_BOS = re.compile(r"(<[^<>\s]{1,40}>)\s*\1")
_REASONED = ("closed", "unclosed", "reopened")  # states of the reasoning before an answer


@dataclass(frozen=True)
class Subject:
    """What is known of an evaluation of a model before its rows."""

    protocol: str
    style: str = "default"
    refusals: tuple[str, ...] = ()  # beginnings of refusals, in the language and in English
    has_chat_template: bool | None = None
    reasons_by_default: bool = False  # whether prompts ask for reasoning, and no setting of the model says so


class Found:
    """The items with a symptom: their number, the first three, and what was found how often."""

    def __init__(self):
        self.count, self.examples, self.texts = 0, [], Counter()

    def add(self, item: str, text: str, kind: str = "") -> None:
        self.count += 1
        self.texts[kind] += 1
        if len(self.examples) < N_EXAMPLES:
            self.examples.append(Example(item=item, text=shortened(text, EXCERPT)))


class Observations:
    """Counts of what the rows of an evaluation show."""

    def __init__(self, subject: Subject):
        self.subject, self.protocol = subject, PROTOCOLS[subject.protocol]
        self.found: defaultdict[str, Found] = defaultdict(Found)  # by code
        self.incorrect = Found()
        self.n_rows = self.n_responses = self.n_prompts = self.n_unclosed = 0
        self.answers: Counter[str] = Counter()  # normalized
        self.answered: defaultdict[str, list[str]] = defaultdict(list)  # the first items with each
        self.gold_texts: Counter[str] = Counter()
        self.choices: dict[tuple, None] = {}  # distinct lists of options; of several, only that there are
        self.decisions: list[tuple[str, int, int]] = []  # item, correct and chosen option (-1: none, or a tie)
        self.texts: list[tuple[str, str, str]] = []  # item without options, correct text and answer, normalized
        self.masses: dict[str, float] = {}  # probability of all labels, by item
        self.places: dict[str, np.ndarray] = {}  # mean probability of each letter over all rotations, by item
        self.surprisals: list[tuple[float, bool, str]] = []  # of sentences: nats, whether it is acceptable, item
        self.top_tokens: Counter[str] = Counter()
        # by item: rank of the chosen option's length minus that of the correct one, of the possible range
        self.ranks: dict[str, float] = {}
        self.lengths: list[tuple[float, float, float]] = []  # characters: chosen, correct, mean of the options
        self.chosen: dict[str, tuple[int, str]] = {}  # position in the dataset and text of the choice, by item

    def add(self, items: list[Item], requests: list[Request], outputs: list, rows: list[Result]) -> None:
        """Count what some items show, with all of their rows."""
        item_by_id = {item["item_id"]: item for item in items}
        request_by_key = {(request["item_id"], request["role"]): request for request in requests}
        outputs_by_item = defaultdict(list)
        for output in outputs:
            outputs_by_item[output["item_id"]].append(output)
        for row in rows:
            item, own = item_by_id[row["item_id"]], outputs_by_item[row["item_id"]]
            self._add_row(row, item, own)
            if self.protocol.letters:
                self._add_rotations(row["item_id"], own, request_by_key)
            for number, output in enumerate(own):
                request = request_by_key.get((output["item_id"], output["role"]))
                if request is None or skipped_reason(output["role"]) is not None:
                    continue
                self._add_prompt(request, output)
                has_text = self.protocol.generates and output["raw_output"] is not None
                if has_text and "error" not in (output["flags"] or ""):
                    self._add_response(row if not number else None, item, request, output)

    def _add_row(self, row: Result, item: Item, outputs: list) -> None:
        """Count the choice of an item, its labels and lengths, and whether it was dropped."""
        self.n_rows += 1
        chosen, options = row["predicted_indices"] or [], row["choices"]
        gold = [i for i in row["gold"] if 0 <= i < len(options)]
        flags = [part for part in (row["flags"] or "").split("; ") if part.startswith(("error", "truncated"))]
        if flags or row["tie"]:
            text = flags[0] if flags else f"tie: {' | '.join(options[i] for i in chosen)}"
            self.found["dropped"].add(row["item_id"], text, text.partition(":")[0])
        if row["correct"] is False:
            correct = [chr(65 + i) for i in gold] if self.protocol.letters else correct_answers(item)
            names = " | ".join(shortened(text, 40) for text in correct)
            self.incorrect.add(row["item_id"], f"gold {names}, predicted {row['prediction'] or 'none'}")
        elif "label" in row["metrics"] and "surprisal" in row["metrics"]:
            is_acceptable = row["metrics"]["label"] == 1
            self.surprisals.append((row["metrics"]["surprisal"], is_acceptable, row["item_id"]))
        if not options:
            return
        if len(self.choices) < 2:
            self.choices[tuple(options)] = None
        choice = chosen[0] if len(chosen) == 1 else -1
        if choice >= 0:
            text = options[choice]
            self.chosen[row["item_id"]] = item["choices"].index(text) if text in item["choices"] else -1, text
        if self.protocol.generates and not self.protocol.letters:
            return
        self._add_decision(row["item_id"], gold, choice)
        is_log = not is_classification(item) or self.protocol.letters  # and not mutual information
        if row["option_scores"] and is_log and (self.protocol.letters or _are_single_tokens(outputs)):
            self.masses[row["item_id"]] = min(1.0, sum(map(math.exp, row["option_scores"])))
            self.top_tokens.update(_top_token(outputs))
        if gold and choice >= 0 and len(options) > 1:
            lengths = np.array([len(text) for text in options])
            ranks = (lengths[:, None] > lengths).sum(1) + (lengths[:, None] == lengths).sum(1) / 2
            self.ranks[row["item_id"]] = float(ranks[choice] - ranks[gold].mean()) / (len(options) - 1)
            self.lengths.append((lengths[choice], lengths[gold].mean(), lengths.mean()))

    def _add_rotations(self, item: str, outputs: list, request_by_key: dict) -> None:
        """Keep the mean probability of each letter, if every option was offered with every letter."""
        logliks: defaultdict[int, dict[str, float]] = defaultdict(dict)  # by rotation and letter
        for output in outputs:
            request, values = request_by_key.get((item, output["role"])), output.get("logprobs") or [None]
            if request and output["role"].startswith("choice:") and None not in values:
                letter = request["text"][request["span_start"] - len(request["prefix"]) :].strip()
                logliks[Role.parse(output["role"]).rotation][letter] = sum(values)
        names = sorted(set().union(*logliks.values()))
        if len(names) > 1 and len(logliks) == len(names) == min(map(len, logliks.values())):
            shares = [probabilities([by_letter[name] for name in names]) for by_letter in logliks.values()]
            if np.isfinite(shares).all():
                self.places[item] = np.mean(shares, axis=0)

    def _add_decision(self, item: str, gold: list[int], choice: int) -> None:
        if gold:
            self.decisions.append((item, choice if choice in gold else gold[0], choice))

    def _add_prompt(self, request: Request, output: Score | Generation) -> None:
        self.n_prompts += 1
        rendered, kinds = output["rendered"], []
        if rendered is not None and _TWO_BOS.match(rendered):
            kinds.append("begin with two BOS tokens")
        if rendered is None and self.protocol.generates and self.subject.has_chat_template:
            kinds.append("are plain text, although the model has a chat template")
        elif rendered is None and (token := _TEMPLATE_TOKEN.search(request["text"])):
            kinds.append(f"are plain text with the template token {token.group()}")
        if rendered is not None and self.subject.reasons_by_default:
            kinds.append("ask for reasoning by the default of the chat template, because enable_thinking is not set")
        if "system turn" in (output["flags"] or ""):
            kinds.append("lost their system turn, which the template rejects")
        decoding = (request["decoding"] or {}) | (request.get("gen_kwargs") or {})
        is_greedy = decoding.get("temperature") == 0 or decoding.get("do_sample") is False
        if is_greedy and output.get("think_state") in _REASONED:
            kinds.append("ask for greedy decoding with reasoning, in which models repeat themselves")
        if kinds:
            self.found["template"].add(request["item_id"], rendered or request["text"], "; ".join(kinds))

    def _add_response(self, row: Result | None, item: Item, request: Request, output: Generation) -> None:
        """Count the symptoms of a generated text; `row` has what was extracted from it, if it is the item's first."""
        self.n_responses += 1
        raw, answer, is_unclosed = output["raw_output"], output["output"] or "", output.get("think_state") == "unclosed"
        extracted = answer if row is None or row["prediction"] is None else row["prediction"]
        references = list(map(normalize, correct_answers(item)))

        def add(code: str, text: str = answer, kind: str = "") -> None:
            self.found[code].add(item["item_id"], text, kind)

        if (marker := _MARKER.match(answer)) and normalize(answer) not in references:
            add("marker", kind=marker.group().strip())
        is_extracted = extracted.strip() and extracted != _NOTHING_EXTRACTED
        # complete: something after the answer ended it
        is_named = row and self.protocol.letters and row["predicted_indices"]  # a cut letter is not extracted
        is_ended = is_extracted and not raw.rstrip().endswith(extracted.rstrip())
        is_complete = (row and row["correct"]) or is_named or (is_ended and not self.protocol.letters)
        is_cut = output["finish_reason"] == "length" and request["max_new_tokens"] is not None and not is_complete
        self.n_unclosed += is_unclosed
        if is_unclosed or is_cut:
            add("truncated", raw[-EXCERPT:])
        elif not (answer if self.protocol.tool else extracted).strip():
            add("empty", raw)
        elif self._lacks_answer(row, item, request, extracted):
            add("format")
        if repeats(raw):
            add("loop", raw)
        if answer.lstrip().replace("’", "'").casefold().startswith(self.subject.refusals):
            add("refusal")
        if copies(answer, request["text"], [item["context"], *item["choices"]]):
            add("echo")
        if answer.strip():
            self.answers[text := normalize(answer)] += 1
            if len(self.answered[text]) < N_EXAMPLES:
                self.answered[text].append(item["item_id"])
            self.gold_texts.update(references[:1])
        if self.protocol.letters:
            return
        if len(self.choices) == 1:  # labels: the one with which the response begins
            text = f"{normalize(extracted)} "
            labels = [i for i, option in enumerate(item["choices"]) if text.startswith(f"{normalize(option)} ")]
            self._add_decision(item["item_id"], item["gold"], labels[0] if len(labels) == 1 else -1)
        elif not item["choices"] and references:
            self.texts.append((item["item_id"], references[0], normalize(extracted)))

    def _lacks_answer(self, row: Result | None, item: Item, request: Request, answer: str) -> bool:
        """Return whether no answer can be found in a response: none of the options, if the prompt shows them."""
        if self.has_parser:
            return answer == _NOTHING_EXTRACTED if self.protocol.tool else bool(row) and not row["predicted_indices"]
        if not item["choices"] or not all(option in request["text"] for option in item["choices"]):
            return False
        text = f" {normalize(answer)} "
        return not any(f" {normalize(option)} " in text for option in item["choices"])

    @property
    def has_parser(self) -> bool:
        """Whether answers are extracted from responses."""
        return self.protocol.tool is not None or self.protocol.letters

    @property
    def has_labels(self) -> bool:
        """Whether the options are labels: letters, or the same texts for all items."""
        return self.protocol.letters or len(self.choices) == 1

    def labels(self) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
        """Return the names of labels, the items, and of each the correct and the predicted label (-1: none).

        Labels are letters, options that all items share, or a few distinct correct texts.
        """
        decisions, names = [], []
        if self.has_labels:
            decisions = self.decisions
            n_labels = max((max(gold, choice) + 1 for _, gold, choice in decisions), default=0)
            names = [chr(65 + i) for i in range(n_labels)] if self.protocol.letters else list(*self.choices)
        elif len(distinct := dict.fromkeys(gold for _, gold, _ in self.texts)) <= min(_LABELS, len(self.texts) / 5):
            names, codes = list(distinct), {name: code for code, name in enumerate(distinct)}
            decisions = [(item, codes[gold], codes.get(answer, -1)) for item, gold, answer in self.texts]
        gold, chosen = np.array([row[1:] for row in decisions], int).reshape(-1, 2).T
        return names if decisions else [], [row[0] for row in decisions], gold, chosen

    def profile(self) -> Profile:
        """Return how the model answers: its labels and their probability, and the length of what it chooses."""
        names, _, gold, chosen = self.labels()
        has_mass = self.masses and self.has_labels
        pairs = Counter(zip(gold.tolist(), chosen.tolist(), strict=True))
        predicted = [*range(len(names)), -1]
        return Profile(
            labels=[
                LabelCount(label=shortened(name, 40), predicted=int((chosen == i).sum()), gold=int((gold == i).sum()))
                for i, name in enumerate(names)
            ],
            confusion=[[pairs[i, j] for j in predicted] for i in range(len(names))],
            without_label=int((chosen < 0).sum()),
            label_mass=float(np.median(list(self.masses.values()))) if has_mass else None,
            top_tokens=dict(self.top_tokens.most_common(5)) if has_mass else {},
            lengths=np.mean(self.lengths, axis=0).tolist() if len(self.choices) > 1 and self.lengths else None,
        )


def repeats(text: str) -> bool:
    """Return whether a text of 20 words or more repeats itself: half of its 4-grams, or a line three times in a row.

    >>> repeats("the cat " * 10), repeats("the cat " * 3)
    (True, False)
    """
    words = text.split()
    if len(words) < MIN_WORDS:
        return False
    grams = list(zip(*(words[i:] for i in range(4)), strict=False))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return len(set(grams)) <= 0.5 * len(grams) or any(len(list(group)) > 2 for _, group in itertools.groupby(lines))


def copies(answer: str, prompt: str, excluded: list[str]) -> bool:
    """Return whether an answer has 20 consecutive words, or 80 % of its 8-grams, of the prompt without some texts."""
    words = normalize(answer).split()
    if len(words) < 8:
        return False
    for text in sorted(filter(None, excluded), key=len, reverse=True):
        prompt = prompt.replace(text, "\n")
    source, grams = normalize(prompt).split(), list(zip(*(words[i:] for i in range(8)), strict=False))
    known = set(zip(*(source[i:] for i in range(8)), strict=False))
    is_known = [gram in known for gram in grams]
    run = max((len(list(group)) for found, group in itertools.groupby(is_known) if found), default=0)
    return sum(is_known) >= 0.8 * len(is_known) or run > MIN_WORDS - 8


def _are_single_tokens(outputs: list) -> bool:
    """Return whether the scored options of an item are single tokens."""
    spans = [row["tokens"] for row in outputs if row["role"].startswith("choice:")]
    return bool(spans) and all(span is not None and len(span) == 1 for span in spans)


def _top_token(outputs: list) -> list[str]:
    """Return the most probable token in place of the labels; [] if it was not stored."""
    for row in outputs:
        is_choice = row["role"].startswith("choice:") and not Role.parse(row["role"]).rotation
        if is_choice and row.get("top_tokens"):
            tokens = [readable_token(token) for token in row["top_tokens"][:1] if token is not None]
            return [token.replace("\n", "\\n").replace("\t", "\\t") for token in tokens]
    return []
