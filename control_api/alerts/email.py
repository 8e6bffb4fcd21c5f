"""One attempt to deliver an alert by email, over the server that the operator set."""

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

import aiosmtplib

from control_api.alerts.delivery_error import DeliveryFailed
from control_api.alerts.message import subject, text
from control_api.security.egress import MailServer
from control_api.store.queries.deliveries import StoredDelivery

SECONDS = 15.0


async def deliver(
    server: MailServer | None, sender: str | None, tenant_id: str, delivery: StoredDelivery
) -> None:
    """`DeliveryFailed` where the server did not take it."""
    if server is None or sender is None:
        raise DeliveryFailed(
            "no mail server is set: SLUICE_SMTP_URL and SLUICE_SMTP_FROM name it", final=True
        )
    try:
        await aiosmtplib.send(
            composed(sender, tenant_id, delivery),
            hostname=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            use_tls=server.tls,
            start_tls=server.starttls,
            timeout=SECONDS,
        )
    except aiosmtplib.SMTPResponseException as error:
        # RFC 5321, 4.2.1: a 5yz answer will be the same next time.
        final = error.code >= 500
        raise DeliveryFailed(f"the mail server answered {error.code}", final=final) from error
    except aiosmtplib.SMTPRecipientsRefused as error:
        final = all(each.code >= 500 for each in error.recipients)
        raise DeliveryFailed("the mail server refused the recipient", final=final) from error
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        kind = type(error).__name__
        raise DeliveryFailed(f"the mail server can't be used: {kind}", final=False) from error


def composed(sender: str, tenant_id: str, delivery: StoredDelivery) -> EmailMessage:
    """The message; its policy lets no line break into a header."""
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = delivery.address
    message["Subject"] = subject(delivery)
    at = datetime.fromtimestamp(delivery.fired_at // 1_000_000, UTC)
    message["Date"] = format_datetime(at)
    # The same over all attempts: a receiver that got it twice sees one.
    message["Message-ID"] = f"<{delivery.delivery_id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text(tenant_id, delivery))
    return message
