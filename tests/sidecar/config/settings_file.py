"""Settings files for tests, read with an environment, and the complaints about them."""

from pathlib import Path

import pytest

from policies.ground.keys import make_key
from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.settings.model import SidecarSettings

KEY = make_key(b"k" * 32)


LEAST = """\
control: http://127.0.0.1:8700
key_file: sidecar.key
"""


SOURCE = """\
agent: {role: r, key_file: agent.key}
sources:
  - alias: kb
    kind: chroma
    upstream: http://127.0.0.1:8000
    listen: 127.0.0.1:18000
    sensitivity: medium
"""


def load(base: Path, text: str, **environ: str) -> SidecarSettings:
    path = base / "sidecar.yaml"
    path.write_text(text)
    variables = {f"SLUICE_SIDECAR_{name}": value for name, value in environ.items()}
    return read(path, {"HOME": "/", "SLUICE_LOG_LEVEL": "info", **variables}, "host-1")


def complaints(base: Path, text: str, **environ: str) -> list[str]:
    """The complaints about it, without the directory."""
    with pytest.raises(SettingsError) as caught:
        load(base, text, **environ)
    return [each.replace(f"{base}/", "") for each in caught.value.complaints]
