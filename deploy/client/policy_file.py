"""Reads the policies in a file of the operator's: YAML or JSON, one policy or many.

The API judges what they say. Refused here is what would be lost on the way to it: a key that stands
twice, of which YAML would take the last, and values that JSON has not.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from deploy.client.credentials import UnusableCredentials

MAX_FILE = 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice: a second `denied_sources` must not silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                line = key.start_mark.line + 1
                raise UnusableCredentials(f"line {line}: `{name}` is there twice")
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_policies(path: Path) -> list[dict[str, Any]]:
    """The policies, in order: of `{policies: […]}`, of a list, or the one that the file is.
    `UnusableCredentials` with the place."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except OSError as error:
        raise UnusableCredentials(f"`{path}` can't be read: {error.strerror}") from error
    if len(raw) > MAX_FILE:
        raise UnusableCredentials(f"`{path}` is larger than {MAX_FILE} bytes")
    try:
        found = yaml.load(raw, _Loader)  # noqa: S506  # it is a SafeLoader
        json.dumps(found)
    except UnusableCredentials as problem:
        raise UnusableCredentials(f"`{path}`: {problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableCredentials(f"`{path}` is not YAML or JSON: {error}") from error
    except (TypeError, ValueError) as error:
        raise UnusableCredentials(
            f"`{path}` holds what JSON has not, such as a date: {error}"
        ) from error
    if isinstance(found, dict):
        found = found["policies"] if [*found] == ["policies"] else [found]
    if (
        not isinstance(found, list)
        or not found
        or not all(isinstance(each, dict) for each in found)
    ):
        raise UnusableCredentials(f"`{path}` is neither a policy nor a list of policies")
    names = [each.get("name") for each in found]
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise UnusableCredentials(f"`{path}`: each policy needs a `name` of its own")
    return found
