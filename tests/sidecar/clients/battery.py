"""What every client must find: through the sidecar it hears what it hears without, the data source
gets what it gets without, and a denial is one that it understands.

Each family derives from `Battery` and names its client; each test runs on each way.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest

from tests.sidecar.clients.client import Client, GaveUp, Heard, act
from tests.sidecar.clients.client_setup import WAYS, ClientSetup
from tests.sidecar.clients.library import DOCUMENT, EVENTS, GREAT, PACKED, UNPACKED, Arrived
from tests.support.relay import relaying
from tests.support.waiting import until_async

FIELDS = {
    "Authorization": "Bearer of-the-agent",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X-Odd": 'a, "b" ;c=1',
}
ODD = "/open/document?q=a%2Fb&q=%C3%A9&empty=&x=1+2"


class Battery:
    """`client` is the family's; `tunnels` whether it opens a tunnel for plain HTTP too, and
    `no_tunnel` what it raises where it gets none. `http_2` says that the client chooses HTTP/2
    where TLS offers it, in which names of fields are in lower case."""

    client: ClassVar[Client]
    ways: ClassVar[Sequence[str]] = WAYS
    tunnels: ClassVar[bool] = False
    http_2: ClassVar[bool] = False
    no_tunnel: ClassVar[type[Exception]] = OSError

    async def both(
        self, setup: ClientSetup, name: str, path: str, *given: Any
    ) -> tuple[Heard, Arrived]:
        """The same call without the sidecar and through it: what was heard, and what arrived, was
        the same both times."""
        call = getattr(self.client, name)
        with setup.directly() as base:
            direct = await act(call, base + path, *given)
        expected = list(setup.library.log)
        setup.library.clear()
        with setup.through() as base:
            through = await act(call, base + path, *given)
        assert through.told == direct.told
        if self.http_2 and setup.over_tls:
            expected = [each.lower() for each in expected]
        assert setup.library.log == expected
        assert direct.event_id is None
        [arrived] = expected
        return through, arrived

    async def refused(self, setup: ClientSetup, answer: Heard, path: str) -> None:
        """Denied as reading `path` is, once and in words; nothing of it arrived."""
        assert answer.status == 403
        said = json.loads(answer.body)
        assert said["decision"]["decision"] == "DENY"
        assert said["decision"]["policy_name"] == "analysts-read"
        assert "`denied_sources`" in said["decision"]["reason"]
        assert said["decision"]["event_id"] == answer.event_id
        assert dict(answer.fields)["x-sluice-decision"] == "DENY"
        assert await setup.decisions() == [("DENY", path)]
        assert setup.library.log == []

    async def test_a_read_is_as_from_the_data_source(self, setup: ClientSetup) -> None:
        answer, arrived = await self.both(setup, "get", ODD, FIELDS)
        assert answer.body == DOCUMENT
        for name, value in FIELDS.items():
            assert arrived.values(name) == [value]
        assert await setup.decisions() == [("ALLOW", "/open/document")]
        [lineage] = await setup.sidecar.lineage()
        assert lineage["event"]["id"] == answer.event_id
        assert lineage["outcome"] == "completed"
        assert lineage["detail"]["bytes"] == len(DOCUMENT)
        assert lineage["detail"]["sha256"] == hashlib.sha256(DOCUMENT).hexdigest()

    async def test_who_it_is_for_is_recorded_and_goes_no_further(self, setup: ClientSetup) -> None:
        who = {
            "X-Sluice-User": "ann",
            "X-Sluice-Task": "summary",
            "baggage": "a=1,sluice.user=x",
        }
        with setup.through() as base:
            await act(self.client.get, f"{base}/open/document", who)
        assert (await setup.opened())[0]["user_id"] == "ann"
        record = (await setup.sidecar.records())[0]
        assert record["pub"]["request"]["task_type"] == "summary"
        [arrived] = setup.library.log
        assert [value for _, value in arrived.fields if "ann" in value or "summary" in value] == []
        assert arrived.values("baggage") == ["a=1"]

    async def test_a_denial_is_heard_with_its_reason(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            answer = await act(self.client.get, f"{base}/shut/secret", FIELDS)
        await self.refused(setup, answer, "/shut/secret")

    @pytest.mark.parametrize("setup", ["absolute", "opened"], indirect=True)
    async def test_what_is_no_source_is_denied_by_its_name(self, setup: ClientSetup) -> None:
        asked = act(self.client.get, f"{setup.scheme}://elsewhere.test:81/x")
        if setup.way == "opened" or self.tunnels:
            with setup.through(), pytest.raises(self.no_tunnel, match="403"):
                await asked
            where = "tcp://elsewhere.test:81"
        else:
            with setup.through():
                answer = await asked
            assert answer.status == 403
            assert json.loads(answer.body)["decision"]["policy_name"] == "unknown_destination"
            where = "http://elsewhere.test:81"
        # Once: no client is left trying again.
        assert await setup.decisions() == [("DENY", where)]

    async def test_posted_json_arrives_as_it_was_sent(self, setup: ClientSetup) -> None:
        value = {"query": "r\u00e9sum\u00e9", "top": 3, "of": [1.5, None, True]}
        answer, arrived = await self.both(setup, "post_json", "/open/search", value)
        assert json.loads(answer.body) == json.loads(arrived.body) == value
        assert arrived.values("content-type")[0].startswith("application/json")

    async def test_a_denied_post_is_heard_with_its_reason(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            answer = await act(self.client.post_json, f"{base}/shut/search", {"query": "x"})
        await self.refused(setup, answer, "/shut/search")

    async def test_a_head_tells_the_length(self, setup: ClientSetup) -> None:
        answer, _ = await self.both(setup, "head", "/open/great")
        assert dict(answer.fields)["content-length"] == str(len(GREAT))
        assert answer.body == b""

    @pytest.mark.parametrize("name", ["great", "stream"])
    async def test_a_download_is_streamed_whole(self, setup: ClientSetup, name: str) -> None:
        read = hashlib.sha256()
        with setup.through() as base:
            await act(self.client.download, f"{base}/open/{name}", read.update)
        assert read.hexdigest() == hashlib.sha256(GREAT).hexdigest()
        [lineage] = await setup.sidecar.lineage()
        assert lineage["outcome"] == "completed"
        assert lineage["detail"]["bytes"] == len(GREAT)
        assert lineage["detail"]["sha256"] == read.hexdigest()

    async def test_an_upload_streams_part_by_part(self, setup: ClientSetup) -> None:
        parts = [b"part %d " % number * 100 for number in range(4)]

        def as_they_arrive() -> Iterator[bytes]:
            for part in parts:
                yield part
                # A proxy that waits for the whole would never let the first part arrive.
                assert setup.library.taken.acquire(timeout=5), "a part was held back"

        with setup.through() as base:
            answer = await act(self.client.upload, f"{base}/open/upload", as_they_arrive())
        [arrived] = setup.library.log
        assert arrived.body == b"".join(parts)
        assert arrived.values("transfer-encoding") == ["chunked"]
        assert arrived.values("content-length") == []
        assert json.loads(answer.body) == {"sha256": hashlib.sha256(arrived.body).hexdigest()}

    @pytest.mark.deep(stands_in="Battery::test_posted_json_arrives_as_it_was_sent")
    async def test_an_upload_with_a_length_keeps_it(self, setup: ClientSetup) -> None:
        answer, arrived = await self.both(setup, "put", "/open/upload", GREAT)
        assert answer.status == 200
        assert arrived.body == GREAT
        assert arrived.values("content-length") == [str(len(GREAT))]

    async def test_a_denied_upload_is_heard_with_its_reason(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            answer = await act(self.client.put, f"{base}/shut/upload", GREAT)
        await self.refused(setup, answer, "/shut/upload")

    async def test_a_packed_answer_stays_packed_up_to_the_client(self, setup: ClientSetup) -> None:
        answer, _ = await self.both(setup, "get", "/open/packed")
        assert answer.body == UNPACKED
        [lineage] = await setup.sidecar.lineage()
        assert lineage["detail"]["sha256"] == hashlib.sha256(PACKED).hexdigest()

    @pytest.mark.deep(stands_in="Battery::test_a_redirect_to_what_is_denied_is_denied")
    async def test_a_redirect_is_the_clients_to_follow(self, setup: ClientSetup) -> None:
        answer, _ = await self.both(setup, "get", "/open/moved/on")
        assert answer.status == 302
        assert dict(answer.fields)["location"] == "/open/document"
        setup.library.clear()
        with setup.through() as base:
            answer = await act(self.client.get, f"{base}/open/moved/on", follow=True)
        assert answer.body == DOCUMENT
        assert setup.library.targets == ["/open/moved/on", "/open/document"]

    async def test_a_redirect_to_what_is_denied_is_denied(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            answer = await act(self.client.get, f"{base}/open/moved/shut", follow=True)
        assert answer.status == 403
        assert await setup.decisions() == [("ALLOW", "/open/moved/shut"), ("DENY", "/shut/secret")]
        assert setup.library.targets == ["/open/moved/shut"]

    async def test_cookies_come_back_to_who_set_them(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            paths = ("/open/cookies", "/open/document")
            baked, _ = await act(self.client.session, [base + path for path in paths])
            await act(self.client.session, [f"{base}/open/document"])
        cookies = [value for name, value in baked.fields if name == "set-cookie"]
        assert cookies == ["one=1; Path=/", "two=2; Path=/open"]
        first, second, other = (each.values("cookie") for each in setup.library.log)
        assert first == other == []
        assert sorted("; ".join(second).split("; ")) == ["one=1", "two=2"]

    @pytest.mark.deep(
        stands_in="tests/sidecar/proxy/pipeline/test_kept_connections.py::test_each_request_is_decided_and_recorded"
    )
    async def test_connections_are_kept_as_without_the_sidecar(self, setup: ClientSetup) -> None:
        paths = [f"/open/document/{number}" for number in range(50)]
        with relaying(setup.origin) as direct, setup.directly(direct.port) as base:
            await act(self.client.session, [base + path for path in paths])
        setup.library.clear()
        with relaying(setup.port) as through, setup.through(through.port) as base:
            answers = await act(self.client.session, [base + path for path in paths])
        assert [each.body for each in answers] == [DOCUMENT] * 50
        assert setup.library.targets == paths
        assert through.accepted == direct.accepted
        assert len(setup.library.connections) == 1, "the sidecar keeps its own"
        assert await setup.decisions() == [("ALLOW", path) for path in paths]

    @pytest.mark.deep(stands_in="Battery::test_a_read_is_as_from_the_data_source")
    async def test_a_failure_of_the_data_source_is_its_own(self, setup: ClientSetup) -> None:
        for status in (404, 503):
            setup.library.clear()
            answer, _ = await self.both(setup, "get", f"/open/fails/{status}")
            assert answer.status == status
            assert json.loads(answer.body) == {"complaint": f"of {status}"}

    async def test_each_event_of_a_stream_is_heard_at_once(self, setup: ClientSetup) -> None:
        events: list[str] = []

        def event(data: str) -> None:
            events.append(data)
            setup.library.heard.release()

        with setup.through() as base:
            await act(self.client.events, f"{base}/open/events", event)
        assert events == [str(number) for number in range(EVENTS)]
        [lineage] = await setup.sidecar.lineage()
        assert lineage["outcome"] == "completed"

    async def test_who_gives_up_leaves_nothing_running(self, setup: ClientSetup) -> None:
        with setup.through() as base, pytest.raises(GaveUp):
            await act(self.client.give_up, f"{base}/open/never", 1.0)
        await until_async("the source has lost the connection", lambda: setup.library.lost == 1)
        [lineage] = await setup.sidecar.lineage()
        assert (lineage["outcome"], lineage["detail"]["bytes"]) == ("truncated", 0)

    async def test_who_closes_early_ends_the_answer(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            async with asyncio.timeout(20):
                await act(self.client.leave, f"{base}/open/endless")
        await until_async("the source has lost the connection", lambda: setup.library.lost == 1)
        [lineage] = await setup.sidecar.lineage()
        assert lineage["outcome"] == "truncated"
        assert lineage["detail"]["bytes"] > 0
