"""Makes one attempt to deliver a fired alert: by email through the operator's mail server, or to a
webhook (Standard Webhooks). All attempts of a delivery have the same content.

A webhook's name is resolved once, all its addresses are checked, and the connection goes to one of
them.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiosmtplib
import orjson
from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from standardwebhooks.webhooks import Webhook

from control_api.alerts.queries import StoredDelivery
from control_api.log.append import Changes
from control_api.metrics.metrics import JobMetrics
from control_api.security.egress import AllowedHosts, MailServer, literal
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.ground.clock import Clock
from policies.ground.errors import Unavailable
from policies.ground.process.outage_logger import OutageLogger


class Mail(NamedTuple):
    """The operator's mail server, and the sender address of alerts."""

    server: MailServer
    sender: str


@dataclass(frozen=True, slots=True)
class Alerts:
    """The objects that alerts work with. `entropy(n)` returns n random bytes; `mail` is None if the
    operator configured no mail server; `allowed_hosts` lists the hosts that webhooks may call
    although their addresses are not public."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    mail: Mail | None
    allowed_hosts: AllowedHosts
    metrics: JobMetrics


async def poll(seconds: float, step: Callable[[], Awaitable[None]], outage: OutageLogger) -> None:
    """Run `step` every `seconds`, forever. If it fails because the store is down, log that, and go
    on."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except Unavailable as error:
            outage.failing(error.message)
        else:
            outage.recovered()


class DeliveryFailed(OSError):
    """the receiver did not accept the delivery; `final` if a retry can't help"""

    # An `OSError`, because aiohttp wraps those that a resolver raises; `webhook` reads the cause.
    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


def payload(tenant_id: str, delivery: StoredDelivery) -> dict[str, Any]:
    """Return the content of a webhook request, in the form `{type, timestamp, data}` of Standard
    Webhooks."""
    # The payload leaves the installation, so it has no user id, no query and no secret.
    return {
        "type": "alert.fired",
        "timestamp": rfc3339(delivery.fired_at),
        "data": {
            "delivery_id": delivery.delivery_id,
            "tenant_id": tenant_id,
            "rule_id": delivery.rule_id,
            "rule_name": delivery.rule_name,
            "rule_type": delivery.rule_type,
            "fired_at": rfc3339(delivery.fired_at),
            "detail": delivery.detail,
        },
    }


def subject(delivery: StoredDelivery) -> str:
    return f"[sluice] alert `{delivery.rule_name}` fired: {delivery.rule_type}"


def text(tenant_id: str, delivery: StoredDelivery) -> str:
    """Return the body of an email."""
    detail = delivery.detail
    lines = [
        f"The alert rule `{delivery.rule_name}` ({delivery.rule_type}) fired.",
        "",
        f"Fired at:   {rfc3339(delivery.fired_at)}",
        f"Measured:   {detail.get('measured')} (threshold {detail.get('threshold')})",
        f"Window:     {detail.get('window_from')} to {detail.get('window_to')}",
    ]
    if "events" in detail:
        lines.append(f"Events:     {detail['events']}, of which denied {detail['denied']}")
    lines += [
        f"First read: role `{each['agent_role']}` from source `{each['source_id']}`"
        for each in detail.get("accesses", ())
    ]
    lines += ["", f"Tenant {tenant_id}, rule {delivery.rule_id}, delivery {delivery.delivery_id}"]
    return "\n".join(lines) + "\n"


EMAIL_SECONDS = 15.0


async def deliver_by_email(mail: Mail | None, tenant_id: str, delivery: StoredDelivery) -> None:
    """Send the alert by email. Raise `DeliveryFailed` if the mail server does not accept it."""
    if mail is None:
        raise DeliveryFailed(
            "no mail server is configured: set SLUICE_SMTP_URL and SLUICE_SMTP_FROM", final=True
        )
    server = mail.server
    try:
        await aiosmtplib.send(
            composed_email(mail.sender, tenant_id, delivery),
            hostname=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            use_tls=server.tls,
            start_tls=server.starttls,
            timeout=EMAIL_SECONDS,
        )
    except aiosmtplib.SMTPResponseException as error:
        # RFC 5321, section 4.2.1: a 5yz reply is permanent.
        final = error.code >= 500
        raise DeliveryFailed(f"the mail server answered {error.code}", final=final) from error
    except aiosmtplib.SMTPRecipientsRefused as error:
        final = all(each.code >= 500 for each in error.recipients)
        raise DeliveryFailed("the mail server refused the recipient", final=final) from error
    # A `ValueError` is a header that the `SMTP` policy refuses.
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        kind = type(error).__name__
        raise DeliveryFailed(f"the mail server can't be used: {kind}", final=False) from error


def composed_email(sender: str, tenant_id: str, delivery: StoredDelivery) -> EmailMessage:
    """Return the email. It is the same in every attempt."""
    # The `SMTP` policy refuses line breaks in headers, so a rule's name can't inject a recipient.
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = delivery.address
    message["Subject"] = subject(delivery)
    at = datetime.fromtimestamp(delivery.fired_at // 1_000_000, UTC)
    message["Date"] = format_datetime(at)
    # From the delivery's id, so that mail programs recognise a duplicate.
    message["Message-ID"] = f"<{delivery.delivery_id}@{sender.rpartition('@')[2]}>"
    # RFC 3834, section 5: such a message gets no out-of-office replies.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text(tenant_id, delivery))
    return message


CONNECT_SECONDS = 5.0
WEBHOOK_SECONDS = 15.0
MAX_ANSWER = 4096
"""The most bytes that are read from a webhook's response, of which only the status is used."""


class EgressResolver(AbstractResolver):
    """A DNS resolver that refuses names with addresses which the service must not call, such as
    private ones."""

    def __init__(self, allowed: AllowedHosts) -> None:
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve the name. Raise `DeliveryFailed` if any of its addresses must not be called."""
        # One is enough: a name with both public and private addresses is an attack or a mistake.
        found = await lookup(host, port, family)
        results: list[ResolveResult] = []
        for kind, proto, address in found:
            # `fe80::1%eth0`: the zone of a link-local IPv6 address is not part of it.
            parsed = literal(address.partition("%")[0])
            if parsed is None or not self._allowed.permits(host, port, parsed):
                raise _not_public(host)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=kind,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        return results

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


async def lookup(
    host: str, port: int, family: socket.AddressFamily
) -> list[tuple[socket.AddressFamily, int, str]]:
    """Resolve the name with the system's resolver. Return family, protocol and address for each
    result. Raise `OSError` if there is none."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM
    )
    return [(kind, proto, str(address[0])) for kind, _, proto, _, address in found]


def _not_public(host: str) -> DeliveryFailed:
    return DeliveryFailed(
        f"`{host}` resolves to an address that is not public; if it should be called, list it "
        "in SLUICE_WEBHOOK_ALLOW",
        final=False,
    )


async def deliver_by_webhook(
    allowed: AllowedHosts, tenant_id: str, delivery: StoredDelivery, now: int
) -> None:
    """Send the alert to the webhook's URL. Raise `DeliveryFailed` if the receiver does not accept
    it. `now` is in microseconds."""
    assert delivery.address is not None
    assert delivery.secret is not None
    if not allowed.permits_url(delivery.address):
        # Checked here, because aiohttp does not pass a literal address to the resolver.
        raise _not_public(urlsplit(delivery.address).hostname or "")
    body = orjson.dumps(payload(tenant_id, delivery))
    headers = signed_headers(delivery, body, now)
    timeout = ClientTimeout(total=WEBHOOK_SECONDS, sock_connect=CONNECT_SECONDS)
    # No cache and no reuse: each attempt resolves and checks by itself. The connection goes to an
    # address that was checked, so an answer that changes in between (DNS rebinding) has no effect.
    connector = TCPConnector(
        resolver=EgressResolver(allowed), use_dns_cache=False, force_close=True, limit=1
    )
    try:
        # No proxy from the environment: it would resolve the name again by itself. No redirects:
        # they could lead to an address that was not checked. No cookies.
        async with (
            ClientSession(
                connector=connector, cookie_jar=DummyCookieJar(), trust_env=False, timeout=timeout
            ) as session,
            session.post(
                delivery.address, data=body, headers=headers, allow_redirects=False
            ) as answer,
        ):
            await answer.content.read(MAX_ANSWER)
            status = answer.status
    except TimeoutError:
        raise DeliveryFailed(f"no answer within {WEBHOOK_SECONDS:g} s", final=False) from None
    except InvalidURL as error:
        raise DeliveryFailed("the URL is not valid", final=True) from error
    except (ClientError, OSError, ValueError) as error:
        raise DeliveryFailed(_reason(error), final=False) from error
    _check(status)


def signed_headers(delivery: StoredDelivery, body: bytes, now: int) -> dict[str, str]:
    """Return the request headers of Standard Webhooks, with the signature. `webhook-id` is the same
    in all attempts."""
    assert delivery.secret is not None
    at = datetime.fromtimestamp(now // 1_000_000, UTC)
    signature = Webhook(delivery.secret).sign(delivery.delivery_id, at, body.decode())
    return {
        "Content-Type": "application/json",
        "User-Agent": "sluice",
        "webhook-id": delivery.delivery_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }


def _check(status: int) -> None:
    if 200 <= status < 300:
        return
    if status == 410:  # in Standard Webhooks, a request to stop
        raise DeliveryFailed("answered 410: the receiver is gone for good", final=True)
    redirect = ": redirects are not followed" if 300 <= status < 400 else ""
    raise DeliveryFailed(f"answered {status}{redirect}", final=False)


def _reason(error: Any) -> str:
    """Describe the failure without the URL, whose path may be a secret."""
    inner = error.__cause__ or error
    if isinstance(inner, DeliveryFailed):
        return str(inner)
    # aiohttp's `ClientConnectorError` keeps the system's error in `os_error`.
    number = getattr(error, "os_error", inner)
    words = getattr(number, "strerror", None) or type(error).__name__
    return f"can't be reached: {words}"
