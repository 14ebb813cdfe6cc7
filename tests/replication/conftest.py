"""Put bench/ on the import path, for `from replicate import page`."""

import sys

from support.workspace import ROOT

sys.path.append(str(ROOT / "bench"))
