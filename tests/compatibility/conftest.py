"""The previous version's packages, for the tests that run them."""

from tests.compatibility.previous import previous

__all__ = ["previous"]
