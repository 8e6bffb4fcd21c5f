"""The proxy's listener, for tests that send requests through it."""

from tests.sidecar.proxy.conftest import pytest_asyncio_loop_factories, setup

__all__ = ["pytest_asyncio_loop_factories", "setup"]
