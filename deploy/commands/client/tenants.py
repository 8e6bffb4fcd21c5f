"""`sluice tenants`: lists and creates tenants, with the superadmin's key."""

from __future__ import annotations

import argparse

from deploy.commands.client.client import Client, Commands
from deploy.commands.client.keys import print_secret
from deploy.commands.client.output import new_file

PATH = "/v1/admin/tenants"
COLUMNS = (
    ("TENANT", "tenant_id"),
    ("NAME", "name"),
    ("ACTIVE", "active"),
    ("FROZEN", "frozen_at"),
    ("CREATED", "created_at"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    actions.add_list(PATH, COLUMNS, "list tenants, newest first; needs the superadmin's key", {})
    line = (
        "create a tenant and show its first admin key, this once only; needs the superadmin's key"
    )
    made = actions.add("create", _create, line)
    made.add_argument("name", metavar="NAME", help="the tenant's name, which no other has")
    made.add_argument(
        "--out", metavar="FILE", help="write the admin key to a new file (0600), don't print it"
    )


def _create(client: Client, options: argparse.Namespace) -> int:
    # The file comes first: the API shows the key only once. If we die after the request, the tenant
    # exists and its admin key is lost; the superadmin provisions another.
    with new_file(options.out) as file:
        made = client.api.request("POST", PATH, body={"name": options.name})
        return print_secret(client, made, "admin_key", options.out, file)
