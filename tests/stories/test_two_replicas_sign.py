"""Two control APIs sign one log, with one checkpoint store and two witnesses: a witness goes and
comes back, a replica is killed while it signs, and the database is replaced by an older copy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.tenants.bootstrap import fresh_keys, write_keys
from deploy.commands.client.client import run as operate
from deploy.commands.verify.__main__ import main as verify
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey
from tests.control_api.log.insider import Insider
from tests.deploy.commands.witness.running_witness import WitnessProcess
from tests.support import fork_server
from tests.support.ports import free_port
from tests.support.postgres import serving
from tests.support.stack import POLICIES, Service, call
from tests.support.waiting import AWAY, until

TENANT = "default"
PAUSE = 0.25
"""Seconds between two questions of a wait: each costs the service more than it costs the test."""
ASKED = {
    "agent_role": "support",
    "user_id": "ann",
    "source_id": "handbook",
    "sensitivity_level": "low",
}


class Witness:
    """`sluice witness` at one address, whose key is known before it first starts."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory, self.port = directory, free_port()
        seed = os.urandom(32)
        (directory / "witness.key").write_text(base64.b64encode(seed).decode() + "\n")
        (directory / "witness.key").chmod(0o600)
        name = f"witness.example/{directory.name}"
        self.key = VerifierKey(name, COSIGNATURE, Signer(seed).public).text()
        self._name = name
        self._process: WitnessProcess | None = None

    def start(self, *origins: str, key: str) -> None:
        """Serve the logs of these origins, and no others."""
        config = self._directory / "witness.yaml"
        lines = {
            "listen": f"127.0.0.1:{self.port}",
            "name": self._name,
            "key_file": "witness.key",
            "state": "state",
            "logs": [{"origin": each, "key": key} for each in origins],
        }
        config.write_text(json.dumps(lines))
        self._process = WitnessProcess(config)
        assert self._process.key == self.key

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class Installation:
    """Two replicas on one database, and requests to both all the time."""

    def __init__(self, directory: Path, database_url: str, witnesses: list[Witness]) -> None:
        self.directory, self.notes = directory, FileStore(directory / "notes")
        keys = fresh_keys(os.urandom)
        write_keys(directory / "keys", keys)
        self.admin_key = keys["admin.key"].decode().strip()
        seed = base64.b64decode(keys["log.key"].split()[0])
        self.public = Signer(seed).public
        policies = directory / "policies" / TENANT / "demo" / "support.yaml"
        policies.parent.mkdir(parents=True)
        policies.write_text(POLICIES)
        self.replicas = []
        for name in ("one", "two"):
            port = free_port()
            environ = {
                "SLUICE_DATA_DIR": str(directory / name),
                "SLUICE_KEYS_DIR": str(directory / "keys"),
                "SLUICE_POLICY_DIR": str(directory / "policies"),
                "SLUICE_DATABASE_URL": database_url,
                "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
                "SLUICE_CHECKPOINT_STORE": f"file://{directory / 'notes'}",
                "SLUICE_CHECKPOINT_SECONDS": "1",
                "SLUICE_WITNESSES": ",".join(
                    f"{each.key}@http://127.0.0.1:{each.port}" for each in witnesses
                ),
            }
            command = [sys.executable, "-m", "control_api"]
            service = Service(name, command, environ, directory / f"{name}.log", port)
            self.replicas.append(service)

    def ask(self, method: str, path: str, body: object = None, replica: int = 0) -> tuple[int, Any]:
        return call(self.replicas[replica].port, method, path, body, key=self.admin_key)

    def decide(self, replica: int) -> None:
        status, answer = self.ask("POST", "/v1/context/evaluate", ASKED, replica)
        assert (status, answer["decision"]) == (200, "ALLOW"), answer

    @contextlib.contextmanager
    def loaded(self, *replicas: int) -> Iterator[list[int]]:
        """Decisions by these replicas meanwhile. The list counts them, by replica."""
        counts, stop = [0 for _ in self.replicas], threading.Event()

        def load(replica: int) -> None:
            # expires on purpose
            while not stop.wait(0.1):
                self.decide(replica)
                counts[replica] += 1

        threads = [threading.Thread(target=load, args=(each,)) for each in replicas]
        for thread in threads:
            thread.start()
        try:
            yield counts
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def latest(self) -> dict[str, Any]:
        _, answer = self.ask("GET", "/v1/audit/checkpoints?limit=1")
        assert isinstance(answer, list)
        return answer[0] if answer else {"size": 0, "level": "none", "origin": ""}

    def reaches(self, level: str, more_than: int = 0) -> dict[str, Any]:
        """The first checkpoint of this level that covers more entries."""

        made: dict[str, Any] = {}

        def there() -> bool:
            nonlocal made
            time.sleep(PAUSE)
            made = self.latest()
            return bool(made["level"] == level and made["size"] > more_than)

        until(f"a checkpoint is {level}", there, despite=AWAY)
        return made

    def key(self, origin: str) -> str:
        """The log's verifier key, under this origin."""
        return VerifierKey(origin, ED25519, self.public).text()

    def notes_of(self, origin: str) -> int:
        """How many notes of this origin are stored outside."""
        notes = [checkpoint.unverified(each.note) for each in self.notes.notes(TENANT)]
        return sum(each.origin == origin for each in notes)

    def stored_sizes(self) -> list[int]:
        return [checkpoint.unverified(each.note).size for each in self.notes.notes(TENANT)][::-1]

    def verdicts(self) -> list[str | None]:
        """What both replicas say of the log: None, or the code of what is wrong with it."""
        time.sleep(PAUSE)
        answers = [self.ask("GET", "/v1/audit/verify", None, each)[1] for each in (0, 1)]
        return [
            None if each["valid"] else str(each["reason"]).partition(":")[0] for each in answers
        ]

    def exported(self, name: str) -> Path:
        path = self.directory / name
        url = f"http://127.0.0.1:{self.replicas[0].port}"
        environ = {"SLUICE_URL": url, "SLUICE_API_KEY": self.admin_key}
        assert operate("export", ["-o", str(path)], environ) == 0
        return path

    def verified(self, name: str, origin: str, witnesses: list[Witness]) -> None:
        """`sluice verify` of an export, by a stranger who has the keys."""
        # No load now, so this checkpoint covers all that the file will hold.
        self.reaches("witnessed", self.ask("GET", "/v1/audit/verify")[1]["total"] - 1)
        told = [word for each in witnesses for word in ("--witness", each.key)]
        path = str(self.exported(name))
        assert verify([path, "--key", self.key(origin), *told, "--quorum", "2"]) == 0


@pytest.fixture
def witnesses(tmp_path: Path) -> Iterator[list[Witness]]:
    made = [Witness(tmp_path / name) for name in ("w1", "w2")]
    yield made
    for each in made:
        each.kill()


@pytest.fixture
def installation(
    tmp_path: Path, migrated_url: str, witnesses: list[Witness]
) -> Iterator[Installation]:
    made = Installation(tmp_path, serving(migrated_url), witnesses)
    made.replicas[0].start()
    made.replicas[1].start()
    yield made
    for each in made.replicas:
        if each.process is not None and each.process.poll() is None:
            each.stop()


async def copied(url: str, older: Any = None) -> Any:
    """What the database has of its log; puts `older` in its place if there is one."""
    insider = Insider(url)
    try:
        if older is None:
            return await insider.copy()
        await insider.restore(older)
    finally:
        await insider.close()


def a_witness_goes_and_comes_back(both: Installation, two: Witness, origin: str) -> int:
    """Everything goes on but the level. Returns the size that is witnessed again."""
    size = both.latest()["size"]
    two.kill()
    with both.loaded(0, 1) as counts:
        alone = both.reaches("signed", more_than=size)
        assert alone["witnesses"] < 2
        until("both decide", lambda: min(counts) > 2)
        two.start(origin, key=both.key(origin))
        return int(both.reaches("witnessed", more_than=alone["size"])["size"])


def a_replica_dies_while_it_signs(both: Installation) -> None:
    """The second alone signs, and is killed as soon as its note is outside. The first takes up a
    note that may never have been published."""
    first, second = both.replicas
    first.signal(signal.SIGSTOP)
    try:
        before = both.stored_sizes()[-1]
        for _ in range(3):
            both.decide(1)
        until("the second signs", lambda: both.stored_sizes()[-1] > before, despite=AWAY)
        second.kill()
    finally:
        first.signal(signal.SIGCONT)
    second.start()


def accept(both: Installation) -> None:
    first = both.replicas[0]
    words = ["accept-incarnation", "--log", TENANT, "--reason", "restored from a backup"]
    fork_server.run([*first.command, *words], {**os.environ, **first.environ}, check=True)


def test_two_replicas_and_two_witnesses_keep_one_log_through_failures(
    installation: Installation, witnesses: list[Witness], migrated_url: str
) -> None:
    both = installation
    # The witnesses are told of a log that is there already, and each entry comes under both.
    with both.loaded(0, 1):
        origin = both.reaches("signed")["origin"]
        for each in witnesses:
            each.start(origin, key=both.key(origin))
        both.reaches("witnessed")
    older = asyncio.run(copied(migrated_url))

    size = a_witness_goes_and_comes_back(both, witnesses[1], origin)
    a_replica_dies_while_it_signs(both)
    with both.loaded(0, 1):
        both.reaches("witnessed", more_than=max(size, both.stored_sizes()[-1]))
    sizes = both.stored_sizes()
    assert sizes == sorted(set(sizes))  # one line, whichever replica signed
    assert both.verdicts() == [None, None]
    both.verified("whole.ndjson", origin, witnesses)

    asyncio.run(copied(migrated_url, older))
    until("both see it", lambda: both.verdicts() == ["log_behind_checkpoint"] * 2, despite=AWAY)
    signed = both.stored_sizes()
    for replica in (0, 1):
        both.decide(replica)
    accept(both)
    new = both.reaches("signed")["origin"]
    assert new == f"{origin}#1"
    assert both.notes_of(origin) == len(signed)  # nothing more was signed while in doubt
    for each in witnesses:
        each.kill()
        each.start(origin, new, key=both.key(origin))
    with both.loaded(0, 1):
        assert both.reaches("witnessed")["origin"] == new
    assert both.verdicts() == [None, None]
    both.verified("continued.ndjson", new, witnesses)
