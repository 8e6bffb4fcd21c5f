"""What the console works with beside the operations, built once at startup."""

from dataclasses import dataclass

from control_api.audit.bundle import Audit
from control_api.metrics.metrics import Instruments
from control_api.policy.analyses.process import Analyses
from control_api.security.console_settings import ConsoleAddress
from control_api.signin.bundle import SigningIn
from control_api.tenants.bundle import Tenants
from policies.ground.clock import Clock


@dataclass(frozen=True, slots=True)
class Console:
    """`address` says under which host the console answers."""

    clock: Clock
    address: ConsoleAddress
    analyses: Analyses
    instruments: Instruments
    signin: SigningIn
    audit: Audit
    tenants: Tenants
