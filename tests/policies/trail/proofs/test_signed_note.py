"""Signed notes and cosignatures, by the published examples and the tests of other implementations:

- golang.org/x/mod, sumdb/note/note_test.go (fe2ec04f7c3c3aa6fad97631aafcff6e49e2d1db)
- C2SP signed-note.md, tlog-cosignature.md (5ba5ee830903e91240fc6f9f3a7a9293d49e69c9)
- filippo.io/torchwood, cmd/litewitness/testdata (341dc2f0f552a29816955d4834718cd741f1ca64)
"""

import base64
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.signed_note import (
    COSIGNATURE,
    ED25519,
    MAX_NOTE,
    MAX_SIGNATURES,
    BadKey,
    BadNote,
    Note,
    Signature,
    VerifierKey,
)
from tests.support.properties import examples

PETER_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
ENOCH_KEY = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
PETER_SIGNED = (
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)
ENOCH_SIGNED = (
    "rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ="
)
PETER_LINE, ENOCH_LINE = f"— PeterNeumann {PETER_SIGNED}\n", f"— EnochRoot {ENOCH_SIGNED}\n"
PETER, ENOCH = VerifierKey.parse(PETER_KEY), VerifierKey.parse(ENOCH_KEY)
NOTE = f"{TEXT}\n{PETER_LINE}{ENOCH_LINE}"


def test_a_published_key_is_read_and_written() -> None:
    assert (PETER.name, PETER.type, len(PETER.public)) == ("PeterNeumann", ED25519, 32)
    assert PETER.key_id.hex() == "c74f20a3"
    assert (PETER.text(), ENOCH.text()) == (PETER_KEY, ENOCH_KEY)


def test_every_mangling_of_a_key_is_refused() -> None:
    size = len(PETER_KEY)
    parts = [PETER_KEY[i:j] for i in range(size + 1) for j in range(i + 1, size + 1)]
    parts.remove(PETER_KEY)
    changed = [
        PETER_KEY[:at] + chr(ord(PETER_KEY[at]) + 1) + PETER_KEY[at + 1 :] for at in range(size)
    ]
    others = [
        # A key of the wrong length and one of an unknown type, each with the id that fits.
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        PETER_KEY.replace("c74f20a3", "C74F20A3"),
        PETER_KEY + "\n",
        PETER._replace(name="Peter Neumann").text(),
        PETER._replace(name="Peter\u2003Neumann").text(),
        "\ud800+c74f20a3+AQ==",
        "é" * 50,
    ]
    for text in (*parts, *changed, *others):
        with pytest.raises(BadKey):
            VerifierKey.parse(text)


def test_signing_gives_the_published_note() -> None:
    signer = Signer(PETER_SEED)
    assert signer.public == PETER.public
    made = signed_note.sign(TEXT, "PeterNeumann", signer)
    assert Note(TEXT, (made,)).render() == f"{TEXT}\n{PETER_LINE}"


def test_signatures_of_known_keys_verify_and_others_are_ignored() -> None:
    note = signed_note.parse(NOTE)
    assert note.text == TEXT
    assert note.render() == NOTE
    peter, enoch = note.signatures
    assert signed_note.verified(note, [PETER]) == [peter]
    assert signed_note.verified(note, [ENOCH, PETER, PETER]) == [peter, enoch]
    assert signed_note.verified(note, []) == []
    # A repeated signature counts once.
    repeated = signed_note.parse(NOTE + ENOCH_LINE + PETER_LINE)
    assert signed_note.verified(repeated, [ENOCH, PETER]) == [peter, enoch]


@pytest.mark.parametrize(
    "note",
    [
        NOTE.replace("/SffcvIAQ", "/SffcvIAA"),
        NOTE.replace("answer", "Answer"),
        f"{TEXT}\n{PETER_LINE[:60]}ABCD{PETER_LINE[60:]}",
        # One right signature does not excuse a wrong one by the same key.
        NOTE + PETER_LINE[:60] + "ABCD" + PETER_LINE[60:],
    ],
)
def test_a_wrong_signature_by_a_known_key_refuses_the_note(note: str) -> None:
    with pytest.raises(BadNote, match="does not match"):
        signed_note.verified(signed_note.parse(note), [PETER])


@pytest.mark.parametrize(
    "note",
    [
        TEXT,
        TEXT + "\n",
        f"{TEXT}\n{PETER_LINE[:-1]}",
        f"\x01{TEXT}\n{PETER_LINE}",
        f"\udcff{TEXT}\n{PETER_LINE}",
        f"{TEXT}\n— Bad Name {PETER_SIGNED}\n",
        f"{TEXT}\n— Bad\u00a0Name {PETER_SIGNED}\n",
        f"{TEXT}\n— a+b {PETER_SIGNED}\n",
        f"{TEXT}\n—  {PETER_SIGNED}\n",
        f"{TEXT}\n— {PETER_SIGNED}\n",
        f"{TEXT}\n- PeterNeumann {PETER_SIGNED}\n",
        f"{TEXT}\n{PETER_LINE}Unexpected line.\n",
        f"{TEXT}\n{PETER_LINE}\n",
        f"{TEXT}\n{PETER_LINE}{PETER_LINE[:-1]} \n",
        f"{TEXT}\n{PETER_LINE.replace(' x', '  x')}",
        f"{TEXT}\n{PETER_LINE}".replace("\n", "\r\n"),
        f"{TEXT}\n— PeterNeumann x08gow==\n",
        f"{TEXT}\n— PeterNeumann\n",
        f"{TEXT}\n— PeterNeumann {PETER_SIGNED.rstrip('=')}\n",
        f"{TEXT}\n— PeterNeumann {PETER_SIGNED[:-2]}N=\n",
        f"{TEXT}\n{PETER_LINE * (MAX_SIGNATURES + 1)}",
        f"{'x' * MAX_NOTE}\n\n{PETER_LINE}",
        f"{'é' * (MAX_NOTE // 2)}\n\n{PETER_LINE}",
    ],
)
def test_a_malformed_note_is_refused(note: str) -> None:
    with pytest.raises(BadNote):
        signed_note.parse(note)


def test_as_many_signatures_as_allowed_are_read() -> None:
    note = signed_note.parse(f"{TEXT}\n{PETER_LINE * MAX_SIGNATURES}")
    assert len(note.signatures) == MAX_SIGNATURES
    assert len(signed_note.verified(note, [PETER])) == 1


@pytest.mark.parametrize("text", ["abc", "", "a\x02b\n", "\ud800\n"])
def test_a_text_that_is_not_a_note_is_not_rendered(text: str) -> None:
    with pytest.raises(BadNote):
        Note(text, signed_note.parse(NOTE).signatures).render()


def test_the_example_of_the_specification_verifies() -> None:
    key = VerifierKey.parse("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
    note = signed_note.parse(
        "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi"
        "2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
    )
    assert signed_note.verified(note, [key]) == list(note.signatures)


def test_a_text_may_contain_empty_lines() -> None:
    # The first example of `signed-note.md`; its key is not published.
    note = signed_note.parse(
        "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera."
        "\n\n— quasimodo.example/salvatore NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKO"
        "NrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n"
    )
    assert note.text.endswith("sole:\n\ned è subito sera.\n")


GO_SUMDB = (
    "go.sum database tree\n35225469\nvt5T6GaLCXvyHFl9VUvvItR43XZxfLgftEcTyO3eJCQ=\n\n"
    "— sum.golang.org Az3grpukl5AXaVfYkLiDGORx/DN2nlcS5kZHR5uYOBV2KA2HgXpD+gu9HHONebHLAyaKbbTM75QT"
    "tPydhKCExixSfwQ=\n"
)
SIGSUM = "sigsum.org/v1/tree/4d6d8825a6bb689d459628312889dfbb0bcd41b5211d9e1ce768b0ff0309e562"
SIGSUM_PUBLIC = bytes.fromhex("ffdc2d4d98e4124d3feaf788c0c2f9abfd796083d1f0495437f302ec79cf100f")
SIGSUM_SIGNED = [
    (
        "1\nKgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "UgIom7fPZTqpxWWhyjWduBvTvGVqsokMbqTArsQilegKoFBJQjUFAmQ0+YeSPM3wfUQMFSzVnnNuWRTYrajXpNUbIQY=",
    ),
    (
        "3\nRcCI1Nk56ZcSmIEfIn0SleqtV7uvrlXNccFx595Iwl0=",
        "UgIom2VbtIcdFbwFAy1n7s6IkAxIY6J/GQOTuZF2ORV39d75cbAj2aQYwyJre36kezNobZs4SUUdrcawfAB8WVrx6go=",
    ),
    (
        "5\nQrtXrQZCCvpIgsSmOsah7HdICzMLLyDfxToMql9WTjY=",
        "UgIomw/EOJmWi0i1FQsOj+etB7F8IccFam/jgd6wzRns4QPVmyEZtdvl1U2KEmLOZ/ASRcWJi0tW90dJWAShei7sDww=",
    ),
]
SIGSUM_NOTES = [f"{SIGSUM}\n{body}\n\n— {SIGSUM} {line}\n" for body, line in SIGSUM_SIGNED]
SIGSUM_PROOFS = [
    [
        "KgEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "KgIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ],
    [
        "KgIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "KgMAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "wgiIFdZfYNv6WU1OllBKsWnLYIS/DBMqt8Uh/S4OukE=",
        "KgQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ],
]


def test_checkpoints_of_other_logs_verify() -> None:
    key = VerifierKey.parse("sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")
    note = signed_note.parse(GO_SUMDB)
    assert signed_note.verified(note, [key])
    found = checkpoint.parse(note.text)
    assert (found.origin, found.size) == ("go.sum database tree", 35225469)
    states = [checkpoint.read(each, SIGSUM, (SIGSUM_PUBLIC,)) for each in SIGSUM_NOTES]
    assert [each.size for each in states] == [1, 3, 5]
    for (old, new), proof in zip(pairwise(states), SIGSUM_PROOFS, strict=True):
        hashes = [base64.b64decode(each) for each in proof]
        assert tree_proofs.proves_consistency(old.size, old.root, new.size, new.root, hashes)
        assert not tree_proofs.proves_consistency(
            old.size, old.root, new.size, new.root, hashes[::-1]
        )


BODY = Checkpoint("example.com/behind-the-sofa", 20852163, bytes(range(32))).text()
WITNESS = Signer(bytes(range(32)))
WITNESS_KEY = VerifierKey("witness.example.com/w1", COSIGNATURE, WITNESS.public)


def test_the_message_of_a_cosignature_is_that_of_the_specification() -> None:
    # `tlog-cosignature.md`, with the time that its example line begins with.
    root = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
    body = f"example.com/behind-the-sofa\n20852163\n{root}\n"
    note = signed_note.parse(
        f"{body}\n— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4UR"
        "YN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwS"
        "RaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
    )
    assert int.from_bytes(note.signatures[1].signature[:8], "big") == 1679315147
    assert len(note.signatures[1].signature) == 72
    expected = f"cosignature/v1\ntime 1679315147\n{body}".encode()
    assert signed_note.cosigned_message(body, 1679315147) == expected


def test_a_cosignature_verifies_by_hand() -> None:
    line = signed_note.cosign(BODY, WITNESS_KEY.name, WITNESS, 1_800_000_000)
    assert line.key_id == WITNESS_KEY.key_id
    assert line.signature[:8] == (1_800_000_000).to_bytes(8, "big")
    message = b"cosignature/v1\ntime 1800000000\n" + BODY.encode()
    Ed25519PublicKey.from_public_bytes(WITNESS.public).verify(line.signature[8:], message)
    note = signed_note.parse(Note(BODY, (line,)).render())
    assert signed_note.verified_cosignatures(note, [WITNESS_KEY]) == [(WITNESS_KEY, 1_800_000_000)]
    assert VerifierKey.parse(WITNESS_KEY.text()) == WITNESS_KEY


def test_the_latest_cosignature_of_a_witness_counts_once() -> None:
    lines = [
        signed_note.cosign(BODY, WITNESS_KEY.name, WITNESS, signed_at) for signed_at in (7, 9, 8)
    ]
    note = Note(BODY, (*lines, lines[0]))
    assert signed_note.verified_cosignatures(note, [WITNESS_KEY, WITNESS_KEY]) == [(WITNESS_KEY, 9)]


def test_a_cosignature_is_not_a_signature_of_the_text() -> None:
    # The same key may not serve as both: type and prefix keep the two apart.
    as_log = VerifierKey(WITNESS_KEY.name, ED25519, WITNESS.public)
    assert as_log.key_id != WITNESS_KEY.key_id
    cosigned = Note(BODY, (signed_note.cosign(BODY, WITNESS_KEY.name, WITNESS, 5),))
    signed = Note(BODY, (signed_note.sign(BODY, WITNESS_KEY.name, WITNESS),))
    assert signed_note.verified(cosigned, [as_log, WITNESS_KEY]) == []
    assert signed_note.verified_cosignatures(signed, [as_log, WITNESS_KEY]) == []


@pytest.mark.parametrize("at", [0, 7, 8, 40, 71])
def test_an_altered_cosignature_refuses_the_note(at: int) -> None:
    line = signed_note.cosign(BODY, WITNESS_KEY.name, WITNESS, 5)
    altered = bytearray(line.signature)
    altered[at] ^= 0x80 if at == 0 else 1
    for signature in (bytes(altered), line.signature[:at], line.signature + b"\0"):
        note = Note(BODY, (line._replace(signature=signature),))
        with pytest.raises(BadNote, match="cosignature by"):
            signed_note.verified_cosignatures(note, [WITNESS_KEY])


@pytest.mark.parametrize("signed_at", [-1, 2**63])
def test_a_time_out_of_range_is_not_signed(signed_at: int) -> None:
    with pytest.raises(ValueError, match="not a time"):
        signed_note.cosign(BODY, "w", WITNESS, signed_at)


LINES = st.builds(
    Signature, st.sampled_from(["a", "é/b", "c.example"]), st.binary(min_size=4, max_size=4),
    st.binary(min_size=1, max_size=80),
)  # fmt: skip


@pytest.mark.deep(stands_in="test_a_note_with_any_text_is_read_back_as_it_was_written")
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n")), st.lists(LINES))
@examples(500)
def test_every_note_is_read_back_as_it_was_written(text: str, lines: list[Signature]) -> None:
    read_as_itself(text, lines)


@pytest.mark.parametrize("many", [0, 1, 2, MAX_SIGNATURES, MAX_SIGNATURES + 1])
def test_a_note_with_any_text_is_read_back_as_it_was_written(many: int) -> None:
    for text in ("", "\n", "\n\n", "a\n\nb", "\u2028 \x85 é 😀", f"{TEXT}\n{PETER_LINE}"):
        for name in ("a", "example.com/log", "é😀", "—", "a—b"):
            read_as_itself(text, [Signature(name, b"1234", bytes([n])) for n in range(many)])


def read_as_itself(text: str, lines: list[Signature]) -> None:
    note = Note(text + "\n", tuple(lines))
    if lines and len(lines) <= MAX_SIGNATURES:
        assert signed_note.parse(note.render()) == note
    else:
        with pytest.raises(BadNote):
            note.render()


@pytest.mark.deep(stands_in="test_a_malformed_note_is_refused")
@given(st.text(), st.integers(0, len(NOTE)), st.integers(0, 5))
@examples(1000)
def test_no_text_makes_the_parser_fail_with_another_error(text: str, at: int, cut: int) -> None:
    for note in (text, NOTE[:at] + text[:3] + NOTE[at + cut :]):
        try:
            parsed = signed_note.parse(note)
        except BadNote:
            continue
        # One note, one spelling.
        assert parsed.render() == note


@pytest.mark.parametrize(
    "text",
    [
        "log\n05\n{root}\n", "log\n+5\n{root}\n", "log\n-5\n{root}\n", "log\n5\n{root}",
        "log\n5\n{root}\n\n", "log\n5\n{root}\n\nx\n", "\n5\n{root}\n", "log\n5\n",
        "log\n5\n{short}\n", "log\n5\n{root}\nx", "log\n٥\n{root}\n", "log\n5 \n{root}\n",
        "log\n9223372036854775808\n{root}\n", "log\n" + "9" * 5000 + "\n{root}\n",
        "log\n5\n{root}=\n", "", "\n", "\n\n\n",
    ],
)  # fmt: skip
def test_other_spellings_are_not_checkpoints(text: str) -> None:
    root, short = base64.b64encode(bytes(32)).decode(), base64.b64encode(bytes(31)).decode()
    with pytest.raises(BadNote):
        checkpoint.parse(text.format(root=root, short=short))


def test_extension_lines_of_other_logs_are_ignored_and_of_ours_refused() -> None:
    text = Checkpoint("log", 5, bytes(32)).text() + "an extension\n"
    assert checkpoint.parse(text) == Checkpoint("log", 5, bytes(32))
    note = Note(text, (signed_note.sign(text, "log", WITNESS),)).render()
    with pytest.raises(BadNote, match="not a checkpoint of log"):
        checkpoint.read(note, "log", (WITNESS.public,))


def test_witnesses_may_cosign_a_checkpoint() -> None:
    at = Checkpoint("log", 5, bytes(32))
    line = signed_note.cosign(at.text(), WITNESS_KEY.name, WITNESS, 5).line()
    log = Signer(bytes(32))
    for note in (
        checkpoint.sign(at, log) + line,
        at.text() + "\n" + line + checkpoint.sign(at, log).rpartition("\n\n")[2],
    ):
        assert checkpoint.read(note, "log", (log.public,)) == at
    with pytest.raises(BadNote, match="not signed by"):
        checkpoint.read(f"{at.text()}\n{line}", "log", (log.public, WITNESS.public))
