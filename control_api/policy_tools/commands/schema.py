"""`sluice policy schema`: the JSON Schema of a kind of file, for editors."""

import argparse

from control_api.policy_tools.options import AddCommand
from control_api.policy_tools.schemas import KINDS, schema


def add(add_command: AddCommand) -> None:
    """Add the command `schema`."""
    command = add_command("schema", "print the JSON Schema of policy files, or of another kind")
    command.add_argument("kind", nargs="?", default=KINDS[0], choices=KINDS, help="default: policy")
    command.set_defaults(run=_schema)


def _schema(options: argparse.Namespace) -> int:
    print(schema(options.kind), end="")
    return 0
