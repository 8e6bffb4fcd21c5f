"""Runs one module of an installed Sluice: `python -P …/sluice/lib MODULE ARGUMENT…`.

This does what `python -m MODULE` does, which can't find packages that are kept off Python's import
path. If Python runs a folder, it puts that folder first on the import path, also with `-P`.
Services start their processes this way.
"""

import runpy
import sys

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: sluice COMMAND [ARGUMENT ...]; this folder is started by that command")
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
