"""The canonical form of a target, as a table, and the property behind rows 1 to 5 and 11 of
`proxy/RULES.md`, Bypasses: in any spelling of a path, what is judged is what arrives."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from sidecar.http.request_target import Target, canonical, encode_segment
from tests.support.properties import examples

READ = [
    # as sent, path as judged and forwarded, query as forwarded, decoded segments
    ("/", "/", None, ("",)),
    ("/a", "/a", None, ("a",)),
    ("/a/", "/a/", None, ("a", "")),
    ("/a/b?x=%2F&y=%zz", "/a/b", "x=%2F&y=%zz", ("a", "b")),
    ("/a?", "/a", "", ("a",)),
    ("/a??b", "/a", "?b", ("a",)),
    ("/a?//../%00", "/a", "//../%00", ("a",)),
    ("/.well-known/x", "/.well-known/x", None, (".well-known", "x")),
    ("/...", "/...", None, ("...",)),
    ("/a.", "/a.", None, ("a.",)),
    ("/%61dmin", "/admin", None, ("admin",)),
    ("/%41%2d%7E", "/A-~", None, ("A-~",)),
    ("/a%3ab", "/a:b", None, ("a:b",)),
    ("/a:b@c!$&'()*,=", "/a:b@c!$&'()*,=", None, ("a:b@c!$&'()*,=",)),
    ("/a+b", "/a%2Bb", None, ("a+b",)),
    ("/a%2bb", "/a%2Bb", None, ("a+b",)),
    ("/a;v=1", "/a%3Bv=1", None, ("a;v=1",)),
    ("/a%3fb", "/a%3Fb", None, ("a?b",)),
    ("/a%23b", "/a%23b", None, ("a#b",)),
    ("/a%20b", "/a%20b", None, ("a b",)),
    ("/100%25", "/100%25", None, ("100%",)),
    ("/%7Burn%7d", "/%7Burn%7D", None, ("{urn}",)),
    ("/[1]", "/%5B1%5D", None, ("[1]",)),
    ("/%e2%82%ac", "/%E2%82%AC", None, ("€",)),
]

REFUSED = [
    # refused by `protocols/RULES.md` and `proxy/RULES.md`, Paths, in every spelling
    ("", "does not start"),
    ("*", "does not start"),
    ("a", "does not start"),
    ("http://evil/x", "does not start"),
    ("evil:80", "does not start"),
    ("//evil/x", "starts with `//`"),
    ("///admin", "starts with `//`"),
    ("//h@x/admin", "starts with `//`"),
    ("/a//b", "empty segment"),
    ("/a///", "empty segment"),
    ("/a#f", "`#`"),
    ("/pub#/../admin", "`#`"),
    ("/a?x#f", "`#`"),
    ("/a\\b", "`\\`"),
    ("/a?x\\y", "`\\`"),
    ("/a b", "a space"),
    ("/a?x y", "a space"),
    ("/a\tb", "not printable"),
    ("/a\x00", "not printable"),
    ("/a\x7f", "not printable"),
    ("/ä", "not printable"),
    ("/a?ä", "not printable"),
    ("/\udcc3", "not printable"),
    ("/a%", "without two hexadecimal digits"),
    ("/a%2", "without two hexadecimal digits"),
    ("/%zz", "without two hexadecimal digits"),
    ("/%u0061", "without two hexadecimal digits"),
    ("/a%2fb", "escaped slash"),
    ("/a%2Fb", "escaped slash"),
    ("/x%5c..%5cadmin", "escaped slash"),
    ("/a%00", "control"),
    ("/a%0a", "control"),
    ("/a%0D%0Ab", "control"),
    ("/a%7f", "control"),
    ("/a%c2%85", "control"),
    ("/%c0%ae%c0%ae/", "not UTF-8"),
    ("/%ff", "not UTF-8"),
    ("/%ed%a0%80", "not UTF-8"),
    ("/a%252fb", "escaped twice"),
    ("/a%252e%252e", "escaped twice"),
    ("/a%2541", "escaped twice"),
    ("/info/../private", "dot segment"),
    ("/info/./private", "dot segment"),
    ("/info/%2e%2e/private", "dot segment"),
    ("/info/.%2E/private", "dot segment"),
    ("/info/..;/private", "dot segment"),
    ("/info/..%3b/private", "dot segment"),
    ("/info/%2e;x/private", "dot segment"),
    ("/..", "dot segment"),
    ("/.", "dot segment"),
]


@pytest.mark.parametrize(("raw", "path", "query", "segments"), READ)
def test_a_target_has_one_form(
    raw: str, path: str, query: str | None, segments: tuple[str, ...]
) -> None:
    assert canonical(raw) == Target(path, query, segments)


@pytest.mark.parametrize(("raw", "why"), REFUSED)
def test_an_ambiguous_target_is_refused(raw: str, why: str) -> None:
    with pytest.raises(Malformed, match=why.replace("\\", r"\\")):
        canonical(raw)


def test_a_bare_question_mark_is_kept() -> None:
    assert canonical("/a?").forwarded == "/a?"
    assert canonical("/a").forwarded == "/a"


ANY = st.text(
    st.one_of(
        st.sampled_from("/.%;?#\\+:@ 2efFcCaA"),
        st.sampled_from(string.printable),
        st.characters(),
    ),
    max_size=24,
).map(lambda tail: "/" + tail)


@pytest.mark.parametrize("raw", [raw for raw, *_ in READ])
def test_the_forwarded_target_has_the_judged_form(raw: str) -> None:
    judged = canonical(raw)
    assert canonical(judged.forwarded) == judged
    assert canonical(judged.forwarded).forwarded == judged.forwarded


@pytest.mark.deep(stands_in="test_the_forwarded_target_has_the_judged_form")
@given(ANY)
@example("/%2e")
@example("/%25%32%65")
@examples(3000)
def test_the_forwarded_target_is_read_as_the_judged_one(raw: str) -> None:
    try:
        target = canonical(raw)
    except Malformed:
        return
    again = canonical(target.forwarded)
    assert again == target
    assert again.forwarded == target.forwarded


@given(ANY)
@examples(3000)
def test_a_canonical_path_hides_nothing(raw: str) -> None:
    try:
        target = canonical(raw)
    except Malformed:
        return
    path = target.path
    assert path.isascii()
    assert path.isprintable()
    assert path.startswith("/")
    assert "//" not in path
    assert not set(" #\\;+") & set(path)
    for segment in target.segments:
        assert segment.partition(";")[0] not in (".", "..")
        assert "/" not in segment
    assert path == "/" + "/".join(map(encode_segment, target.segments))


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A path, and another spelling of it, with each character escaped or not, in either case."""
    segments = draw(
        st.lists(
            st.text(
                st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\%"),
                min_size=1,
                max_size=6,
            ).filter(lambda text: text.partition(";")[0] not in (".", "..")),
            min_size=1,
            max_size=4,
        )
    )

    def spelt(segment: str) -> str:
        parts = []
        for character in segment:
            plain = character.isascii() and character.isprintable() and character not in "?# "
            if plain and draw(st.booleans()):
                parts.append(character)
            else:
                digits = "%02x" if draw(st.booleans()) else "%02X"
                parts += ["%" + digits % byte for byte in character.encode()]
        return "".join(parts)

    one = "/" + "/".join(map(spelt, segments))
    other = "/" + "/".join(map(spelt, segments))
    return one, other


@pytest.mark.deep(stands_in="test_a_target_has_one_form")
@given(spellings())
@examples(3000)
def test_two_spellings_of_one_path_have_one_form(pair: tuple[str, str]) -> None:
    one, other = pair
    assert canonical(one) == canonical(other)


@given(st.text(string.printable.replace("#", "").replace("\\", ""), max_size=30))
def test_a_query_is_never_touched(query: str) -> None:
    if not query.isprintable() or " " in query:
        return
    assert canonical(f"/a?{query}").forwarded == f"/a?{query}"
