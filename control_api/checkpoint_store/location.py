"""Where the checkpoint store is: the value of `SLUICE_CHECKPOINT_STORE`.

    file:///dir            a directory
    s3://bucket/prefix     a bucket; endpoint, region and credentials as botocore finds them

Parses only; `open_store` opens.
"""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from control_api.checkpoint_store.file_store import FileStore
from control_api.checkpoint_store.stored_note import CheckpointStore
from policies.ground.distribution import how_to_install

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/-]{0,512}\Z")


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A directory, or a bucket with the prefix of its keys. `bucket` is empty for a directory."""

    directory: Path
    bucket: str = ""
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> "StoreLocation":
        """Raises `ValueError` with the reason if `text` is no location."""
        url = urlsplit(text)
        if url.query or url.fragment:
            raise ValueError("must have no `?` and no `#`")
        if url.scheme == "file":
            return cls._directory(url.netloc, unquote(url.path))
        if url.scheme == "s3":
            return cls._bucket(url.netloc, url.path.strip("/"))
        raise ValueError("must be file:///directory or s3://bucket/prefix")

    @classmethod
    def _directory(cls, host: str, path: str) -> "StoreLocation":
        # `file://checkpoints` would name a host, not a directory.
        if host or not path.startswith("/") or path.strip("/") == "":
            raise ValueError("must be file:///directory, with an absolute path")
        return cls(Path(path))

    @classmethod
    def _bucket(cls, bucket: str, prefix: str) -> "StoreLocation":
        if not _BUCKET.match(bucket) or not _PREFIX.match(prefix) or "//" in prefix:
            raise ValueError("must be s3://bucket/prefix")
        if find_spec("botocore") is None:
            raise ValueError(f"s3 needs botocore; {how_to_install('aws')}")
        return cls(Path(), bucket, prefix)

    def __str__(self) -> str:
        if self.bucket:
            return f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return self.directory.absolute().as_uri()


def open_store(location: StoreLocation) -> CheckpointStore:
    """The store at `location`. Reads and writes nothing yet."""
    if not location.bucket:
        return FileStore(location.directory)
    # botocore is large, and only needed for this kind of store.
    from control_api.checkpoint_store.s3_store import S3Store

    return S3Store(location.bucket, location.prefix)
