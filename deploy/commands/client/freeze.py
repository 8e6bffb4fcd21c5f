"""`sluice freeze`: denies every evaluation of the tenant until the freeze is lifted."""

from __future__ import annotations

import argparse

from deploy.commands.client.client import Client, common
from policies.ground.process.api_client import UnusableArguments

PATH = "/v1/freeze"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Denies every evaluation of the tenant (`tenant_frozen`), in every sidecar, and records "
        "each denial; --lift ends the freeze."
    )
    common(parser, _freeze)
    parser.add_argument("reason", nargs="?", metavar="REASON", help="the reason, for the record")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--lift", action="store_true", help="end the freeze")
    what.add_argument("--status", action="store_true", help="only show whether a freeze is on")


def _freeze(client: Client, options: argparse.Namespace) -> int:
    if (options.lift or options.status) == (options.reason is not None):
        raise UnusableArguments("give either a REASON to freeze, or --lift, or --status")
    if options.status:
        return client.show(PATH)
    if options.lift:
        frozen = client.api.request("GET", PATH).body["frozen"]
        response = client.api.request("DELETE", PATH)
        client.out.document(response.body, "the tenant is not frozen")
        # Without a freeze nothing was written, and the response has the revision of before.
        if frozen:
            client.print_revision(response)
        return 0
    response = client.api.request("POST", PATH, body={"reason": options.reason})
    frozen = response.body
    # An earlier freeze stays, with its time and reason: the response shows those.
    since = f"since {frozen['frozen_at']}, every evaluation is denied: {frozen['reason']}"
    return client.report(response, f"the tenant is frozen {since}")
