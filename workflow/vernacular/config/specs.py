"""Specs: what the result of each rule depends on in addition to its input files.

`config/dependencies.py` makes a spec from the config, a rule has it as a parameter, and its command reads it.
"""

from dataclasses import field

from vernacular.core.fields import Fields
from vernacular.types import DEFAULT_PROMPT


class Spec(Fields):
    """What all specs have."""

    code: str = ""  # hash of the command and of the modules that it imports
    libraries: dict[str, str | None] = field(default_factory=dict)  # their versions; None: not installed


class DatasetSpec(Fields):
    """The rows of a dataset in one language."""

    task: dict  # the task file, with this language only
    language: str  # BCP 47 tag
    data: str  # "hub" or "samples"
    limit: int | None  # maximum number of items
    files: dict[str, str | None]  # SHA-256 of local files by path; None: missing


class ItemsSpec(Spec):
    items: dict[str, DatasetSpec]  # by the stem of the items file


class PromptSpec(Fields):
    """The requests of an evaluation."""

    evaluation: str  # ID
    items_stem: str  # name of the items file without its extension
    task: dict  # of the task file: task, item_type and protocols, and pair: the source and target of a translation
    language: str  # BCP 47 tag
    protocol: str  # that shows the items and measures outputs
    shots: int  # number of few-shot examples
    seed: int  # of their choice
    style: str  # of the prompts
    options: dict  # of the protocol
    prompts: dict | None  # prompt lines of the language; None: it has none
    prompt: str = DEFAULT_PROMPT  # name of the prompt


class RequestsSpec(Spec):
    evaluations: dict[str, PromptSpec]  # by ID


class SettingSpec(Fields):
    """What identifies an evaluation, in addition to its prompt."""

    task: str  # name of the benchmark
    language: str  # BCP 47 tag
    protocol: str  # that shows the items and measures outputs
    shots: int  # number of few-shot examples
    seed: int  # of their choice
    style: str  # of the prompts


class UnitSpec(SettingSpec):
    """A unit of lm-eval: its documents, requests and metrics."""

    evaluation: str  # ID
    items_stem: str  # name of the items file without its extension
    limit: int | None  # maximum number of documents
    entry: str  # as in the config
    unit: str  # name in lm-eval
    reason: str | None  # why it cannot be run
    generates: bool  # whether texts are generated, not scored
    num_fewshot: int | None  # None: as the task file says
    directories: list[str]  # of custom task files
    trust_functions: bool  # whether functions of custom task files are run
    trusted: bool  # whether its templates run without limits
    versions: dict[str, str | None]  # of Python and lm-eval's libraries
    package: str  # hash of lm-eval's code
    files: dict[str, str | None]  # hashes of task files, modules and rows
    prompt: str | None = None  # name of the prompt, if groups are expanded to prompts
    options: dict = field(default_factory=dict)  # gen_kwargs and fewshot_as_multiturn


class LmEvalSpec(Spec):
    evaluations: dict[str, UnitSpec]  # by ID
    model: str | None = None  # whose metrics are computed


class ModelSpec(Spec):
    name: str  # in the config
    source: str | None = None  # Hub ID, path or package; None: an adapter
    kind: str | None = None  # "auto", "causal", "masked" or "seq2seq"
    adapter: str | None = None  # Hub ID or path of an adapter
    files: str  # changes with the content of the files
    allow_pickle: bool  # whether weights in pickle files are read
    trust_remote_code: bool | None = None  # whether code of the model is run; None: an adapter
    allow_base_mismatch: bool | None = None  # whether an adapter of another base is used
    checkpoint: bool = False  # whether results remain if the model is deleted
    as_is: bool = False  # whether a GGUF file is run by llama.cpp, and not converted for transformers


class EncoderSpec(Spec):
    name: str  # of its files
    source: str  # Hub ID, path or package
    files: str  # changes with the content of the files
    layer: int | None = None  # whose vectors are compared; None: the last
    prefix: str | None = None  # that precedes every sentence; None: as the encoder defines
    allow_pickle: bool | None = None  # whether weights in pickle files are read; None: not
    tokenizer_pipeline: str | None = None  # whether tokenizer.json or the class of the tokenizer decides


class ServerSpec(Spec):
    name: str  # in the config
    source: str  # address
    model: str | None = None  # name on the server; None: its only model
    tokenizer: str | None = None  # Hub ID or path
    revision: str | None = None  # as the user states it
    reference: str | None = None  # model on this disk whose outputs are compared
    api_key_env: str | None = None  # environment variable with the key
    concurrency: int | None = None  # number of requests at a time
    timeout: float | None = None  # seconds without a byte
    chat: object = None  # whether prompts are chats; "auto"
    chat_template_args: dict | None = None  # arguments of the server's template
    enable_thinking: bool | None = None  # whether it asks for reasoning
    system_instruction: str | None = None  # text of the system turn
    max_length: int | None = None  # tokens
    tokenizer_files: dict[str, str | None]  # SHA-256 by name
    trial: bool = False  # whether all evaluations have few items


class InferenceSpec(Spec):
    models: dict[str, dict]  # settings that affect outputs or the device, by model
    engines: dict[str, str]  # version of the engine, by kind of output


class SimilaritySettings(Fields):
    """The similarity metrics of an evaluation."""

    evaluation: str  # ID
    items_stem: str  # name of the items file without its extension
    language: str  # BCP 47 tag
    style: str  # of the prompts
    metrics: list[dict]  # each with its options
    encoders: dict[str, str]  # name of the encoder by metric


class SimilaritySpec(Spec):
    evaluations: dict[str, SimilaritySettings]  # by ID


class EvaluationSpec(SettingSpec):
    """What identifies an evaluation (`types.SETTING`)."""

    prompt: str  # its name


class MeasuredSpec(EvaluationSpec):
    """The labels and items of an evaluation."""

    items_stem: str  # name of the items file without its extension


AnswerWords = dict[str, list[str]]


class RubricSpec(Fields):
    """How a judge is asked in a language, and what its verdicts are worth (protocols/rubrics.py)."""

    template: str  # of the prompt
    texts: list[str]  # verdicts, in the order of their letters
    values: list[float]  # of the verdicts; of two responses, that of the first one
    cue: str  # what the verdict follows
    instruction: str = ""  # last lines of the prompt, if a text is generated
    pattern: str = ""  # regular expression that finds a verdict in a text; "": its letter is searched
    reads: str  # "text", or "log_probabilities" of the labels

    @property
    def is_pair(self) -> bool:
        """Whether two responses are compared."""
        return "{first}" in self.template


class JudgedSpec(Fields):
    """The responses of one evaluation that a judge reads."""

    evaluation: str  # ID
    items_stem: str  # name of the items file without its extension
    task: str  # name of the benchmark
    rubric: RubricSpec  # in the language below
    language: str  # of the rubric


class JudgeRequestsSpec(Spec):
    judge: str  # name
    model: str  # whose responses are judged
    baseline: str | None = None  # whose responses they are compared with
    evaluations: dict[str, JudgedSpec]  # by ID


class JudgmentSpec(Fields):
    """How the values of a judge are read from its outputs."""

    judge: str  # name
    model: str  # that judges
    name: str  # of the rubric, with its language
    rubric: RubricSpec  # its scale, parser and template
    baseline: str | None = None  # whose responses the judged ones are compared with
    reviewed: bool = False  # whether a speaker has read the rubric
    labeled: bool = False  # whether speakers have labeled responses of the evaluation; if not, values are unvalidated
    answers: list[AnswerWords]  # words around a letter


class MetricsSpec(Spec):
    model: str  # name in the config
    evaluations: dict[str, MeasuredSpec]  # by ID
    refusals: dict[str, list[str]]  # by language: beginnings of refusals, also those in English
    answers: dict[str, list[AnswerWords]] = field(default_factory=dict)  # by language: words around a letter
    judges: dict[str, list[JudgmentSpec]] = field(default_factory=dict)  # of this model's responses, by evaluation


class ComparedSpec(MeasuredSpec):
    """The labels, items and data of an evaluation."""

    dataset: str  # the data, which all prompts share


class ExternalSpec(Fields):
    """External results."""

    path: str  # of a file or directory
    model: str | None = None  # of a publication
    files: dict[str, str]  # SHA-256 by path; of an invalid publication, the reason


class PairsSpec(Spec):
    models: list[str]  # in the order of the config
    pairs: list[list[str]]  # baseline and candidate
    evaluations: dict[str, ComparedSpec]  # by ID


class ComparisonsSpec(PairsSpec):
    earlier_checkpoints: list[str] = field(default_factory=list)  # models tested against the best of each column only


class SidesSpec(PairsSpec):
    external: list[str] = field(default_factory=list)  # names of external results


class ExternalResultsSpec(PairsSpec):
    external_results: dict[str, ExternalSpec] = field(default_factory=dict)  # by name


class FaultsSpec(SidesSpec):
    verdicts: dict[str, str] = field(default_factory=dict)  # SHA-256 of the sheets of speakers, by path


class EstimatesSpec(PairsSpec):
    labels: dict[str, str] = field(default_factory=dict)  # SHA-256 of the sheets with labels of responses, by path
    borrow_from: dict[str, str] = field(default_factory=dict)  # SHA-256 of other runs' results, by path
    limits: dict[str, int] = field(default_factory=dict)  # of evaluations whose models borrow


class AuditSpec(Spec):
    models: list[str]  # in the order of the config
    families: dict[str, str]  # by model: an adapter and its base, and checkpoints of a series, are one
    evaluations: dict[str, ComparedSpec]  # by ID
    items: int  # number of items in each list
    parallel: list[str]  # tasks whose items are translations of each other


class LanguagesSpec(Spec):
    models: list[str]  # in the order of the config
    pairs: list[list[str]]  # baseline and candidate
    evaluations: dict[str, EvaluationSpec]  # by ID, of parallel tasks in several languages


class ExportedSpec(Fields):
    """The items and protocol of an evaluation."""

    items_stem: str  # name of the items file without its extension
    protocol: str  # that shows the items and measures outputs


class ExportSpec(Spec):
    evaluations: dict[str, ExportedSpec]  # by ID
    readmes: str  # hash of the READMEs of formats


class SeriesSpec(Spec):
    """The checkpoints of series."""

    # a list, because the keys of a spec are sorted: `step10` before `step2`
    checkpoints: list[dict] = field(default_factory=list)  # their positions, in the order of training

    @property
    def positions(self) -> dict[str, dict]:
        """The position of each checkpoint by model, in the order of training."""
        return {checkpoint["model"]: checkpoint for checkpoint in self.checkpoints}


class CurvesSpec(SeriesSpec):
    evaluations: dict[str, EvaluationSpec]  # by ID


class TablesSpec(SeriesSpec):
    """What tables and report show."""

    models: list[str]  # in the order of the config
    evaluations: list[str]  # IDs, in the order of the config
    tasks: dict[str, dict[str, str]]  # titles and note of each task
    estimates: bool = False  # whether there are values by labels, or borrowed ones
    external: bool = False  # whether there are external results
    languages: bool = False  # whether parallel tasks are compared between languages


class SummarySpec(TablesSpec):
    parallel: list[str]  # tasks whose items are translations of each other
    sheets: str  # hash of the columns of worksheets
    api_key_env: list[str] = field(default_factory=list)  # names of variables whose values `publish` searches for
    judges: dict[str, list[str]] = field(default_factory=dict)  # models of the judge's own family, by judge
    unreviewed: dict[str, str] = field(default_factory=dict)  # language of prompts that no speaker has read
    verdicts: bool = False  # whether there are values without confirmed faults
    benchmarks: dict[str, dict[str, str]] = field(default_factory=dict)  # dataset, task_id and metric, by evaluation


class ReportSpec(TablesSpec):
    pairs: list[list[str]]  # baseline and candidate
    templates: str  # hash of the templates and scripts
    prompts: dict[str, dict] = field(default_factory=dict)  # descriptions of prompts, by evaluation
    audit: bool = False  # whether the run has lists of items to read
