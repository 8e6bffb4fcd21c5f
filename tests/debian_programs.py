"""Unpacks programs of Debian's packages into a folder, without installing them or being root.

Each gets a script that runs it with its own shared libraries, so that a test, or what it tests, can
start it like any program. Knows no test.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

_NETFILTER = ("libnftnl11", "libmnl0", "libxtables12")


class Program(NamedTuple):
    """Where a program comes from."""

    packages: tuple[str, ...]
    path: str
    """Inside the packages."""
    words: tuple[str, ...] = ()
    """Its first arguments: some programs contain several."""


PROGRAMS = {
    "pgbouncer": Program(("pgbouncer", "libevent-2.1-7", "libc-ares2"), "usr/sbin/pgbouncer"),
    "promtool": Program(("prometheus",), "usr/bin/promtool"),
    "prometheus": Program(("prometheus",), "usr/bin/prometheus"),
    "rsyslogd": Program(
        (
            *("rsyslog", "rsyslog-openssl", "libestr0", "libfastjson4", "liblognorm5"),
            *("libsystemd0",),
        ),
        "usr/sbin/rsyslogd",
    ),
    "nft": Program(
        (
            *("nftables", "libnftables1", "libjansson4", "libgmp10", "libedit2", "libbsd0"),
            *("libmd0", *_NETFILTER),
        ),
        "usr/sbin/nft",
    ),
    "iptables": Program(
        (
            *("iptables", "libip4tc2", "libip6tc2", "libnetfilter-conntrack3", "libnfnetlink0"),
            *_NETFILTER,
        ),
        "usr/sbin/xtables-nft-multi",
        ("iptables",),
    ),
}


def place(name: str, folder: Path) -> Path:
    """The script that runs the program `name`, once it is unpacked in `folder`."""
    return folder / "programs" / name / "run" / name


def fetch(name: str, folder: Path) -> None:
    """Download and unpack the program `name`. Raises `OSError` or `SubprocessError`."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise FileNotFoundError("this system has no apt-get")
    program, script = PROGRAMS[name], place(name, folder)
    target = script.parents[1]
    shutil.rmtree(target, ignore_errors=True)
    script.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root"]
        _run([*command, *program.packages], scratch)
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(target)], scratch)
    # A script that names no program would look like one that can be run, so it comes last.
    script.write_text(_script(target, program))
    script.chmod(0o755)


def _script(target: Path, program: Program) -> str:
    libraries = sorted({str(path.parent) for path in target.rglob("*.so*")})
    extensions = next(target.glob("usr/lib/*/xtables"), target)
    modules = next(target.glob("usr/lib/*/rsyslog"), target)
    words = shlex.join([str(target / program.path), *program.words])
    return (
        "#!/bin/sh\n"
        f"LD_LIBRARY_PATH={shlex.quote(os.pathsep.join(libraries))}\n"
        f"XTABLES_LIBDIR={shlex.quote(str(extensions))}\n"
        f"RSYSLOG_MODDIR={shlex.quote(str(modules))}\n"
        "export LD_LIBRARY_PATH XTABLES_LIBDIR RSYSLOG_MODDIR\n"
        f'exec {words} "$@"\n'
    )


def _run(command: list[str], folder: str) -> None:
    subprocess.run(command, check=True, cwd=folder, timeout=600)
