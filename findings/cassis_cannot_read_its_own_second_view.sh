#!/usr/bin/env bash
# INCEpTION, WebAnno and UIMA keep annotated text as a CAS, which may have views: a text and its translation or its
# original spelling, each with annotations of its own. dkpro-cassis 0.12.0 writes such a CAS as JSON, and cannot read
# it back: a view has been created by its text when the list of views is read, and the function that should get it or
# create it (`_get_or_create_view`) gets only the first one by its name and creates each other one again: "A view with
# name [eu] already exists!". The same CAS as XMI is read with both, and one with a single text is read from JSON.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet dkpro-cassis==0.12.0 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import io
import sys
from importlib.metadata import version

from cassis import Cas, TypeSystem, load_cas_from_json, load_cas_from_xmi

print("dkpro-cassis", version("dkpro-cassis"))


def annotated(texts):
    types = TypeSystem()
    token, cas = types.create_type("own.Token"), Cas(typesystem=types)
    for name, text in texts.items():
        view = cas.get_view(name) if name == "_InitialView" else cas.create_view(name)
        view.sofa_string = text
        view.add(token(begin=0, end=text.index(" ")))
    return cas, types


def tokens(cas):
    return {
        sofa.sofaID: [token.get_covered_text() for token in cas.get_view(sofa.sofaID).select("own.Token")]
        for sofa in cas.sofas
    }


seen = {}
for texts in ({"_InitialView": "house is big"}, {"_InitialView": "house is big", "eu": "etxea handia da"}):
    cas, types = annotated(texts)
    seen["xmi", len(texts)] = tokens(load_cas_from_xmi(io.BytesIO(cas.to_xmi().encode()), typesystem=types))
    try:
        seen["json", len(texts)] = tokens(load_cas_from_json(cas.to_json()))
    except ValueError as error:
        seen["json", len(texts)] = str(error)
for (kind, number), value in seen.items():
    print(f"{number} view(s) written and read as {kind}: {value}")
both = {"_InitialView": ["house"], "eu": ["etxea"]}
right = seen["xmi", 2] == both and seen["json", 1] == seen["xmi", 1] == {"_InitialView": ["house"]}
sys.exit(not (right and seen["json", 2] == "A view with name [eu] already exists!"))
PYTHON
