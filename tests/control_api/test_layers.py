"""What an operation doesn't know. Which layer may import which is proven by Import Linter."""

from __future__ import annotations

from pathlib import Path

import control_api

assert control_api.__file__ is not None
PACKAGE = Path(control_api.__file__).parent


def test_no_operation_knows_a_status_a_header_or_a_route() -> None:
    files = sorted(PACKAGE.glob("*/*operations.py"))
    assert len(files) > 20
    for path in files:
        text = path.read_text()
        assert "aiohttp" not in text, path.name
        assert "/v1/" not in text, path.name
