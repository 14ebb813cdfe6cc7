"""Outputs of one evaluation, without a job and its store: prepared, computed and finished one after the other."""

from vernacular.inference.generation.generate import Generation
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.scoring.score import Scoring
from vernacular.inference.server.generate import Generation as ServedGeneration
from vernacular.inference.server.score import Scoring as ServedScoring
from vernacular.inference.server.served import ServedModel


def outputs(prepared, journal=None):
    """Return (table, metadata) of a prepared evaluation."""
    prepared.compute(MemoryJournal() if journal is None else journal)
    rows, metadata = prepared.finish()
    return rows.slice(), metadata


def score(model, requests, *, journal=None, **options):
    """Return (SCORES, metadata) of a loaded or a served model."""
    return outputs((ServedScoring if isinstance(model, ServedModel) else Scoring)(model, requests, **options), journal)


def generate(model, requests, *, journal=None):
    """Return (GENERATIONS, metadata) of a loaded or a served model."""
    return outputs((ServedGeneration if isinstance(model, ServedModel) else Generation)(model, requests), journal)
