"""`sluice policies`: what each role may read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from deploy.client.client import Client, Commands
from deploy.client.connection import ApiResponse, segment
from deploy.client.credentials import UnusableCredentials
from deploy.client.policy_file import read_policies

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
VERSIONS = (
    ("VERSION", "version"),
    ("CHANGE", "change"),
    ("CHANGED AT", "changed_at"),
    ("CHANGED BY", "changed_by"),
)
OUTCOMES = (("POLICY", "policy_id"), ("NAME", "name"), ("VERSION", "version"), ("DID", "outcome"))
ID = "pol_"


def declare(parser: argparse.ArgumentParser) -> None:
    """Its actions and their arguments."""
    actions = Commands(parser)
    listed = actions.add_list(_list, "list policies, newest first")
    listed.add_argument("--role", help="only those of this role")
    listed.add_argument("--industry", help="only those of this industry")
    listed.add_argument("--process-group", help="only those of this process group")
    applied = actions.add("apply", _apply, "create the policies in a file, or replace them by name")
    applied.add_argument("file", metavar="FILE", type=Path, help="YAML or JSON")
    applied.add_argument("--dry-run", action="store_true", help="only say what would be done")
    actions.add("reload", _reload, "read the policy files of the control API again")
    for name, run, line in (
        ("show", _show, "show a policy"),
        ("history", _history, "list a policy's versions, newest first"),
        ("delete", _delete, "delete a policy"),
        ("restore", _restore, "put a policy back to what its file says, deleted ones too"),
    ):
        each = actions.add(name, run, line)
        each.add_argument(
            "policy", metavar="POLICY", help="an active policy's name, or the id of any"
        )


def _list(client: Client, chosen: argparse.Namespace) -> int:
    query = {
        "agent_role": chosen.role,
        "industry": chosen.industry,
        "process_group": chosen.process_group,
    }
    return client.list(PATH, query, chosen, COLUMNS)


def _show(client: Client, chosen: argparse.Namespace) -> int:
    return client.show(_path(client, chosen))


def _history(client: Client, chosen: argparse.Namespace) -> int:
    client.out.rows(client.api.pages(f"{_path(client, chosen)}/history", {}, None), VERSIONS)
    return 0


def _delete(client: Client, chosen: argparse.Namespace) -> int:
    answer = client.api.ask("DELETE", _path(client, chosen))
    return client.did(answer, f"policy {chosen.policy} is deleted")


def _restore(client: Client, chosen: argparse.Namespace) -> int:
    answer = client.api.ask("POST", f"{_path(client, chosen)}/restore")
    return client.did(answer, f"policy {answer.body['name']} is as its file defines it")


def _reload(client: Client, _: argparse.Namespace) -> int:
    answer = client.api.ask("POST", f"{PATH}/reload")
    client.out.members(answer.body)
    client.tell_revision(answer)
    return 0


def _apply(client: Client, chosen: argparse.Namespace) -> int:
    asked = read_policies(chosen.file)
    known = {each["name"]: each for page in client.api.pages(PATH, {}, None) for each in page}
    done: list[dict[str, Any]] = []
    last: ApiResponse | None = None
    try:
        for policy in asked:
            outcome, answer = _put(client, policy, known.get(policy["name"]), chosen.dry_run)
            done.append(outcome)
            last = answer or last
    finally:
        # Where one is refused, what was done before it is told all the same.
        client.out.rows([done], OUTCOMES)
        if last is not None:
            client.tell_revision(last)
    return 0


def _put(
    client: Client, policy: dict[str, Any], known: dict[str, Any] | None, dry_run: bool
) -> tuple[dict[str, Any], ApiResponse | None]:
    """Creates or replaces one policy; what was done, and the answer where something was."""
    outcome = {"name": policy["name"], "policy_id": None, "version": None}
    if known is not None:
        outcome |= {"policy_id": known["policy_id"], "version": known["version"]}
    if dry_run:
        return outcome | {"outcome": "would create" if known is None else "would replace"}, None
    if known is None:
        answer = client.api.ask("POST", PATH, body=policy)
        return outcome | _kept(answer.body) | {"outcome": "created"}, answer
    # Changed by somebody since the list was read: 412, and nothing of theirs is lost.
    match = {"If-Match": f'"{known["version"]}"'}
    path = f"{PATH}/{segment(known['policy_id'])}"
    answer = client.api.ask("PUT", path, body=policy, headers=match)
    changed = answer.body["version"] != known["version"]
    return outcome | _kept(answer.body) | {"outcome": "replaced" if changed else "same"}, answer


def _kept(policy: dict[str, Any]) -> dict[str, Any]:
    return {"policy_id": policy["policy_id"], "version": policy["version"]}


def _path(client: Client, chosen: argparse.Namespace) -> str:
    """The path of the policy that is meant."""
    named: str = chosen.policy
    if named.startswith(ID):
        return f"{PATH}/{segment(named)}"
    for page in client.api.pages(PATH, {}, None):
        for policy in page:
            if policy["name"] == named:
                return f"{PATH}/{segment(policy['policy_id'])}"
    raise UnusableCredentials(
        f"no active policy is called `{named}`; a deleted one is named by its id"
    )
