"""Unpacks programs of Debian's packages into a folder, without installing them or being root.

Each gets a script that runs it with its own shared libraries, so that a test, or what it tests, can
start it like any program.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from xml.sax.saxutils import escape

from tests.programs.sources import Debian

_APT = "apt-get"
_ANY_USER = ("-o", "APT::Sandbox::User=root")
_LIBRARIES = ("lib", "zlib")
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
_updating = threading.Lock()


def fetch(source: Debian, folder: Path, final: Path, lists: Path) -> None:
    """Download and unpack into `folder`, which will be moved to `final`. `lists` is where lists of
    packages are kept if the system's own can't be used. Raises `OSError` or `SubprocessError`."""
    if shutil.which(_APT) is None or shutil.which("dpkg-deb") is None:
        raise FileNotFoundError("this system has no apt-get")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            # Container images turn apt's cache off, which then reads all lists at every start.
            cached = ("-o", f"Dir::Cache::pkgcache={lists / 'system.bin'}")
            _download(source, scratch, (*_ANY_USER, *cached))
        except subprocess.SubprocessError:
            # No list of packages on this machine, or one so old that the servers have moved on.
            for package in Path(scratch).glob("*.deb"):
                package.unlink()  # the other lists may name another version
            _download(source, scratch, _own_lists(lists))
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(folder)], scratch)
    run = folder / "run"
    run.mkdir()
    cache = escape(str(final / "run" / "fonts.cache"))
    (run / "fonts.conf").write_text(_FONTS.format(cache=cache))
    for name, command in source.programs.items():
        (run / name).write_text(_script(folder, final, command))
        (run / name).chmod(0o755)


def _download(source: Debian, folder: str, options: tuple[str, ...]) -> None:
    packages = [*source.packages, *_missing_libraries(source, options)]
    _run([_APT, "download", "-q", *options, *packages], folder)


def _missing_libraries(source: Debian, options: tuple[str, ...]) -> list[str]:
    """The libraries that this system lacks for the packages, and what comes with them."""
    command = [_APT, "install", "--simulate", "-qq", "--no-install-recommends", *options]
    answer = _run([*command, *source.packages], os.curdir)
    lines = [line.split() for line in answer.splitlines()]
    named = {words[1] for words in lines if words[0] == "Inst"} - {*source.packages}
    return sorted(
        each
        for each in named
        if each.startswith((*_LIBRARIES, *(f"{name}-" for name in source.packages)))
        # The C library has to be the one whose loader runs the program: the system's.
        and each != "libc6"
        and not each.endswith("-dev")
    )


def _own_lists(folder: Path) -> tuple[str, ...]:
    """Options of apt-get for lists in `folder`, which need no root. Fetched once."""
    lists, archives = folder / "lists", folder / "archives"
    options = (
        *_ANY_USER,
        *("-o", f"Dir::State::Lists={lists}"),
        *("-o", f"Dir::Cache={archives}"),
        *("-o", f"Dir::Cache::pkgcache={folder / 'own.bin'}"),
        *("-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20"),
    )
    with _updating:
        if not lists.exists():
            for each in (lists, archives):
                (each / "partial").mkdir(parents=True, exist_ok=True)
            _run([_APT, "update", "-q", *options], str(folder))
    return options


def _script(unpacked: Path, final: Path, command: str) -> str:
    """A script for a program that is in `unpacked` now and in `final` when it is run."""
    path, *words = command.split()
    # Since Debian 13, packages name no folder by its old name outside of /usr.
    path = path if (unpacked / path).exists() else f"usr/{path}"

    def moved(found: Path) -> str:
        return str(final / found.relative_to(unpacked))

    libraries = sorted({moved(each.parent) for each in unpacked.rglob("*.so*")})
    extensions = next(unpacked.glob("usr/lib/*/xtables"), unpacked)
    modules = next(unpacked.glob("usr/lib/*/rsyslog"), unpacked)
    variables = {
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "XTABLES_LIBDIR": moved(extensions),
        "RSYSLOG_MODDIR": moved(modules),
        "FONTCONFIG_FILE": str(final / "run" / "fonts.conf"),
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    started = shlex.join([str(final / path), *words])
    return "\n".join(["#!/bin/sh", *lines, f'exec {started} "$@"', ""])


def _run(command: list[str], folder: str) -> str:
    """Returns what a command prints."""
    return subprocess.run(
        command, check=True, cwd=folder, capture_output=True, text=True, timeout=600
    ).stdout
