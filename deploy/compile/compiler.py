"""Calls mypyc and the C compiler, and makes a copy of the checkout in which the compiled modules
lie beside their sources.

The modules are not put into the checkout itself, since an extension module beside an edited source
would hide the edit. Nothing is compiled again while the sources and the tools stay the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.compile.modules import FILES, GROUPS, file_of

ROOT = Path(__file__).resolve().parents[2]
_NEEDED = ("mypyc", "setuptools")
# Of other libraries' types nothing is used, and the project's own configuration of mypy needs a
# plugin: what is compiled, and whether it can be, must not depend on what else is installed. An
# image is compiled beside fewer libraries than a checkout has.
_MYPY = (
    "--config-file=", "--no-site-packages", "--strict", "--ignore-missing-imports",
    "--follow-imports=silent",
)  # fmt: skip
# Without the libraries' types, some of what satisfies them looks superfluous.
_LENIENT = ("--no-warn-unused-ignores", "--no-warn-return-any", "--no-warn-redundant-casts")


class CannotCompile(Exception):
    """the core can't be compiled here; the message says why, and what to do"""


def missing() -> str | None:
    """Return a message that says what this machine lacks for compiling; None if it lacks
    nothing."""
    absent = [name for name in _NEEDED if find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} can't be imported; install the extra `compile`"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler `{compiler}`; install one, or name it in CC"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's C headers are absent; install them (on Debian: `python3-dev`)"
    return None


def check_types(files: Sequence[str] = FILES) -> None:
    """Check with mypy whether the types of `files` allow compiling them. Raises `CannotCompile` if
    not. Takes seconds, and gives the same result on every machine."""
    if find_spec("mypy") is None:
        raise CannotCompile("mypy can't be imported; install the extra `compile`")
    with TemporaryDirectory() as scratch:
        _run("mypy", *_MYPY, *_LENIENT, f"--cache-dir={scratch}", *files)


def compile_modules(destination: Path, only: str | None = None) -> None:
    """Compile the modules, or only the module `only`, into `destination`, each at its module's
    place in the tree. Raises `CannotCompile`."""
    if lacking := missing():
        raise CannotCompile(lacking)
    chosen = [] if only is None else [only]
    _run("deploy.compile.compiler", str(destination.resolve()), *chosen)


def _run(module: str, *arguments: str) -> None:
    # A process of its own: mypyc ends the process when it finds an error, and finds modules by the
    # current folder.
    command = [sys.executable, "-m", module, *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise CannotCompile(
            f"mypy, mypyc or the C compiler failed:\n{answer.stdout}{answer.stderr}"
        )


def _build(destination: Path, groups: Mapping[str, Sequence[str]]) -> None:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    files = [file_of(name) for names in groups.values() for name in names]
    with TemporaryDirectory() as scratch:
        extensions = mypycify(
            [*_MYPY, *_LENIENT, f"--cache-dir={scratch}/mypy", *files],
            opt_level="3",
            debug_level="0",
            separate=[([*map(file_of, names)], group) for group, names in groups.items()],
            target_dir=scratch,
        )
        # The same bytes wherever the scratch folder is.
        same_bytes = f"-ffile-prefix-map={scratch}=."
        for extension in extensions:
            # A new list: mypyc gives all extensions the same one.
            extension.extra_compile_args = [*extension.extra_compile_args, same_bytes]
            extension.extra_link_args.append("-Wl,--strip-all")
        build = build_ext(Distribution({"name": "sluice", "ext_modules": extensions}))
        build.parallel = len(groups)
        build.build_lib, build.build_temp = str(destination), f"{scratch}/objects"
        build.ensure_finalized()
        build.run()


if __name__ == "__main__":
    _build(Path(sys.argv[1]), {"sluice_only": sys.argv[2:]} if sys.argv[2:] else GROUPS)


LEFT_OUT = (
    ".git", ".venv", ".compiled", ".sluice", "dist", ".hypothesis", "__pycache__", ".*_cache",
    "*.so",
)  # fmt: skip


def make_tree(destination: Path) -> Path:
    """Make or renew the copy of the checkout with the compiled modules, and return its path,
    `destination/tree`. Raises `CannotCompile`."""
    built, tree, stamp = (destination / name for name in ("built", "tree", "stamp"))
    inputs = _inputs()
    if not stamp.is_file() or stamp.read_text() != inputs:
        shutil.rmtree(built, ignore_errors=True)
        compile_modules(built)
        stamp.write_text(inputs)
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    shutil.copytree(built, tree, dirs_exist_ok=True)
    return tree


def _inputs() -> str:
    """Return a digest of everything that the compiled modules depend on: the sources and the pinned
    tools."""
    digest = hashlib.sha256(sys.version.encode())
    sources = (ROOT / package for package in ("policies", "sidecar"))
    files = [each for package in sources for each in package.rglob("*.py")]
    files += (ROOT / "deploy/compile").glob("*.py")
    for path in sorted([*files, ROOT / "requirements.lock"]):
        content = path.read_bytes()
        digest.update(b"%b %d " % (str(path.relative_to(ROOT)).encode(), len(content)) + content)
    return digest.hexdigest()
