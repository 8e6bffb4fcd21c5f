"""What tests of the commands share with those of the control API."""

from tests.control_api.conftest import api

__all__ = ["api"]
