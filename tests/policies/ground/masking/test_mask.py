"""Masking as a whole: properties that hold for any text."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.masking import masked_json, masked_text
from tests.architecture.tree import ROOT
from tests.policies.ground.masking.test_recognizers import FOUND, LEFT
from tests.support.properties import chance

PARTS = (
    [text for text, _ in FOUND]
    + LEFT
    + ["[EMAIL]", "[SECRET]", "[CARD]x", "password=", '"', "'", "=", ":", "@", ".", "-", "+", "00"]
    + [
        "4111",
        "078",
        "05",
        "1120",
        "tel",
        " ",
        "\n",
        "\u200b",
        "\u00a0",
        "１",
        "Bearer ",
        "\\",
        "]",
    ]
)
PIECES = st.sampled_from(PARTS)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=8).map(" ".join),
    st.text("0123456789 -.+()/:@abcdefABCDEF=[]\"'", max_size=200),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.deep(stands_in="test_masking_a_few_pieces_again_changes_nothing")
@given(TEXTS)
def test_masking_a_masked_text_changes_nothing(text: str) -> None:
    mask_twice(text)


def test_masking_a_few_pieces_again_changes_nothing() -> None:
    random = chance("masked again")
    for number in range(300):
        mask_twice(" "[: number % 2].join(random.choices(PARTS, k=4)))


def mask_twice(text: str) -> None:
    once = masked_text(text)
    assert masked_text(once.text) == (once.text, ())


@given(TEXTS)
def test_a_text_grows_at_most_threefold(text: str) -> None:
    assert len(masked_text(text).text) <= 3 * len(text)


@given(TEXTS)
def test_labels_are_reported_and_appear_in_the_text(text: str) -> None:
    masked = masked_text(text)
    assert list(masked.labels) == sorted(set(masked.labels))
    assert (masked.text == text) == (not masked.labels)
    for label in masked.labels:
        # A wider span of a later pass may have replaced an earlier label.
        assert f"[{label}]" in masked.text or len(masked.labels) > 1


@given(VALUES)
def test_a_json_value_keeps_its_shape(value: Any) -> None:
    masked, _ = masked_json(value)
    assert type(masked) is type(value) or isinstance(value, int)
    if isinstance(value, dict | list):
        assert len(masked) == len(value)
    json.dumps(masked)


def test_every_string_and_key_at_any_depth_is_masked() -> None:
    value = {
        "to": ["ann@example.com", {"phone": "2125550142", "bob@example.com": True}],
        "card": 4111111111111111,
        "count": 1234567890123,
        "credentials": {"user": "bob", "pins": [1234]},
        "clientSecret": "correct horse battery",
    }
    masked, labels = masked_json(value)
    assert masked == {
        "to": ["[EMAIL]", {"phone": "[PHONE]", "[EMAIL]": True}],
        "card": "[CARD]",
        "count": 1234567890123,
        "credentials": {"user": "[SECRET]", "pins": ["[SECRET]"]},
        "clientSecret": "[SECRET]",
    }
    assert labels == ("CARD", "EMAIL", "PHONE", "SECRET")


def test_two_keys_that_are_masked_to_one_stay_two() -> None:
    assert masked_json({"a@example.com": 1, "b@example.com": 2})[0] == {
        "[EMAIL]": 1,
        "[EMAIL] (2)": 2,
    }


def test_no_part_of_overlapping_personal_data_stays_readable() -> None:
    assert masked_text("password=x@example.com:4111111111111111").text == "password=[SECRET]"
    assert "@" not in masked_text("https://u:hunter2@mail.example.com/").text


HOSTILE = [
    "1", "1 ", "4 ", "4111 ", "4111111111111111 ", "030/123456 ", "+49301234567 ", "@", "a@b.co ",
    "a", "AB12", "DE12 3704 ", "::", "1:", "password=", "password=x ", 'password="', "eyJaaaaaaaa.",
    "-----BEGIN PRIVATE KEY-----", "://a:", "600 123 456 ", "ssn passport 123456789 ", "1.", "a.",
    "123456789012 ", "４\u200b", "ABCDEF", "85073003328 ", "123456-1234567 ", "1(", "@a.", "\\",
    "[", "phone 1", "Bearer ", "tokentoken", "2130-", "A1B2",
]  # fmt: skip


@pytest.mark.parametrize("piece", ["4111 ", "DE12 3704 ", "1.2.3.4 "])
def test_masking_time_is_proportional_for_short_texts(piece: str) -> None:
    grows_with_its_length(piece, 2048, 16384)


@pytest.mark.deep(stands_in="test_masking_time_is_proportional_for_short_texts")
@pytest.mark.parametrize("piece", HOSTILE)
def test_masking_time_is_proportional_for_long_texts(piece: str) -> None:
    grows_with_its_length(piece, 8192, 65536)


def grows_with_its_length(piece: str, size: int, eightfold: int) -> None:
    def seconds(size: int) -> float:
        text = (piece * size)[:size]
        began = time.process_time()
        masked_text(text)
        return time.process_time() - began

    seconds(size // 2)
    short, long = (min(seconds(size) for _ in range(5)) for size in (size, eightfold))
    # If it were quadratic, eight times the text would take 64 times as long. The floor is clock
    # noise, and the best of five is what a busy core disturbs least.
    assert long < 24 * max(short, 0.002)


def test_no_masking_module_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, policies.trail.record as r\n"
        "from policies.ground.masking import masked_text\n"
        "assert not any(m.startswith(('phonenumbers', 'stdnum')) for m in sys.modules)\n"
        "assert 'policies.ground.masking.mask' not in sys.modules\n"
        "masked_text('terms of contract 4711')\n"
        "assert not any(m.startswith(('phonenumbers', 'stdnum')) for m in sys.modules)\n"
        "masked_text('06 12 34 56 78')\n"
        "assert 'phonenumbers' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
