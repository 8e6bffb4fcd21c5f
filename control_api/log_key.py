"""The log's signing key, in the data directory. Knows its file; signs nothing itself."""

from pathlib import Path

from control_api import secret_file
from policies.ground.canonical import NotCanonical, b64, unb64
from policies.signing import Signer

FILE = "log.key"
SEED = 32


def open_or_make(data_dir: Path) -> Signer:
    """The key of this data directory; made where there is none.

    A key that is there and can't be read is never replaced: sidecars pin its public half, and
    receipts under another would be refused.
    """
    path = data_dir / FILE
    found = secret_file.read(path)
    if found is not None:
        return Signer(_seed(path, found))
    made = Signer.generate()
    secret_file.write(path, b64(made.seed()).encode() + b"\n")
    return made


def open_existing(data_dir: Path) -> Signer:
    """The same for whoever must not be the first: `UnusableFile` where there is none."""
    path = data_dir / FILE
    found = secret_file.read(path)
    if found is None:
        raise secret_file.UnusableFile(
            f"`{path}` is not there: the service makes it when it starts"
        )
    return Signer(_seed(path, found))


def _seed(path: Path, content: bytes) -> bytes:
    try:
        seed = unb64(content.decode("ascii").strip())
    except (UnicodeDecodeError, NotCanonical):
        seed = b""
    if len(seed) != SEED:
        raise secret_file.UnusableFile(f"`{path}` holds no signing key")
    return seed
