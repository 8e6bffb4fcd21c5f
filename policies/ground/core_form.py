"""Tells in which form the core runs: compiled (`deploy/compile`), or as Python from its source."""

from policies.ground import canonical

CORE_FORM = "pure Python" if canonical.__file__.endswith(".py") else "compiled"
