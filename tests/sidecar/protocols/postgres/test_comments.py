"""Who a statement is for, by comments in the format of sqlcommenter."""

from __future__ import annotations

import pytest

from sidecar.protocols.postgres.comments import StatedAttribution, stated_in_comments
from sidecar.protocols.postgres.parser import Unreadable

Stated = StatedAttribution


def test_comments_at_both_ends_state_user_session_and_task() -> None:
    for text, expected in {
        "SELECT 1": Stated(),
        "SELECT 1 /*sluice.user='alice'*/": Stated("alice"),
        "SELECT 1 /*sluice.user='alice'*/ ; ": Stated("alice"),
        "/*sluice.user_id='alice'*/ SELECT 1 /*sluice.session='s',sluice.task='t'*/": Stated(
            "alice", "s", "t"
        ),
        "SELECT 1 /*route='%2Fa',sluice.user='al%20ice%2C%C3%A9',traceparent='00-1'*/": Stated(
            "al ice,é"
        ),
        r"SELECT 1 /*sluice.user='a\'b,c'*/": Stated("a'b,c"),
        "SELECT 1 /* sluice%2Euser = 'a' */": Stated("a"),
        "/*+ SeqScan(t) */ /*sluice.task='t'*/ SELECT 1": Stated(None, None, "t"),
        "SELECT 1 /*sluice.task='t'*/ /* mine */": Stated(None, None, "t"),
        # Not at an end, not a comment, or not of this format.
        "SELECT 1 /*sluice.user='a'*/ FROM t": Stated(),
        "SELECT '/*sluice.user=''a''*/'": Stated(),
        "SELECT 1 AS \"/*sluice.user='a'*/\"": Stated(),
        "SELECT 1 /*/*sluice.user='a'*/*/": Stated(),
        "/*/*sluice.user='a'*/*/ SELECT 1": Stated(),
        "SELECT 1 /* see the page about sluice.user */": Stated(),
        "SELECT 1 /*note='about sluice.user'*/": Stated(),
        "SELECT 1 /*/": Stated(),
    }.items():
        assert stated_in_comments(text) == expected, text


def test_what_has_two_readings_is_unreadable() -> None:
    for text, reason in {
        "/*sluice.user='a'*/ SELECT 1 /*sluice.user='a'*/": "the user twice",
        "SELECT 1 /*sluice.user='a',sluice.user_id='b'*/": "the user twice",
        "SELECT 1 /*sluice.user='a'*/ /*sluice.user='b'*/": "the user twice",
        "SELECT 1 /*sluice.user=a*/": "key='value'",
        "SELECT 1 /*sluice.user='a*/": "key='value'",
        "SELECT 1 /*sluice.user='a',b*/": "key='value'",
        "SELECT 1 /*sluice.role='a'*/": "not known",
        "SELECT 1 /*sluice.user=''*/": "1 to 256",
        "SELECT 1 /*sluice.user='%0A'*/": "control characters",
        "SELECT 1 /*sluice.user='%FF'*/": "not UTF-8",
    }.items():
        with pytest.raises(Unreadable, match=reason):
            stated_in_comments(text)
