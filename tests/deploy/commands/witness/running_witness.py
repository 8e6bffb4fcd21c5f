"""`sluice witness` as a process of its own, on a free port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.deploy.commands.witness.protocol_client import Log

MODULE = "deploy.commands.witness"
DYING = "tests.deploy.commands.witness.dying_witness"


def configure(directory: Path, *logs: Log, **other: object) -> Path:
    """A configuration in `directory` that serves `logs`."""
    path = directory / "witness.yaml"
    lines = {
        "listen": "127.0.0.1:0",
        "name": "witness.example/w1",
        "key_file": "witness.key",
        "state": "state",
        "logs": [{"origin": log.origin, "key": log.verifier_key} for log in logs],
    }
    path.write_text(json.dumps(lines | other))  # JSON is YAML
    return path


class WitnessProcess:
    """Started when made; serves once `port` is there."""

    def __init__(self, config: Path, module: str = MODULE, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"SLUICE_LOG_FORMAT": "json"},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.key = self.process.stdout.readline().strip()
        self.port = 0
        self.log: list[dict[str, str]] = []
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if (message := self.log[-1]["message"]).startswith("witness listens"):
                self.port = int(message.rpartition(":")[2])
                break

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        """Stop it gently. Returns the exit code and what it logged since it listened."""
        self.process.send_signal(signal.SIGTERM)
        _, logged = self.process.communicate(timeout=20)
        return self.process.returncode, logged

    def __enter__(self) -> WitnessProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        else:
            self.process.communicate()
