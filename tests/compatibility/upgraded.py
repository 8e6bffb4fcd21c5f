"""An installation of the previous version, as today's control API serves it after the upgrade."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.commands.verify.__main__ import main as verify
from tests.compatibility.installation import Left
from tests.support.open_store import Spool, decision
from tests.support.stack import call
from tests.support.waiting import until


@dataclass
class Upgraded:
    """`port` is that of the running control API; `folder` takes what a test writes."""

    port: int
    left: Left
    folder: Path
    spool: Spool = field(default_factory=lambda: Spool("made-by-hand-1"))
    """The records of a sidecar with the hand-made key."""

    def ask(
        self, method: str, path: str, body: object = None, *, key: str = "", **headers: str
    ) -> tuple[int, Any]:
        """The status and decoded body of a request, with the administrator's key by default."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return call(self.port, method, path, body, key=key or self.left.admin_key, headers=sent)

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """The response to a request that must succeed."""
        status, answer = self.ask(method, path, body)
        assert status < 300, (path, status, answer)
        return answer

    def text(self, path: str, **headers: str) -> tuple[int, str]:
        """The status and text of a GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"X-API-Key": self.left.admin_key, **headers})
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    def evaluate(self, **changed: Any) -> dict[str, Any]:
        """The decision of the control API itself."""
        asked = {
            "agent_role": "support", "agent_id": "agt_story", "user_id": "ann",
            "source_id": "handbook", "sensitivity_level": "low",
        }  # fmt: skip
        status, answer = self.ask(
            "POST", "/v1/context/evaluate", asked | changed, key=self.left.keys["evaluate"]
        )
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    def deliver(
        self, key: str, verdict: str = "DENY", *, at: int | None = None, **asked: Any
    ) -> tuple[str, list[Any]]:
        """Deliver one decision as a sidecar. Returns its event's id, and what was refused."""
        record = self.spool.record(decision(verdict, **asked), at)
        batch = {
            "source": self.spool.source, "instance": self.spool.instance, "records": [record],
        }  # fmt: skip
        status, answer = self.ask("POST", "/v1/sidecars/events", batch, key=key)
        assert status == 200, answer
        return record["core"]["eid"], answer["rejected"]

    def verified(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and JSON of `sluice verify`, with the key that has signed since before."""
        public = self.admin("GET", "/v1/audit/log-keys")["log_key"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = verify([*arguments, "--key", public, "--json"])
        return code, json.loads(out.getvalue())

    def exported(self) -> str:
        """A file of the log, under a checkpoint."""
        until("the log has a checkpoint", self._covered)
        path = self.folder / "log.jsonl"
        path.write_text(self.text("/v1/audit/export")[1])
        return str(path)

    def state(self) -> list[str]:
        """The arguments of the monitor, which begins anew."""
        key = self.folder / "monitor.key"
        key.write_text(self.left.keys["read"])
        key.chmod(0o600)
        folder = self.folder / "monitor"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        url = f"http://127.0.0.1:{self.port}"
        return ["--url", url, "--key-file", str(key), "--state", str(folder / "state.json")]

    def _covered(self) -> bool:
        signed = self.admin("GET", "/v1/audit/verify")["checkpoint"]
        return bool(signed["size"] > self.left.verified["last_seq"])
