"""Classification of errors from loading and running models, and their messages."""

import contextlib
import pickle

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from vernacular.core.errors import ModelError, UserError, first_line, is_panic
from vernacular.core.model_record import ModelRecord

# Errors from loading a malformed checkpoint: any key in its files may have an unexpected type.
LOADING_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError)
LOADING_ERRORS += (AssertionError, EOFError, ImportError, MemoryError)
LOADING_ERRORS += (pickle.UnpicklingError, SafetensorError, StrictDataclassError)


class LibraryError(RuntimeError):
    """Exception of a library whose class is not in LOADING_ERRORS."""


class PanicError(LibraryError):
    """Panic of a Rust library (tokenizers, safetensors) on input that it does not handle."""


@contextlib.contextmanager
def wrap_library_errors():
    """Raise an exception that is neither this package's nor in LOADING_ERRORS, or a panic, as LibraryError.

    tokenizers raises bare Exception, and the custom code of a model may raise anything.
    """
    try:
        with wrap_panics():
            yield
    except (UserError, *LOADING_ERRORS):
        raise
    except Exception as error:
        class_name = "" if type(error) is Exception else f"{type(error).__name__} "
        raise LibraryError(f"{class_name}{first_line(error)}") from error


@contextlib.contextmanager
def wrap_panics():
    """Raise a panic of a Rust library, which derives from BaseException, as PanicError."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise PanicError(f"panic in a Rust library: {first_line(error)}") from error


@contextlib.contextmanager
def wrap_tokenizer_panics(record: ModelRecord):
    """Raise a panic as ModelError with the tokenizer of `record`, the only Rust code that runs inside the block."""
    try:
        with wrap_panics():
            yield
    except PanicError as error:
        directory = record.tokenizer_directory
        raise ModelError(f"model {record.name}: the tokenizer in {directory} cannot be used: {error}.") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the device, or the machine, is out of memory."""
    import torch  # imported here: it takes two seconds, and commands without a model do not need it

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def is_lost_device(error: BaseException) -> bool:
    """Return whether an error means that the GPU has failed and accepts no further work."""
    import torch

    return isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error)


def describe_error(error: BaseException, record: ModelRecord) -> str:
    """Return a sentence: the first line of a library's message or, if known, how the user can resolve the error."""
    message, summary = str(error), first_line(error)
    if "custom code" in message and record.kind == "encoder":
        return "it requires custom code, which is not run for encoders."
    if "custom code" in message and not record.trust_remote_code:
        return "it requires custom code. If you have read and trust it, set trust_remote_code: true for this model."
    if isinstance(error, pickle.UnpicklingError):
        return "its pickle contains more than weights, which is never executed; convert it to safetensors."
    if "`tiktoken` is required" in message:  # stated for any file that cannot be read
        sentencepiece = "a model of SentencePiece is read with `pip install sentencepiece protobuf`"
        return f"{sentencepiece}, one of tiktoken with `pip install tiktoken`."
    if isinstance(error, ImportError):
        return f"a required package is not installed: {summary}."
    if not record.allow_pickle and "safetensors" in message:
        return f"{summary}. Weights in pickle files are read only with allow_pickle: true."
    if isinstance(error, LookupError | AssertionError | ArithmeticError):  # uninformative messages
        return f"{type(error).__name__} {summary}." if message.strip() else f"{summary}."
    return f"{summary}."
