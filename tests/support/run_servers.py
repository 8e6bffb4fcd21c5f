"""The place where a test run keeps the servers that its workers share."""

from pathlib import Path

import pytest

SERVERS = pytest.StashKey[tuple[Path, int]]()
"""The run's folder, and the process whose end stops the servers."""
