"""The key that signs the log, as `sluice verify --key` takes it."""

from control_api.console.visit import Visit
from control_api.responses.proofs import LogKeys
from control_api.use_cases.audit.show_log_keys import show_log_keys
from policies.ground.canonical import unb64
from policies.trail.proofs.signed_note import ED25519, VerifierKey


async def key_text(visit: Visit, origin: str) -> str:
    """The verifier key of the log `origin` now, as the service claims it."""
    keys: LogKeys = await visit.call(show_log_keys)
    return VerifierKey(origin, ED25519, unb64(keys.log_key)).text()
