"""`sluice policy fmt`: lays files out in one way, in place."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from deploy.commands.policy.formatting.files import Unformattable, formatted, read, replace
from deploy.commands.policy.schema import kind_of, schema
from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand
from policies.definitions.definition import LoadError, printable
from policies.definitions.policy_files import leads_inside


def add(add_command: AddCommand) -> None:
    """Add the command `fmt`. Exit codes: 0; 1 if `--check` finds a file that it would change."""
    command = add_command("fmt", "lay out policy, test and guardrail files in one way")
    command.add_argument(
        "path", metavar="PATH", nargs="?", default=Path(), type=Path, help="a file or a directory"
    )
    command.add_argument("--check", action="store_true", help="only say what would change")
    command.set_defaults(run=_fmt)


def _fmt(options: argparse.Namespace) -> int:
    changed, wrong = 0, 0
    word = "would change" if options.check else "changed"
    for path in _files(options.path):
        try:
            text = read(path)
            after = formatted(text, json.loads(schema(kind_of(path))), str(path))
        except (LoadError, Unformattable) as error:
            # The other files are laid out all the same.
            print(f"sluice policy: {error}", file=sys.stderr)
            wrong += 1
            continue
        if after == text:
            continue
        if not options.check:
            replace(path, after)
        print(f"{word}: {printable(str(path))}")
        changed += 1
    return 2 if wrong else int(options.check and changed > 0)


def _files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        # Hidden ones are not policies: editors' copies, and `..data` of a mounted ConfigMap.
        # Nor are links out of the tree: a command that is given a folder writes nowhere else.
        return sorted(
            each
            for each in path.rglob("*.yaml")
            if not any(part.startswith(".") for part in each.relative_to(path).parts)
            and leads_inside(each, path.resolve())
        )
    if not path.exists():
        raise Unusable(f"`{path}` does not exist")
    return [path]
