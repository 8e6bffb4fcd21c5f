"""Recognises the private key of a log where its public key is asked for. Keeps no key, and no
message shows one."""

from collections.abc import Collection, Iterable

from policies.ground.canonical import NotCanonical, unb64
from policies.ground.signing import Signer

NOT_PUBLIC = (
    "the key given is the log's private key, which must stay with the service: who reads it can "
    "sign another log. Give the public key, `log.pub`, which `sluice log-key` prints. If the "
    "private key has left its host, replace it with `sluice rotate-key`"
)


def is_public_key(text: str) -> bool:
    """Whether `text` is the base64 of 32 bytes, as a public key is. The seed of a private key has
    the same form: `is_private_half` tells them apart."""
    try:
        return len(unb64(text)) == 32
    except NotCanonical:
        return False


def is_private_key(text: str) -> bool:
    """Whether `text` has the form of a private key: PEM, or a `log.key` after a rotation, whose
    first line is the seed and each further line an endorsement."""
    first, _, rest = text.partition("\n")
    return "PRIVATE KEY-----" in first or (is_public_key(first.strip()) and rest.startswith("{"))


def is_private_half(given: Iterable[bytes], publics: Collection[bytes]) -> bool:
    """Whether one of the keys `given` (32 bytes each) is the private half of a key in `publics`."""
    return not {Signer(each).public for each in given}.isdisjoint(publics)
