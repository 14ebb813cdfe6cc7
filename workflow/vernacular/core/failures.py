"""What goes wrong with a model or the machine under it: whose fault it is, and the sentence for it."""

import contextlib
import pickle

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from vernacular.core.errors import ModelError, UserError, first_line, is_panic

# What loading stumbles over where a file of the checkpoint says something odd: any key of it may be of another type.
ODD_FILES = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, AssertionError)
ODD_FILES += (EOFError, ImportError, MemoryError, pickle.UnpicklingError, SafetensorError, StrictDataclassError)


class LibraryError(RuntimeError):
    """What a library raised, of a class that belongs to no kind of failure here."""


class PanicError(LibraryError):
    """A Rust library (tokenizers, safetensors) panicked: what it was given made it fail in a way it did not foresee."""


@contextlib.contextmanager
def library_errors():
    """Raise an exception that is neither one of this package nor in ODD_FILES, panics included, as LibraryError.

    tokenizers raises bare Exception for an invalid regex, zipfile and protobuf have classes of their own, and the code
    that a model brings may raise anything. Ctrl-C and the end of the process pass.
    """
    try:
        with panics_raised():
            yield
    except (UserError, *ODD_FILES):
        raise
    except Exception as error:
        kind = "" if type(error) is Exception else f"{type(error).__name__} "
        raise LibraryError(f"{kind}{first_line(error)}") from error


@contextlib.contextmanager
def panics_raised():
    """Raise a panic of a Rust library as PanicError; leave every other exception as it is.

    pyo3 derives its PanicException from BaseException, and no module exports it: `except Exception` lets it end the
    process, and `except BaseException` would catch Ctrl-C, too.
    """
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise PanicError(f"panic in a Rust library: {first_line(error)}") from error


@contextlib.contextmanager
def tokenizer_panics(record: dict):
    """Raise a panic of a Rust library as ModelError that names the tokenizer of `record`: nothing else runs in Rust."""
    try:
        with panics_raised():
            yield
    except PanicError as error:
        adapter = record.get("adapter") or {}
        folder = adapter["folder"] if adapter.get("own_tokenizer") else record.get("folder")
        raise ModelError(f"model {record['name']}: the tokenizer in {folder} cannot be used: {error}.") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Is this error the device (or the machine) running out of memory?"""
    import torch  # two seconds, which commands without a model do not spend

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def is_lost_device(error: BaseException) -> bool:
    """Is this error a GPU that answers nothing more, whatever it is asked?"""
    import torch

    return isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error)


def reason(error: BaseException, record: dict) -> str:
    """The first line of what the library says, or better what a person can do about it."""
    whole, said = str(error), first_line(error)
    if "custom code" in whole and record.get("kind") == "encoder":
        return "it brings code of its own, which is not run."
    if "custom code" in whole and not record.get("trust_remote_code"):
        return "it brings code of its own. If you have read and trust it, set trust_remote_code: true for this model."
    if isinstance(error, pickle.UnpicklingError):
        return "its pickle holds more than weights, and that is never run; convert it to safetensors."
    if isinstance(error, ImportError):
        return f"a package it needs is not installed: {said}"
    if not record.get("allow_pickle") and "safetensors" in whole:
        return f"{said} Weights in pickle files are read only with allow_pickle: true."
    if isinstance(error, LookupError | AssertionError | ArithmeticError):  # whose texts say little by themselves
        return f"{type(error).__name__} {said}" if whole.strip() else said
    return said
