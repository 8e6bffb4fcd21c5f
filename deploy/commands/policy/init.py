"""`sluice policy init`: writes a directory of commented policies to start with, with tests and
guardrails."""

import argparse
import shlex
import shutil
import sysconfig
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from deploy.commands.policy.schema import IN_POLICY_DIRECTORY, SUFFIX, schema
from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand

_NEXT = """
Next:
  # errors and likely mistakes
  {sluice} policy lint {folder}
  # what the policies decide, as their tests expect it
  {sluice} policy test {folder}
  # whether the guardrails hold for every request
  {sluice} policy check {folder}
  # who may read a source
  {sluice} policy who contracts --policies {folder}
  # services with these policies on this machine; needs the extra `demo`
  SLUICE_POLICY_DIR={folder} {sluice} up --free-ports\
"""


def add(add_command: AddCommand) -> None:
    """Add the command `init` and its argument."""
    command = add_command("init", "write a commented directory of policies to start with")
    command.add_argument("folder", metavar="DIR", type=Path, help="a new or empty directory")
    command.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Unusable(f"`{folder}` is not an empty directory; name a new one")
        folder.mkdir(parents=True, exist_ok=True)
        _copy(files("deploy.commands.policy").joinpath("starter"), folder)
        # Beside the policies, so that editors need no network.
        for kind in IN_POLICY_DIRECTORY:
            _write(folder / f"{kind}{SUFFIX}", schema(kind))
    except OSError as error:
        raise Unusable(f"`{folder}` can't be written: {error.strerror}") from error
    print(_NEXT.format(folder=shlex.quote(str(folder.absolute())), sluice=shlex.quote(_program())))
    return 0


def _program() -> str:
    """Return the command with which the user can run this installation: `sluice` if the shell finds
    it by that name, as in an active virtual environment, else its path."""
    own = Path(sysconfig.get_path("scripts"), "sluice")
    found = shutil.which("sluice")
    if not own.exists() or (found is not None and Path(found).resolve() == own.resolve()):
        return "sluice"
    return str(own)


def _copy(sample: Traversable, to: Path) -> None:
    for each in sorted(sample.iterdir(), key=lambda each: each.name):
        path = to / each.name
        if each.is_dir():
            path.mkdir()
            _copy(each, path)
        elif each.name.endswith(".yaml"):
            _write(path, each.read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    # `x`: what appeared meanwhile is not ours to replace.
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {path}")
