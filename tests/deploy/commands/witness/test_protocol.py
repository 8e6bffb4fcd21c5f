"""The witness's protocol, as a client that was written from its text sees it."""

import base64
import hashlib
import os
from collections.abc import Iterator

import pytest

from tests.deploy.commands.witness.protocol_client import (
    Log,
    b64,
    call,
    cosigned_at,
    mth,
    proof,
    submit,
)
from tests.deploy.commands.witness.running_witness import WitnessProcess, configure

LOG = Log("example.com/behind-the-sofa", 40)
OTHERS = [Log(f"other.example/{n}", 12) for n in range(12)]
ROTATES, ROTATED = Log("rotates.example", 9), Log("rotates.example", 9)
"""One log, with the key before its rotation and after it."""


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WitnessProcess]:
    directory = tmp_path_factory.mktemp("witness")
    with WitnessProcess(configure(directory, LOG, *OTHERS, ROTATES, ROTATED)) as running:
        yield running


def test_a_log_that_grows_is_cosigned_at_each_size(witness: WitnessProcess) -> None:
    old, latest, lines = 0, 0, b""
    for size in (1, 2, 3, 7, 8, 8, 20, 33, 40):
        answer = submit(witness.port, LOG.body(old, size))
        assert (answer.status, answer.body.count(b"\n")) == (200, 1)
        at = cosigned_at(LOG.text(size), answer.body, witness.key)
        assert at >= latest > -1
        old, latest, lines = size, at, answer.body
    # Monitors read what it has cosigned, with both signatures.
    hashed = hashlib.sha256(LOG.origin.encode()).hexdigest()
    shown = call(witness.port, f"/{hashed}/checkpoint")
    assert shown.status == 200
    assert shown.body.decode() == LOG.note(40) + lines.decode()


def test_another_old_size_is_answered_with_the_size(witness: WitnessProcess) -> None:
    log = OTHERS[0]
    assert submit(witness.port, log.body(0, 5)).status == 200
    for old, size in ((0, 12), (3, 12), (6, 12), (0, 5), (0, 0)):
        answer = submit(witness.port, log.body(old, size))
        assert answer == (409, "text/x.tlog.size", b"5\n")
    assert submit(witness.port, log.body(5, 12)).status == 200


def test_an_unknown_log_is_refused_and_so_is_an_incarnation_of_a_known_one(
    witness: WitnessProcess,
) -> None:
    assert submit(witness.port, Log("stranger.example", 3).body(0, 3)).status == 404
    again = Log(LOG.origin + "#2", 3)
    again.key = LOG.key
    assert submit(witness.port, again.body(0, 3)).status == 404


def test_a_note_that_the_log_did_not_sign_is_refused(witness: WitnessProcess) -> None:
    log = OTHERS[1]
    stranger = Log(log.origin, 4)
    assert submit(witness.port, stranger.body(0, 4)).status == 403
    # The right key's line with a wrong signature, even beside a right one.
    text, _, line = log.note(4).rpartition("\n\n")
    raw = bytearray(base64.b64decode(line.split(" ")[2]))
    raw[-1] ^= 1
    forged = f"— {log.origin} {b64(bytes(raw))}\n"
    for lines in (forged, line + forged):
        assert submit(witness.port, f"old 0\n\n{text}\n\n{lines}".encode()).status == 403
    # Signatures of strangers beside the right one are ignored.
    lines = line + stranger.note(4).rpartition("\n\n")[2]
    assert submit(witness.port, f"old 0\n\n{text}\n\n{lines}".encode()).status == 200


def test_an_invalid_proof_is_refused(witness: WitnessProcess) -> None:
    log = OTHERS[2]
    assert submit(witness.port, b"old 0\n" + b64(b"\0" * 32).encode() + b"\n\n").status == 400
    first = log.body(0, 6).replace(b"old 0\n", b"old 0\n" + b64(b"\0" * 32).encode() + b"\n")
    assert submit(witness.port, first).status == 422
    assert submit(witness.port, log.body(0, 6)).status == 200
    good = log.body(6, 11)
    for line in map(b64, proof(6, log.leaves[:11])):
        assert submit(witness.port, good.replace(f"{line}\n".encode(), b"", 1)).status == 422
    more = good.replace(b"old 6\n", b"old 6\n" + b64(b"\0" * 32).encode() + b"\n")
    assert submit(witness.port, more).status == 422
    # The whole log rewritten with the real key, with proofs from its own tree.
    other = log.rewritten(12)
    for size in (6, 7, 8, 12):
        assert submit(witness.port, other.body(6, size)).status == 422
    assert submit(witness.port, good).status == 200


def test_an_empty_tree_has_one_root(witness: WitnessProcess) -> None:
    log = OTHERS[3]
    wrong = log.note(0, f"{log.origin}\n0\n{b64(bytes(32))}\n")
    assert submit(witness.port, f"old 0\n\n{wrong}".encode()).status == 422
    assert submit(witness.port, log.body(0, 0)).status == 200
    assert submit(witness.port, log.body(0, 9)).status == 200
    assert submit(witness.port, log.body(0, 0)).body == b"9\n"


def test_lines_that_the_log_adds_below_the_root_are_cosigned_with_it(
    witness: WitnessProcess,
) -> None:
    log = OTHERS[4]
    text = log.text(3) + "extension line\n"
    answer = submit(witness.port, f"old 0\n\n{log.note(3, text)}".encode())
    assert answer.status == 200
    cosigned_at(text, answer.body, witness.key)


NOTE = LOG.note(3).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"old\n\n" + NOTE,
        b"old 00\n\n" + NOTE,
        b"old 01\n\n" + NOTE,
        b"old +1\n\n" + NOTE,
        b"old -1\n\n" + NOTE,
        b"old  1\n\n" + NOTE,
        "old \u0661\n\n".encode() + NOTE,
        b"old 99999999999999999999\n\n" + NOTE,
        b"new 0\n\n" + NOTE,
        b"old 4\n\n" + NOTE,
        b"old 0\r\n\r\n" + NOTE,
        b"old 0\n" + NOTE,
        b"old 1\nAAAA\n\n" + NOTE,
        b"old 1\n" + b64(bytes(32)).encode()[:-1] + b"\n\n" + NOTE,
        b"old 1\n" + f"{b64(bytes(32))}\n".encode() * 64 + b"\n" + NOTE,
        b"old 0\n\n" + NOTE[:-1],
        b"old 0\n\n" + NOTE.replace(b"\n3\n", b"\n03\n"),
        b"old 0\n\n\xff" + NOTE,
        b"old 0\n\n" + LOG.text(3).encode(),
        os.urandom(1000),
    ],
)
def test_a_request_of_another_form_is_malformed(witness: WitnessProcess, body: bytes) -> None:
    assert submit(witness.port, body).status == 400


def test_a_proof_of_the_greatest_length_is_read(witness: WitnessProcess) -> None:
    body = b"old 1\n" + f"{b64(bytes(32))}\n".encode() * 63 + b"\n" + LOG.note(3).encode()
    assert submit(witness.port, body).status in (409, 422)


def test_the_size_of_a_body_and_the_methods_of_a_path_are_limited(witness: WitnessProcess) -> None:
    assert submit(witness.port, b"x" * 70_000).status == 413
    assert submit(witness.port, b"", "GET").status == 405
    assert call(witness.port, "/health").status == 200
    assert call(witness.port, "/health/ready").status == 200
    assert call(witness.port, "/key").body.decode() == witness.key + "\n"
    assert call(witness.port, "/" + "0" * 64 + "/checkpoint").status == 404
    assert b'sluice_witness_answers_total{answer="cosigned"}' in call(witness.port, "/metrics").body


def test_a_log_has_as_many_keys_as_it_has_lines(witness: WitnessProcess) -> None:
    assert submit(witness.port, ROTATES.body(0, 4)).status == 200
    assert submit(witness.port, ROTATED.body(4, 9)).status == 200
    assert mth(ROTATES.leaves) == mth(ROTATED.leaves)
