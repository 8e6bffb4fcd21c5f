"""The proxy's event loop, for tests of the connections that it serves."""

from tests.sidecar.proxy.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
