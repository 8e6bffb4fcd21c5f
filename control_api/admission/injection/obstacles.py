"""Pods that can't be injected as they stand: the API server accepts no such pod, but `sluice
inject` reads files. What may not run in a governed namespace is decided by `refusals`.
"""

from __future__ import annotations

import re

from control_api.admission.injection.shape import faults
from control_api.admission.refusing.pod_view import account_of
from control_api.admission.template import Fragment
from control_api.admission.vocabulary import Json, Refusal
from policies.definitions.definition import shown

# RFC 1123: the API server accepts no other name of a ServiceAccount. It becomes part of the names
# of a ConfigMap and a Secret.
_ACCOUNT = re.compile(r"\A[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")


def obstacles(pod: Json, fragment: Fragment) -> list[Refusal]:
    """Every reason why the pod can't be injected."""
    malformed = [Refusal("malformed", each) for each in faults(pod, _own(fragment))]
    if malformed:
        # The name of the account may be what was just found to be of another type.
        return malformed
    account = account_of(pod)
    if not _ACCOUNT.match(account):
        return [Refusal("account", f"{shown(account)} is not the name of a ServiceAccount")]
    return []


def _own(fragment: Fragment) -> frozenset[str]:
    parts = (*fragment.init_containers, *fragment.volumes, *fragment.environment)
    return frozenset(each["name"] for each in parts)
