"""Positions in training that the names of checkpoints state: steps, tokens, words and samples.

Directories of Trainer (`checkpoint-500`), Megatron and GPT-NeoX (`iter_0001000`, `global_step143000`), NeMo and
Lightning (`…-step=1000-consumed_samples=8000.0`), and revisions of Pythia (`step1000`), OLMo (`step1000-tokens4B`,
`stage1-step1610000-tokens3377B`), DataDecide (`step1250-seed-default`), FineWeb (`step-001000-2BT`), BLOOM, OpenCoder
(`pretrain_iter_0373000`), RedPajama (`240b_tokens`) and BabyLM (`chck_10M`, words). A number that is an index or an
epoch (`ckpt_356`, `epoch_0`) is not a position.
"""

import re
from dataclasses import dataclass

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = r"(\d+(?:\.\d+)?)"
_SAMPLES = re.compile(r"(?<![a-z])consumed_samples[-_=]?(\d+)(?:\.0+)?(?![0-9a-z])", re.IGNORECASE)
_TOKENS = re.compile(rf"(?:consumed_)?tokens[-_=]?{_NUMBER}([kmbt]?)(?![0-9a-z])", re.IGNORECASE)
_TOKENS_AFTER = re.compile(rf"(?<![a-z0-9.]){_NUMBER}([kmbt]?)[-_]?tokens(?![0-9a-z])", re.IGNORECASE)
_TOKENS_SHORT = re.compile(rf"(?<![A-Za-z0-9.]){_NUMBER}([KMBT])T(?![0-9A-Za-z])")  # 2BT
_WORDS = re.compile(r"(?<![a-z])chck[-_=]?(\d+)([kmb])(?![0-9a-z])", re.IGNORECASE)
_STEP = re.compile(
    r"(?<![a-z])(?:global_?steps?|steps?|iter(?:ation)?|checkpoint|chck)[-_=]?(\d+)(?![0-9a-z])", re.IGNORECASE
)
_SETTING = re.compile(r"(?<![A-Za-z0-9])[A-Za-z_]+=[^-]*")  # val_loss=2.34
_MAX_DIGITS = 18  # a number of more digits is not a position, and no column can hold it
_SEPARATORS = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class Position:
    """Position of a checkpoint in training; None where its name does not state it."""

    step: int | None = None
    tokens: int | None = None  # as rounded in the name
    words: int | None = None
    samples: int | None = None
    phase: str = ""  # the rest of the name: steps restart in another stage, and another seed is another run

    @property
    def is_known(self) -> bool:
        return any(number is not None for number in (self.step, self.tokens, self.words, self.samples))


def parse_name(name: str) -> Position:
    """Return the position that the last part of a path, or a revision, states.

    >>> parse_name("stage2-ingredient3-step21000-tokens45B")
    Position(step=21000, tokens=45000000000, words=None, samples=None, phase='stage2-ingredient3')
    >>> parse_name("out/checkpoint-500").step, parse_name("main").is_known
    (500, False)
    """
    rest = name.rstrip("/").rpartition("/")[2]
    has_settings = "=" in rest
    samples, rest = _take(_SAMPLES, rest)
    tokens = None
    for pattern in (_TOKENS, _TOKENS_AFTER, _TOKENS_SHORT):
        if tokens is None:
            tokens, rest = _take(pattern, rest)
    words, rest = _take(_WORDS, rest)
    step, rest = _take(_STEP, rest)
    if has_settings:  # NeMo's names start with that of the experiment and contain losses
        stages = re.findall(r"(?:stage|ingredient)\d+", _SETTING.sub("", rest), re.IGNORECASE)
        rest = "-".join(stages)
    return Position(step, tokens, words, samples, _SEPARATORS.sub("-", rest).strip("-."))


def natural_key(text: str) -> list:
    """Return a sort key that orders numbers inside a text by value: stage2 before stage10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", text)]


def _take(pattern: re.Pattern, text: str) -> tuple[int | None, str]:
    """Return the number of the first match, with its factor, and the text without the match."""
    match = pattern.search(text)
    if not match or len(match[1]) > _MAX_DIGITS:
        return None, text
    number, factor = (*match.groups(), "")[:2]
    value = round(float(number) * _FACTORS[factor.lower()]) if "." in number else int(number) * _FACTORS[factor.lower()]
    if value >= 2**63:
        return None, text
    return value, f"{text[: match.start()]}-{text[match.end() :]}"
