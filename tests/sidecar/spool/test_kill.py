"""kill -9 of a real process at random moments: what was durable is there, once, and chained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from tests.sidecar.spool.running_spool import check_chain, gaps, read_hash, running_spool, shipped
from tests.support.properties import chance, few
from tests.support.stack import ROOT
from tests.support.waiting import until

SAID = 10_000, 80_000
"""Bytes that a life prints before it is killed, at 80 per record. An amount rather than a time,
since a busy machine may do nothing in any time."""


def live(root: Path, life: int, log: Path) -> dict[str, str]:
    """Run the child, kill it, and return what it reported as durable. `log` gets what it
    shipped."""
    with log.open("ab") as shipping, tempfile.TemporaryFile() as said:
        command = [sys.executable, "-m", "tests.sidecar.spool.writer_process", str(root), str(life)]
        child = subprocess.Popen(
            [*command, str(shipping.fileno())],
            stdout=said,
            cwd=ROOT,
            pass_fds=[shipping.fileno()],
        )
        try:
            enough = chance(f"kill {life}").randrange(*SAID)

            def full() -> bool:
                assert child.poll() is None, "the child ended by itself"
                return said.seek(0, os.SEEK_END) >= enough

            until("the child has put enough", full)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        said.seek(0)
        lines = said.read().split(b"\n")
    # The last line may be half a line.
    return dict(line.decode().split() for line in lines[1:-1])


async def test_every_durable_record_survives_a_kill_once_and_the_chain_is_valid(
    tmp_path: Path,
) -> None:
    root, log = tmp_path / "spool", tmp_path / "shipped"
    durable: dict[str, str] = {}
    lives = few(8, at_least=4)
    for life in range(lives):
        durable.update(live(root, life, log))
    assert len(durable) >= lives * 100
    received: dict[tuple[str, int], dict[str, Any]] = {}
    for line in log.read_bytes().split(b"\n"):
        # A batch whose sending was cut off is sent again: the control API passes over it.
        if line.endswith(b"}}") and line.startswith(b"{"):
            take(received, orjson.loads(line)["core"])
    async with running_spool(root) as spool:
        for core in await shipped(spool):
            take(received, core)
    cores = check_chain([received[at] for at in sorted(received)])
    assert not gaps(cores)
    assert len({core["src"]["inst"] for core in cores}) == 1
    found = {core["eid"]: read_hash(core).hex() for core in cores}
    assert len(found) == len(cores)
    missing = {eid for eid, digest in durable.items() if found.get(eid) != digest}
    assert not missing


def take(received: dict[tuple[str, int], dict[str, Any]], core: dict[str, Any]) -> None:
    """As the control API: by instance and number; the same number is the same record."""
    at = (core["src"]["inst"], core["src"]["n"])
    assert received.setdefault(at, core) == core
