"""Real clients on every way through the sidecar."""

import pytest

pytest.register_assert_rewrite("tests.sidecar.clients.battery")
