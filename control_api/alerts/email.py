"""One attempt to deliver an alert by email, through the operator's mail server."""

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

import aiosmtplib

from control_api.alerts.bundle import Mail
from control_api.alerts.delivery_queries import StoredDelivery
from control_api.alerts.message import DeliveryFailed, subject, text

TIMEOUT_SECONDS = 15.0


async def deliver(mail: Mail | None, tenant_id: str, delivery: StoredDelivery) -> None:
    """Raises `DeliveryFailed` if the mail server did not accept the alert."""
    if mail is None:
        raise DeliveryFailed(
            "no mail server is configured: set SLUICE_SMTP_URL and SLUICE_SMTP_FROM", final=True
        )
    server = mail.server
    try:
        await aiosmtplib.send(
            composed(mail.sender, tenant_id, delivery),
            hostname=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            use_tls=server.tls,
            start_tls=server.starttls,
            timeout=TIMEOUT_SECONDS,
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


def composed(sender: str, tenant_id: str, delivery: StoredDelivery) -> EmailMessage:
    """The message, which is the same in every attempt."""
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
