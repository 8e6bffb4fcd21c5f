"""Says if the core runs compiled by mypyc (`deploy/compile`), or as Python from its source."""

from policies.ground import canonical

CORE_FORM = "pure Python" if canonical.__file__.endswith(".py") else "compiled"
