"""Makes the JSON Schemas that the package ships from the code that validates the files.

python -m tests.support.schemas            write them
python -m tests.support.schemas --check    exit with 1 if one is not as it would be written
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from policies.definitions.guardrail import GUARDRAIL_FILE
from policies.definitions.policy_form import POLICY_FILE
from policies.testing.file_form import TEST_FILE
from sidecar.config.help import settings_schema

FOLDER = Path(__file__).parents[2] / "policies" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

MADE: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "guardrails": ("Guardrails of a tenant", GUARDRAIL_FILE.schema),
    "policy": ("Policies of a tenant", POLICY_FILE.schema),
    "sidecar": ("Settings of a sidecar", settings_schema),
    "test": ("Tests of policies", TEST_FILE.schema),
}
"""Each schema's title, and the function that makes it."""


def path(name: str) -> Path:
    return FOLDER / f"{name}.schema.json"


def text(name: str) -> str:
    """Return the schema's file as it should be."""
    title, schema = MADE[name]
    document = {"$schema": DIALECT, "title": title, **schema()}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def stale() -> list[str]:
    """Return the names of the schemas whose files are not as they would be written."""
    return [
        each for each in MADE if not path(each).exists() or path(each).read_text() != text(each)
    ]


def main() -> int:
    found = stale()
    if sys.argv[1:] == ["--check"]:
        for name in found:
            print(f"{path(name)} is stale: python -m tests.support.schemas", file=sys.stderr)
        return int(bool(found))
    for name in found:
        path(name).write_text(text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
