"""Compiles the part of the core that runs most often with mypyc, from the same files that otherwise
run as Python.

    python -m deploy.compile check           whether this machine can: exit code 0, or 1 and why not
    python -m deploy.compile types           whether the types allow it: seconds, where the rest
                                             takes a minute
    python -m deploy.compile modules DIR     the extension modules alone
    python -m deploy.compile tree DIR        a copy of the checkout with them, as the tests want it

`build_hook.py` makes wheels with them. An extension module lies beside its source, and Python
imports it in place of the source: no code chooses between them, and if it is absent the source
runs. Works in a checkout or an unpacked sdist; not part of a wheel.
"""
