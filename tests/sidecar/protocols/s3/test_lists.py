"""Lists of keys as S3 and compatible servers write them: names that may not be seen are cut, the
rest stays as it was, and nothing in the list reveals what was cut."""

from base64 import b64encode
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.s3.lists import UnreadableXml, filter_buckets, filter_keys, read
from tests.support.properties import examples

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/">'
TAIL = "</ListBucketResult>\n"


def visible(name: str) -> bool:
    return name.startswith("open/")


def key(name: str) -> str:
    return f"\n  <Contents><Key>{name}</Key><Size>1</Size><Owner><ID>x</ID></Owner></Contents>"


def of(*parts: str) -> bytes:
    return (HEAD + "".join(parts) + TAIL).encode()


def test_hidden_names_are_removed_and_the_rest_stays() -> None:
    before = "<Name>lake</Name><KeyCount>4</KeyCount><IsTruncated>false</IsTruncated>"
    folders = "<CommonPrefixes><Prefix>shut/</Prefix></CommonPrefixes>"
    seen = "<CommonPrefixes><Prefix>open/x/</Prefix></CommonPrefixes>"
    passed = filter_keys(of(before, key("shut/s"), key("open/a"), folders, seen), visible)
    # The white space between entries belongs to neither.
    expected = of(before.replace("4", "2"), "\n  ", key("open/a"), seen)
    assert passed.body == expected
    assert passed.withheld == 2


def test_a_list_without_hidden_names_stays_the_same_byte_for_byte() -> None:
    whole = of("<KeyCount>007</KeyCount>", key("open/a"), key("open/&#252;&amp;"))
    assert filter_keys(whole, visible) == (whole, 0)


@pytest.mark.parametrize("root", ["ListVersionsResult", "ListMultipartUploadsResult"])
def test_versions_markers_and_uploads_are_names_too(root: str) -> None:
    entries = [
        f"<{entry}><Key>{name}</Key><VersionId>1</VersionId></{entry}>"
        for entry in ("Version", "DeleteMarker", "Upload")
        for name in ("shut/s", "open/a")
    ]
    passed = filter_keys(f"<{root}>{''.join(entries)}</{root}>".encode(), visible)
    assert passed.withheld == 3
    assert b"shut" not in passed.body


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("shut%2Fs", False),
        ("op%65n/a", True),
        ("%6Fpen/a+b", True),
        ("open%2Fa", True),
        ("op+en/a", False),
    ],
)
def test_escaped_names_are_unescaped_before_they_are_judged(name: str, may: bool) -> None:
    passed = filter_keys(of("<EncodingType>url</EncodingType>", key(name)), visible)
    assert (passed.withheld == 0) is may


def test_a_plus_must_be_visible_in_both_readings() -> None:
    def only_plus(name: str) -> bool:
        return name == "a+b"

    escaped = of("<EncodingType>url</EncodingType>", key("a+b"))
    assert filter_keys(escaped, only_plus).withheld == 1
    assert filter_keys(of(key("a+b")), only_plus).withheld == 0


MORE = "<IsTruncated>true</IsTruncated>"


@pytest.mark.parametrize(
    "parts",
    [
        (MORE, "<NextMarker>shut/s</NextMarker>", key("open/a"), key("shut/s")),
        (MORE, "<NextMarker>shut/next</NextMarker>", key("open/a")),
        (MORE, "<NextKeyMarker>shut/s</NextKeyMarker>", key("open/a")),
        (MORE, key("shut/s")),
        (
            MORE,
            f"<NextContinuationToken>{b64encode(b'shut/s').decode()}</NextContinuationToken>",
            key("open/a"),
        ),
        (
            MORE,
            f"<NextContinuationToken>{b64encode(b'x:shut/s:y').decode()}</NextContinuationToken>",
            key("open/a"), key("shut/s"),
        ),
        (
            MORE,
            "<NextContinuationToken>shut/s</NextContinuationToken>",
            key("open/a"), key("shut/s"),
        ),
    ],
)  # fmt: skip
def test_a_page_that_continues_from_a_hidden_name_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(UpstreamFailed, match="longer prefix"):
        filter_keys(of(*parts), visible)


@pytest.mark.parametrize(
    "parts",
    [
        # AWS's own token, which is opaque.
        (
            "<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=",
            "</NextContinuationToken>", key("shut/s"),
        ),
        ("<NextMarker>open/a</NextMarker>", key("open/a"), key("shut/s")),
        (key("open/a"), key("shut/s")),
    ],
)  # fmt: skip
def test_a_page_that_can_be_continued_passes(parts: tuple[str, ...]) -> None:
    assert filter_keys(of(MORE, *parts), visible).withheld == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<html><Key>shut/s</Key></html>",
        of("<Surprise>shut/s</Surprise>"),
        of("<Name><Key>shut/s</Key></Name>"),
        of("<Contents/>"),
        of("<Contents><Key>open/a</Key><Key>shut/s</Key></Contents>"),
        of("<Contents><Key>open/a<b/></Key></Contents>"),
        of("<s3:Contents><Key>shut/s</Key></s3:Contents>"),
        of(key("open/a"))[:-10],
        of(key("open/a")) + b"<more/>",
        of(key("open/a")).replace(b"UTF-8", b"ISO-8859-1"),
        of(key("open/a")).decode().encode("utf-16"),
        of(key("open/a")).decode().encode("utf-16-le"),
        b"\xef\xbb\xbf" + of(key("open/a")),
        b"<!DOCTYPE x [<!ENTITY s 'shut/s'>]>" + of(key("open/&s;")).partition(b"\n")[2],
        of("<Contents><a><b><c><d><e><f><g/></f></e></d></c></b></a><Key>open/a</Key></Contents>"),
    ],
)
def test_a_list_of_unknown_form_is_withheld(body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        filter_keys(body, visible)


def test_lists_of_buckets_are_filtered_too() -> None:
    head = "<ListAllMyBucketsResult><Owner><ID>x</ID></Owner><Buckets>"
    entries = [f"<Bucket><Name>{name}</Name></Bucket>" for name in ("a", "b", "c")]
    tail = "</Buckets></ListAllMyBucketsResult>"
    whole = (head + "".join(entries) + tail).encode()
    assert filter_buckets(whole, lambda name: name == "b") == (head + entries[1] + tail).encode()
    assert filter_buckets(whole, lambda name: True) == whole
    assert filter_buckets((head[:-9] + "<Buckets/>" + tail[10:]).encode(), lambda name: False)
    for wrong in (b"<Buckets/>", whole.replace(b"Name", b"Nome"), whole.replace(b"Owner", b"Oner")):
        with pytest.raises(UpstreamFailed):
            filter_buckets(wrong, lambda name: True)


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12
).map(lambda text: text.replace("]]>", ""))
MARKUP = st.sampled_from(["", "<!-- <Key>x</Key> -->", "<?pi <Key>?>", "\n", "&#10;", "<I a='>'/>"])


@given(st.lists(st.tuples(st.booleans(), NAMES, MARKUP), max_size=8))
@examples(300)
def test_exactly_the_visible_names_remain(
    entries: list[tuple[bool, str, str]],
) -> None:
    """By another XML parser than the one that cut."""

    def escape(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;")

    names = [("open/" if may else "shut/") + name for may, name, _ in entries]
    whole = of(
        *(
            f"<Contents>{markup}<Key>{escape(name)}</Key></Contents>"
            for name, (_, _, markup) in zip(names, entries, strict=True)
        )
    )
    try:
        read(whole)
    except UnreadableXml:
        return
    passed = filter_keys(whole, visible)
    found = [each.text for each in ET.fromstring(passed.body).iter() if each.tag.endswith("Key")]
    assert found == [name for name in names if visible(name)]
    assert passed.withheld == len(names) - len(found)
