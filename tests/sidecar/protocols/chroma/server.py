"""Starts Chroma's own server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.sidecar.protocols.chroma.front import direct
from tests.support.ports import free_port
from tests.support.waiting import until


@contextmanager
def running_chroma(folder: Path, *, resets: bool = False) -> Iterator[int]:
    """The port of a Chroma server that keeps its data in `folder`. With `resets`, a client may
    delete everything by `POST /api/v2/reset`, as Chroma's own tests do."""
    port = free_port()
    settings = {
        "persist_path": str(folder / "data"),
        "listen_address": "127.0.0.1",
        "port": port,
        "allow_reset": resets,
    }
    (folder / "chroma.yaml").write_text(yaml.safe_dump(settings))
    command = [str(Path(sys.executable).parent / "chroma"), "run", str(folder / "chroma.yaml")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "ANONYMIZED_TELEMETRY": "false"}
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            direct(port, "GET", "/api/v2/heartbeat")
            return True

        until("Chroma answers", answers, despite=OSError)
        yield port
    finally:
        process.terminate()
        process.wait(60)
