"""Runs one module of an installed Sluice: `python -P …/sluice/lib MODULE ARGUMENT…`.

It stands for `python -m MODULE`, which finds no package that is kept off Python's path. Python puts
the folder that it runs first on the path, also with `-P`. Services start their processes this way.
"""

import runpy
import sys

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: sluice COMMAND [ARGUMENT ...]; this folder is started by that command")
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
