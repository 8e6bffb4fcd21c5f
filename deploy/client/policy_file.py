"""Reads policies from the operator's file: YAML or JSON, one policy or many.

The API validates their content. This module refuses only what would be lost on the way there: a
duplicate key, for which YAML keeps the last value, and values that JSON can't represent.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from deploy.client.credentials import UnusableArguments

MAX_FILE = 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys: a second `denied_sources` must not silently replace the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                line = key.start_mark.line + 1
                raise UnusableArguments(f"line {line}: the key `{name}` occurs twice")
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_policies(path: Path) -> list[dict[str, Any]]:
    """The policies of the file, in order. The file is `{policies: […]}`, a list or one policy.
    Raises `UnusableArguments` with the file and line."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)  # one byte more, to notice a longer file
    except OSError as error:
        raise UnusableArguments(f"`{path}` can't be read: {error.strerror}") from error
    if len(raw) > MAX_FILE:
        raise UnusableArguments(f"`{path}` is larger than {MAX_FILE} bytes")
    try:
        # JSON is read as YAML, so duplicate keys are refused in both.
        found = yaml.load(raw, _Loader)  # noqa: S506  # a subclass of SafeLoader
        json.dumps(found)  # fails for values that JSON can't represent
    except UnusableArguments as problem:
        raise UnusableArguments(f"`{path}`: {problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableArguments(f"`{path}` is not YAML or JSON: {error}") from error
    except (TypeError, ValueError) as error:
        raise UnusableArguments(
            f"`{path}` contains a value that JSON can't represent, such as a date; put it in "
            f"quotes: {error}"
        ) from error
    if isinstance(found, dict):
        found = found["policies"] if [*found] == ["policies"] else [found]
    if (
        not isinstance(found, list)
        or not found
        or not all(isinstance(each, dict) for each in found)
    ):
        raise UnusableArguments(f"`{path}` contains neither a policy nor a list of policies")
    # `apply` finds the policy to replace by its name.
    names = [each.get("name") for each in found]
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise UnusableArguments(f"`{path}`: each policy needs a `name` of its own")
    return found
