"""Makes a page of the policy set from what was read, with the log keys that sign for the tenant.
Reads nothing."""

from collections.abc import Sequence
from typing import cast

from control_api.auth.principal import Caller
from control_api.fleet.bundle import Fleet
from control_api.fleet.models import PolicySetPage, SetDocument
from control_api.fleet.set_pages import EncodedPage
from policies.ground.canonical import b64, rfc3339
from policies.ground.signing import Endorsement


def policy_set_page(
    fleet: Fleet,
    caller: Caller,
    found: EncodedPage,
    *,
    reset: bool,
    chain: Sequence[Endorsement] | None = None,
) -> PolicySetPage:
    """A page of the policy set as a sidecar reads it.

    `reset` tells the sidecar to drop its copy first. `chain` are the endorsements that lead to the
    key to show; by default, those of this process's own key.
    """
    chain = fleet.ring.history if chain is None else chain
    return PolicySetPage(
        epoch=fleet.epoch,
        revision=found.page.revision,
        reset=reset,
        more=found.page.more,
        now=rfc3339(fleet.clock.now()),
        tenant_id=caller.tenant.tenant_id,
        log_key=b64(chain[-1].next if chain else fleet.ring.signer.public),
        log_key_history=[each.to_wire() for each in chain],
        # Encoded once for all sidecars that get the page.
        documents=cast("list[SetDocument]", found.documents),
    )
