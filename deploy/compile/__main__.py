"""The command line `python -m deploy.compile check | types | modules DIR | tree DIR`, which
`deploy.compile` describes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.compile.compiler import CannotCompile, check_types, compile_modules, make_tree, missing


def main() -> int:
    """Run the command. Returns 0, or 1 after printing why the core can't be compiled."""
    parser = argparse.ArgumentParser(prog="python -m deploy.compile")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="whether this machine can compile the core")
    commands.add_parser("types", help="whether the types of what is compiled allow it")
    for name, meaning in (("modules", "the compiled modules"), ("tree", "a compiled copy")):
        commands.add_parser(name, help=f"write {meaning} to DIR").add_argument("DIR", type=Path)
    asked = parser.parse_args()
    try:
        if asked.command == "check" and (lacking := missing()):
            raise CannotCompile(lacking)
        if asked.command == "types":
            check_types()
        if asked.command == "modules":
            compile_modules(asked.DIR)
        if asked.command == "tree":
            make_tree(asked.DIR)
    except CannotCompile as problem:
        print(f"the core can't be compiled: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
