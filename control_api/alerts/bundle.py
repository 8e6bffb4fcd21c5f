"""What the operations and the loops of alerts work with, built once at startup."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from control_api.log.changes import Changes
from control_api.metrics.metrics import JobMetrics
from control_api.security.egress import AllowedHosts, MailServer
from control_api.store.store import Store
from policies.ground.clock import Clock


class Mail(NamedTuple):
    """The operator's mail server, and the address that alerts are sent from."""

    server: MailServer
    sender: str


@dataclass(frozen=True, slots=True)
class Alerts:
    """`entropy(n)` returns n random bytes; `mail` is None if the operator named no mail server;
    `allowed_hosts` are what webhooks may call although it is not public."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    mail: Mail | None
    allowed_hosts: AllowedHosts
    metrics: JobMetrics
