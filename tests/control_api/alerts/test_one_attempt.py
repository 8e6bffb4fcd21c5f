"""One attempt to deliver an alert: what is sent, where to, and which failures are final."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from control_api.alerts import channels
from control_api.alerts.channels import DeliveryFailed, Mail
from control_api.alerts.queries import StoredDelivery
from control_api.security.egress import AllowedHosts, MailServer
from tests.control_api.alerts.receiver import hook, mailbox

SECRET = "whsec_" + "c2VjcmV0" * 4
LOOPBACK = AllowedHosts.parse("127.0.0.0/8")


def delivery(address: str, channel: Any = "webhook") -> StoredDelivery:
    return StoredDelivery(
        delivery_id="dlv_1",
        rule_id="alr_1",
        rule_name="die Ausreißer",
        rule_type="denial_spike",
        fired_at=1,
        detail={"measured": 1, "threshold": 1},
        channel=channel,
        target=None,
        address=address,
        secret=SECRET,
        status="pending",
        attempts=1,
        last_error=None,
        next_attempt_at=None,
    )


async def call(address: str, allowed: AllowedHosts = LOOPBACK) -> None:
    await channels.deliver_by_webhook(allowed, "default", delivery(address), time.time_ns() // 1000)


async def test_a_webhook_is_signed() -> None:
    with hook() as receiver:
        await call(receiver.url)
        ((headers, body),) = receiver.seen
    told = Webhook(SECRET).verify(body, headers)
    assert (told["type"], told["data"]["detail"]["measured"]) == ("alert.fired", 1)
    assert told["data"]["delivery_id"] == headers["webhook-id"] == "dlv_1"


async def test_status_gone_is_final_and_a_redirect_is_not_followed() -> None:
    with hook() as receiver, hook() as elsewhere:
        receiver.headers = {"Location": elsewhere.url}
        for status, final in ((410, True), (302, False), (503, False)):
            receiver.status = status
            with pytest.raises(DeliveryFailed, match=f"answered {status}") as failed:
                await call(receiver.url)
            assert failed.value.final == final
        assert elsewhere.seen == []


async def test_an_address_that_is_not_public_is_not_called() -> None:
    with hook() as receiver:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(DeliveryFailed, match="not public"):
                await call(f"http://{host}:{receiver.port}/", AllowedHosts.parse(""))
        assert receiver.seen == []


async def test_a_name_is_resolved_once_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int, family: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, 6, "127.0.0.1" if len(asked) > 1 else "192.0.2.7")]

    monkeypatch.setattr(channels, "lookup", rebinding)
    monkeypatch.setattr(channels, "CONNECT_SECONDS", 0.1)
    with hook() as receiver:
        url = f"http://rebinding.example:{receiver.port}/"
        with pytest.raises(DeliveryFailed):
            await call(url, AllowedHosts.parse("192.0.2.0/24"))
        assert (asked, receiver.seen) == (["rebinding.example"], [])


async def test_mail_arrives_and_only_a_permanent_refusal_is_final() -> None:
    one = delivery("ops@example.com", "email")
    with pytest.raises(DeliveryFailed, match="SLUICE_SMTP_URL") as failed:
        await channels.deliver_by_email(None, "default", one)
    assert failed.value.final
    with mailbox() as box:
        mail = Mail(MailServer.parse(f"smtp://127.0.0.1:{box.port}"), "sluice@example.com")
        await channels.deliver_by_email(mail, "default", one)
        (message,) = box.seen
        assert (message["To"], message["From"]) == ("ops@example.com", "sluice@example.com")
        assert "die Ausreißer" in message["Subject"]
        assert "dlv_1" in message["Message-ID"]
        assert "threshold 1" in message.get_content()  # type: ignore[attr-defined]
        for reply, final in (("554 no", True), ("451 later", False)):
            box.reply = reply
            with pytest.raises(DeliveryFailed, match=reply[:3]) as failed:
                await channels.deliver_by_email(mail, "default", one)
            assert failed.value.final == final
