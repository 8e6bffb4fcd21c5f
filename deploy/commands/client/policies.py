"""`sluice policies`: lists, shows, applies, deletes, restores and reloads policies.

The API validates their content. This module refuses only values that would be lost on the way
there: a duplicate key, for which YAML keeps the last value, and values that JSON can't represent.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from deploy.commands.client.client import Client, Commands
from policies.ground.process.api_client import ApiResponse, UnusableArguments, segment

MAX_FILE = 1024 * 1024


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys: a second `denied_sources` must not silently
    replace the first."""

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
    """Read the policies of a YAML or JSON file, in order. The file holds `{policies: […]}`, a list
    of policies, or one policy. Raises `UnusableArguments` with the file and line."""
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


PATH = "/v1/policies"
COLUMNS = (
    ("POLICY", "policy_id"),
    ("NAME", "name"),
    ("VERSION", "version"),
    ("ROLE", "agent_role"),
    ("SENSITIVITY", "max_sensitivity"),
    ("ALLOWED", "allowed_sources"),
    ("DENIED", "denied_sources"),
    ("MODIFIED", "user_modified"),
)
FILTERS = {
    "role": ("agent_role", "only policies of this role"),
    "industry": ("industry", "only policies of this industry"),
    "process-group": ("process_group", "only policies of this process group"),
}
VERSIONS = (
    ("VERSION", "version"),
    ("CHANGE", "change"),
    ("CHANGED AT", "changed_at"),
    ("CHANGED BY", "changed_by"),
)
OUTCOMES = (("POLICY", "policy_id"), ("NAME", "name"), ("VERSION", "version"), ("DID", "outcome"))
ID = "pol_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    actions.add_list(PATH, COLUMNS, "list policies, newest first", FILTERS)
    applied = actions.add("apply", _apply, "create the policies in a file, or replace them by name")
    applied.add_argument("file", metavar="FILE", type=Path, help="YAML or JSON")
    applied.add_argument("--dry-run", action="store_true", help="only print what would change")
    actions.add("reload", _reload, "make the control API read its policy files again")
    for name, run, line in (
        ("show", _show, "show a policy"),
        ("history", _history, "list a policy's versions, newest first"),
        ("delete", _delete, "delete a policy"),
        ("restore", _restore, "reset a policy, even a deleted one, to what its file defines"),
    ):
        each = actions.add(name, run, line)
        each.add_argument(
            "policy", metavar="POLICY", help="an active policy's name, or the id of any"
        )


def _show(client: Client, options: argparse.Namespace) -> int:
    return client.show(_path(client, options))


def _history(client: Client, options: argparse.Namespace) -> int:
    client.out.rows(client.api.pages(f"{_path(client, options)}/history", {}, None), VERSIONS)
    return 0


def _delete(client: Client, options: argparse.Namespace) -> int:
    response = client.api.request("DELETE", _path(client, options))
    return client.report(response, f"policy {options.policy} is deleted")


def _restore(client: Client, options: argparse.Namespace) -> int:
    response = client.api.request("POST", f"{_path(client, options)}/restore")
    return client.report(response, f"policy {response.body['name']} is as its file defines it")


def _reload(client: Client, _: argparse.Namespace) -> int:
    response = client.api.request("POST", f"{PATH}/reload")
    client.out.members(response.body)
    client.print_revision(response)
    return 0


def _apply(client: Client, options: argparse.Namespace) -> int:
    # Read the whole file before changing anything. The policies are then sent one by one, because
    # the API has no transaction over several.
    policies = read_policies(options.file)
    existing = {each["name"]: each for page in client.api.pages(PATH, {}, None) for each in page}
    outcomes: list[dict[str, Any]] = []
    last: ApiResponse | None = None
    try:
        for policy in policies:
            outcome, response = _put(client, policy, existing.get(policy["name"]), options.dry_run)
            outcomes.append(outcome)
            last = response or last
    finally:
        # If the API refuses a policy, still report those that were applied before it.
        client.out.rows([outcomes], OUTCOMES)
        if last is not None:
            client.print_revision(last)
    return 0


def _put(
    client: Client, policy: dict[str, Any], existing: dict[str, Any] | None, dry_run: bool
) -> tuple[dict[str, Any], ApiResponse | None]:
    """Create a policy, or replace `existing`, the active policy of that name. Returns the row to
    print, and the API's response; with `dry_run` nothing is sent, and the response is None."""
    outcome = {"name": policy["name"], "policy_id": None, "version": None}
    if existing is not None:
        outcome |= _id_and_version(existing)
    if dry_run:
        return outcome | {"outcome": "would create" if existing is None else "would replace"}, None
    if existing is None:
        response = client.api.request("POST", PATH, body=policy)
        return outcome | _id_and_version(response.body) | {"outcome": "created"}, response
    # If someone has changed the policy since the list was read, the API refuses this with 412.
    match = {"If-Match": f'"{existing["version"]}"'}
    path = f"{PATH}/{segment(existing['policy_id'])}"
    response = client.api.request("PUT", path, body=policy, headers=match)
    # The API makes no new version of an identical body.
    changed = response.body["version"] != existing["version"]
    did = {"outcome": "replaced" if changed else "same"}
    return outcome | _id_and_version(response.body) | did, response


def _id_and_version(policy: dict[str, Any]) -> dict[str, Any]:
    return {"policy_id": policy["policy_id"], "version": policy["version"]}


def _path(client: Client, options: argparse.Namespace) -> str:
    """Return the API path of the policy that the argument `POLICY` names, by its name or by its id.
    Raises `UnusableArguments` if no active policy has this name."""
    named: str = options.policy
    # A name may begin like an id too, but an id is the more likely meaning.
    if named.startswith(ID):
        return f"{PATH}/{segment(named)}"
    # The API has no look-up by name, since a name is unique only among active policies.
    for page in client.api.pages(PATH, {}, None):
        for policy in page:
            if policy["name"] == named:
                return f"{PATH}/{segment(policy['policy_id'])}"
    raise UnusableArguments(
        f"no active policy has the name `{named}`; give the id of a deleted one, which "
        "`sluice changes --type policy` lists with the action `deleted`, or `removed` if it came "
        "from a file"
    )
