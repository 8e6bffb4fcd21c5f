"""Calls mypyc and the C compiler. Knows no wheel and no tree of tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.compile.modules import FILES, GROUPS, file_of

ROOT = Path(__file__).resolve().parents[2]
_NEEDED = ("mypyc", "setuptools")
# Of other libraries' types nothing is used, and the project's own configuration of mypy needs a
# plugin: what is compiled must not depend on what else is installed.
_MYPY = ("--config-file=", "--strict", "--ignore-missing-imports", "--follow-imports=silent")
# Imports of libraries look typed or untyped by what is installed, and strictness would notice.
_LENIENT = ("--no-warn-unused-ignores", "--no-warn-return-any", "--no-warn-redundant-casts")


class CannotCompile(Exception):
    """the core can't be compiled here; the message says why, and what to do"""


def missing() -> str | None:
    """What this machine lacks to compile; None if it can."""
    absent = [name for name in _NEEDED if find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} can't be imported; install the extra `compile`"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler `{compiler}`; install one, or name it in CC"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's C headers are absent; install them (on Debian: `python3-dev`)"
    return None


def compile_modules(destination: Path) -> None:
    """Write the extension modules into `destination`, each at its module's place."""
    if lacking := missing():
        raise CannotCompile(lacking)
    # A process of its own: mypyc ends the process when it finds an error, and finds modules by the
    # current folder.
    command = [sys.executable, "-m", "deploy.compile.compiler", str(destination.resolve())]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise CannotCompile(f"mypyc or the C compiler failed:\n{answer.stdout}{answer.stderr}")


def _build(destination: Path) -> None:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    with TemporaryDirectory() as scratch:
        extensions = mypycify(
            [*_MYPY, *_LENIENT, f"--cache-dir={scratch}/mypy", *FILES],
            opt_level="3",
            debug_level="0",
            separate=[([*map(file_of, names)], group) for group, names in GROUPS.items()],
            target_dir=scratch,
        )
        # The same bytes wherever the scratch folder is.
        same_bytes = f"-ffile-prefix-map={scratch}=."
        for extension in extensions:
            # A new list: mypyc gives all extensions the same one.
            extension.extra_compile_args = [*extension.extra_compile_args, same_bytes]
            extension.extra_link_args.append("-Wl,--strip-all")
        build = build_ext(Distribution({"name": "sluice", "ext_modules": extensions}))
        build.parallel = len(GROUPS)
        build.build_lib, build.build_temp = str(destination), f"{scratch}/objects"
        build.ensure_finalized()
        build.run()


if __name__ == "__main__":
    _build(Path(sys.argv[1]))
