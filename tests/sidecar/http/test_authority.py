"""Each host and port has one form, and an ambiguous one is refused. The table contains every row of
Smokescreen's hostport tests (`proxy/RULES.md`, Hosts and ports), and says where we refuse what
Smokescreen accepts."""

import pytest

from policies.ground.errors import Malformed
from sidecar.http.authority import authority, canonical_host

READ = {
    "127.0.0.1:1234": "127.0.0.1:1234",
    "example.net:1337": "example.net:1337",
    "example.net.:1337": "example.net:1337",
    "FOO-BAR.example.COM:443": "foo-bar.example.com:443",
    "[2001:DB8::1337]:1337": "[2001:db8::1337]:1337",
    "[2001:db8:0:0::1]:443": "[2001:db8::1]:443",
    "[::ffff:1.2.3.4]:80": "[::ffff:102:304]:80",
    "a_service.internal:65535": "a_service.internal:65535",
    "xn--jv8h.example.com:123": "xn--jv8h.example.com:123",
    "bücher.example:80": "xn--bcher-kva.example:80",
    "BÜCHER.example.:80": "xn--bcher-kva.example:80",
    "a。b:80": "a.b:80",
    "１２７.0.0.1:80": "127.0.0.1:80",
}

REFUSED = [
    "example.net", "", ":", "::", "[[example.net]]:1337", "2001:DB8::1337",
    "[2001:DB8::1337]:91337", "[2001:DB8::1337]:-12", "[2001:DB8::1337]:https",
    # Smokescreen accepts these: brackets around a name, a port with zeros, an emoji.
    "[example.net.]:1337", "[127.0.0.1]:1337", "[2001:DB8::1337]:007", "🔐.example.com:123",
    "a:0", "a:00", "a:65536", "a:+80", "a:8_0", "a:٨٠", "a: 80", "a:80 ", "a:",
    # Numbers that some resolvers read as addresses.
    "127.1:80", "0x7f.1:80", "0x7f000001:80", "2130706433:80", "017.0.0.1:80", "1.2.3.4.5:80",
    "127.0.0.1..:80", "a.0x:80",
    "[::1%eth0]:80", "[::1]x:80", "[::g]:80", "[]:80", "[::1:80", "::1]:80",
    "a..b:80", ".a:80", "a..:80", "-a:80", "a-:80", "a b:80", "a/b:80", "u@a:80", "a\\b:80",
    "a%62:80", "a\x00b:80", "a\n:80", "a#b:80", "a?b:80", "*:80", "*.a:80", "a,b:80",
    f"{'a' * 64}.b:80", f"{'a.' * 127}a:80",
]  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_a_name_and_port_have_one_form(text: str) -> None:
    found = authority(text)
    assert str(found) == READ[text]
    assert authority(str(found)) == found


@pytest.mark.parametrize("text", REFUSED)
def test_an_ambiguous_authority_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        authority(text)


def test_a_default_replaces_only_an_absent_port() -> None:
    assert authority("example.net", 80) == ("example.net", 80)
    assert authority("[::1]", 443) == ("::1", 443)
    assert authority("example.net:8080", 80).port == 8080
    for text in ("example.net:", "example.net:x", "::1", "example.net:0"):
        with pytest.raises(Malformed):
            authority(text, 80)


def test_a_host_alone_has_the_same_form() -> None:
    assert canonical_host("A.example.") == "a.example"
    assert canonical_host("[::0001]") == canonical_host("::1") == "::1"
    for text in ("[::1", "a.example:80", "127.1", "", "."):
        with pytest.raises(Malformed):
            canonical_host(text)
