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
from xml.sax.saxutils import escape

_APT = "apt-get"
_NETFILTER = ("libnftnl11", "libmnl0", "libxtables12")


class Program(NamedTuple):
    """Where a program comes from."""

    packages: tuple[str, ...]
    path: str
    """Inside the packages."""
    words: tuple[str, ...] = ()
    """Its first arguments: some programs contain several."""
    needs_more: bool = False
    """Whether the packages need others, too many to name: apt says which of them are missing."""


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
    # Not /usr/bin/chromium, a script that reads the system's configuration.
    "chromium": Program(
        ("chromium", "fonts-dejavu-core", "fonts-liberation"),
        "usr/lib/chromium/chromium",
        needs_more=True,
    ),
}
_LOADED = ("lib", "zlib", "chromium", "fonts-")
_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">../usr/share/fonts</dir>
  <cachedir>{cache}</cachedir>
  <alias><family>sans-serif</family><prefer><family>Liberation Sans</family></prefer></alias>
  <alias><family>serif</family><prefer><family>Liberation Serif</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
</fontconfig>
"""


def place(name: str, folder: Path) -> Path:
    """The script that runs the program `name`, once it is unpacked in `folder`."""
    return folder / "programs" / name / "run" / name


def fetch(name: str, folder: Path) -> None:
    """Download and unpack the program `name`. Raises `OSError` or `SubprocessError`."""
    if shutil.which(_APT) is None or shutil.which("dpkg-deb") is None:
        raise FileNotFoundError("this system has no apt-get")
    program, script = PROGRAMS[name], place(name, folder)
    target = script.parents[1]
    shutil.rmtree(target, ignore_errors=True)
    script.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            _download(program, scratch)
        except subprocess.SubprocessError:
            # No list of packages on this machine, or one so old that the servers have moved on.
            for package in Path(scratch).glob("*.deb"):
                package.unlink()  # the other lists may name another version
            lists = _own_lists(scratch)
            _run([_APT, "update", "-q", *lists], scratch)
            _download(program, scratch, *lists)
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(target)], scratch)
    cache = escape(str(script.parent / "fonts.cache"))
    (script.parent / "fonts.conf").write_text(_FONTS.format(cache=cache))
    # A script that names no program would look like one that can be run, so it comes last.
    script.write_text(_script(target, program))
    script.chmod(0o755)


def _download(program: Program, folder: str, *options: str) -> None:
    packages = _with_missing(program, options) if program.needs_more else program.packages
    _run([_APT, "download", "-q", "-o", "APT::Sandbox::User=root", *options, *packages], folder)


def _with_missing(program: Program, options: tuple[str, ...]) -> list[str]:
    """The packages and the libraries that this system lacks for them."""
    command = [_APT, "install", "--simulate", "-qq", "--no-install-recommends"]
    simulated = subprocess.run(
        [*command, *options, *program.packages],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    lines = [line.split() for line in simulated.stdout.splitlines()]
    named = [words[1] for words in lines if words[0] == "Inst"]
    # The C library has to be the one whose loader runs the program: the system's.
    return [each for each in named if each.startswith(_LOADED) and each != "libc6"]


def _own_lists(folder: str) -> list[str]:
    """Options of apt-get for lists that need no root."""
    lists, archives = Path(folder, "lists"), Path(folder, "archives")
    for each in (lists, archives):
        (each / "partial").mkdir(parents=True)
    options = (
        f"Dir::State::Lists={lists}",
        f"Dir::Cache={archives}",
        "APT::Sandbox::User=root",
        "Acquire::Retries=0",  # without a network, tests wait for this before they skip
        "Acquire::http::Timeout=20",
    )
    return [word for option in options for word in ("-o", option)]


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
        f"FONTCONFIG_FILE={shlex.quote(str(target / 'run/fonts.conf'))}\n"
        "export LD_LIBRARY_PATH XTABLES_LIBDIR RSYSLOG_MODDIR FONTCONFIG_FILE\n"
        f'exec {words} "$@"\n'
    )


def _run(command: list[str], folder: str) -> None:
    subprocess.run(command, check=True, cwd=folder, timeout=600)
