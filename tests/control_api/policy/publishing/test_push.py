"""What is committed is in Redis a moment later, whole and signed; and nothing else is."""

from __future__ import annotations

import itertools

import pytest

from policies.sets.redis_keys import changes_key
from tests.control_api.policy.publishing.reader import Reader
from tests.support.control_api import ControlApi
from tests.support.redis import needs_redis
from tests.support.waiting import until

pytestmark = needs_redis


@pytest.mark.deep(stands_in="test_every_write_is_pushed_on_top_of_the_one_before")
def test_the_first_start_s_documents_are_published(reader: Reader) -> None:
    reader.follows()
    head = reader.head()
    assert head is not None
    assert head.since == 0 or reader.changes()[0].since == 0


def test_every_write_is_pushed_on_top_of_the_one_before(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    reader.follows()
    assert reader.changes()[0].since == 0, "the first start's documents"
    before = len(reader.changes())
    for number in range(4):
        publishing.approved(f"agt_{number}")
    publishing.new_key()
    reader.follows()
    changes = reader.changes()[before:]
    assert len(changes) > 4
    for earlier, after in itertools.pairwise(changes):
        assert after.since <= earlier.revision < after.revision
        assert after.names


def test_a_document_that_was_removed_is_gone_with_its_nodes(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    reader.follows()
    before = reader.fields()
    made = publishing.admin("POST", "/v1/keys", {"name": "short", "scope": "read"})
    reader.follows()
    assert len(reader.fields()) > len(before)
    publishing.admin("DELETE", f"/v1/keys/{made['key_id']}")
    reader.follows()
    volatile = {b"head", b"at", b"n/root"}
    after = reader.fields()
    assert {k: v for k, v in after.items() if k not in volatile} == {
        k: v for k, v in before.items() if k not in volatile
    }


def test_a_push_waits_for_no_heartbeat(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api

    def last() -> object:
        return reader.redis.xrevrange(changes_key("default"), count=1)[0][0]

    reader.follows()
    for _ in range(5):
        before = last()
        publishing.new_key()
        until("a change is published", lambda seen=before: last() != seen)  # type: ignore[misc]


def test_nothing_is_pushed_without_a_change(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    reader.follows()
    pushed = reader.changes()
    publishing.admin("POST", "/v1/policies/reload")
    for _ in range(3):
        reader.answered(reader.ask())
    assert reader.changes() == pushed
    publishing.restart()
    reader.answered(reader.ask())
    assert reader.changes() == pushed
    publishing.new_key()
    reader.follows()


@pytest.mark.deep(stands_in="test_nothing_is_pushed_without_a_change")
def test_a_set_survives_a_restart_of_the_service_untouched(
    publishing: ControlApi, reader: Reader
) -> None:
    reader.follows()
    pushed = reader.changes()
    publishing.restart()
    reader.answered(reader.ask())
    assert reader.changes() == pushed
    publishing.approved("agt_after")
    reader.follows()
