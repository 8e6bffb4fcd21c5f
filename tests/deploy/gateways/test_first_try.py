"""The README's first try and its replacement of a key, with every line as it is written: for each
gateway from a copy of its folder to an ALLOW and a DENY, and on with another key."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pytest

from tests import servers
from tests.architecture.tree import ROOT
from tests.deploy.gateways import gateway_programs, recipes
from tests.deploy.gateways.gateway_programs import PROGRAMS, STARTED
from tests.deploy.gateways.raw_requests import get, one, status
from tests.support import documents
from tests.support.ports import free_port
from tests.support.stack import Stack, call
from tests.support.waiting import until

PAGE = "deploy/gateways/README.md"
TAKEN_OVER = {
    "caddy": {200, 0}, "envoy-grpc": {200, 0}, "envoy-http": {200, 0}, "haproxy": {200, 0},
    "nginx": {200},
}  # fmt: skip
"""The gateways that take a new key while they run, and what clients may see then; 0 is a connection
that was closed."""


class Reader:
    """Follows the README for one recipe, in a copy of its folder, with the test's own ports."""

    def __init__(self, name: str, stack: Stack) -> None:
        self.name, self.folder = name, stack.directory / "edge"
        self.program = servers.need(PROGRAMS[name])
        shutil.copytree(recipes.FOLDER / name, self.folder)
        shown = (recipes.IN, recipes.DOOR, recipes.GRPC_DOOR, recipes.UPSTREAM)
        self.port = {str(each): free_port() for each in shown}
        self._here = {**self.port, "8700": stack.control.port}
        self._environ = self._prepared(stack.directory)

    def _prepared(self, directory: Path) -> dict[str, str]:
        """What the reader has: the policy, the control API's first keys, and `sluice`."""
        (policy,) = (each for each in documents.blocks(PAGE) if each.title == "save as edge.yaml")
        (self.folder / "edge.yaml").write_text(policy.text)
        (self.folder / ".sluice").mkdir()
        shutil.copy2(directory / "data" / "first-start.json", self.folder / ".sluice")
        run = f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n'
        documents.put(directory / "bin", "sluice", run)
        path = [str(self.program.parent), str(directory / "bin"), os.environ["PATH"]]
        environ = {"PYTHONPATH": str(ROOT), "HOME": str(directory)}
        return {**environ, "PATH": os.pathsep.join(path)}

    def lines(self, title: str, page: str = PAGE) -> str:
        """The commands of a block, with the test's ports."""
        text = documents.commands(page, title)
        if title == "other ports":
            return re.sub(
                r"(\d{4})\\b/\d{4}/", lambda found: rf"{found[1]}\b/{self._here[found[1]]}/", text
            )
        return re.sub(r"\b\d{4}\b", lambda found: str(self._here.get(found[0], found[0])), text)

    def recipe(self, title: str) -> str:
        """The commands of a block of the recipe's README."""
        return self.lines(title, f"deploy/gateways/{self.name}/README.md")

    def paste(self, *scripts: str, **environ: str) -> str:
        script = "\n".join(["umask 022", *scripts])
        done = documents.paste(script, self.folder, {**self._environ, **environ})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def pasted(self, script: str, **environ: str) -> Iterator[None]:
        """Commands that leave something running, till the end."""
        kept = "umask 022; trap 'kill $(jobs -p) || true; wait' TERM"
        with (self.folder / "running.log").open("a") as log:
            shell = subprocess.Popen(
                ["bash", "-euc", f"{kept}\n{script.rstrip().removesuffix('&')} &\nwait"],
                cwd=self.folder,
                env={**self._environ, **environ},
                stdout=log,
                stderr=log,
            )
            try:
                yield
            finally:
                shell.terminate()
                shell.wait(60)

    @contextmanager
    def gateway(self) -> Iterator[int]:
        """The gateway, started by the commands of its README."""
        conf = self.folder / "nginx.conf"
        if conf.exists() and os.getuid() == 0 and "user root;" not in conf.read_text():
            # Its workers would run as `nobody`, who may not enter the test's folder.
            conf.write_text(f"{conf.read_text()}user root;\n")
        script = f"umask 022\n{self.recipe('start')}"
        yield from gateway_programs.run(script, self.program, self.folder, self.port["8080"])

    def answer(self) -> int:
        """The status of an answer to what the role may read; 0 without an answer."""
        with suppress(OSError):
            return status(one(self.port["8080"], get("/info/a")))
        return 0

    def known_at_the_sidecar(self, key: str) -> int:
        """The status of an answer to what any valid key may ask; 0 without an answer."""
        with suppress(OSError):
            return call(self.port["8710"], "GET", "/v1/sources", key=key)[0]
        return 0

    def running(self) -> list[int]:
        """The processes of the gateway's program in the folder."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                of_folder = (each / "cwd").readlink() == self.folder
                if of_folder and (each / "exe").readlink() == self.program.resolve():
                    found.append(int(each.name))
        return found


@contextmanager
def asked_meanwhile(reader: Reader, expected: set[int]) -> Iterator[None]:
    """Requests one after another, whose answers are these and no others."""
    over = Event()

    def ask() -> set[int]:
        found = set()
        while not over.is_set():
            found.add(reader.answer())
        return found

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            over.set()
        assert asking.result(60) <= expected


def take_over(reader: Reader, old: str) -> None:
    """Let the gateway take the new key by its README's commands, and revoke the old one."""
    before = reader.running()
    with (
        asked_meanwhile(reader, TAKEN_OVER[reader.name]),
        reader.pasted(reader.recipe("new key"), OLD_PID=str(min(before))),
    ):
        # nginx's master process stays, and gets new workers.
        until("the new one runs", lambda: len(set(reader.running()) - set(before)) > 0)
        until("the old one is gone", lambda: len(set(before) & set(reader.running())) < len(before))
        check_without_the_old_key(reader, old)


def check_without_the_old_key(reader: Reader, old: str) -> None:
    """Revoke the old key by the README's commands; the gateway goes on with the new one."""
    operator = reader.lines("agent, policy and keys").splitlines()[1]
    listed = reader.paste(operator, "sluice keys list")
    (old_id,) = re.findall(r"^(key_\w+) .* edge *$", listed, re.MULTILINE)
    reader.paste(operator, reader.lines("old key"), OLD_KEY_ID=old_id)
    until("the old key has ended", lambda: reader.known_at_the_sidecar(old) == 403)
    assert reader.answer() == 200


@pytest.mark.deep(
    stands_in="tests/deploy/gateways/test_attacks.py::"
    "test_the_paths_of_the_readme_are_answered_as_documented"
)
@pytest.mark.parametrize("name", STARTED)
def test_the_readme_leads_to_an_allow_and_a_deny_and_on_with_a_new_key(
    name: str, tmp_path: Path
) -> None:
    stack = Stack(tmp_path)
    try:
        stack.start_control()
        reader = Reader(name, stack)
        operator = reader.lines("agent, policy and keys")
        reader.paste(reader.lines("other ports"), operator)
        old = (reader.folder / "edge.key").read_text().strip()
        with reader.pasted(reader.lines("sidecar")), reader.pasted(reader.lines("upstream")):
            until("the sidecar serves", lambda: reader.known_at_the_sidecar(old) == 200)
            with reader.gateway():
                until("the upstream serves", lambda: reader.answer() == 200)
                asked = reader.paste(reader.lines("ask"))
                assert re.findall(r"^HTTP/1.[01] (\d+)", asked, re.MULTILINE) == ["200", "403"]
                secrets = [each for each in reader.folder.glob("*key*") if each.is_file()]
                assert {stat.S_IMODE(each.stat().st_mode) for each in secrets} == {0o600}
                reader.paste(operator.splitlines()[1], reader.lines("new key"))
                if name in TAKEN_OVER:
                    take_over(reader, old)
                    return
            with reader.gateway():
                check_without_the_old_key(reader, old)
    finally:
        stack.stop()
