"""Run a stage with the package beside this file: `python stage.py items …`.

The rules use this file instead of `python -m vernacular`, because a conda environment does not contain the package.
"""

import runpy

if __name__ == "__main__":  # not in a process of a pool, which imports this file
    runpy.run_module("vernacular", run_name="__main__")  # Python puts the directory of this file on the import path
