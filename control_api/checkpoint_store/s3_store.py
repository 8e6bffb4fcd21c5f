"""Implements the checkpoint store in an S3 bucket, where each object is written once:

    <prefix>/<tenant>/<number>.note                                the notes
    <prefix>/<tenant>/cosigned/<key id>/<incarnation>-<size>.note  those cosigned by a witness

The numbers in the names count down (10^20 - 1 - number; 10^10 - 1 - incarnation), so that a listing
begins with the latest note, and no digit sorts after `cosigned`. So finding the latest note takes
one request, however many notes there are. `If-None-Match: *` makes a put fail if the object exists.
A server that ignores that condition could lose notes, so the first put checks that it does not.

Needs `s3:GetObject`, `s3:PutObject` and `s3:ListBucket`; never deletes. botocore finds endpoint,
region and credentials, signs requests, and retries. The signatures of notes are not looked at.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import botocore.config
import botocore.exceptions
import botocore.session

from control_api.checkpoint_store.stored_note import (
    COSIGNED,
    MAX_NOTE,
    MAX_WITNESSES,
    CheckpointStoreFault,
    CosignedNote,
    StoredNote,
)

_LAST = 10**20 - 1
_LAST_INCARNATION = 10**10 - 1
_SUFFIX = ".note"
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_PROBE = "conditional-writes"
_FAULTS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, OSError)
_CONFIG = botocore.config.Config(
    connect_timeout=5, read_timeout=10, retries={"max_attempts": 3, "mode": "standard"}
)


class S3Store:
    """The checkpoint store in a bucket, below one prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._made: Any = None
        self._checked = False

    def latest(self, tenant_id: str) -> StoredNote | None:
        with self._faults():
            key = self._first_key(self._folder(tenant_id))
            # Only cosigned notes: someone has removed the others.
            if key is None or key.startswith(self._cosigned(tenant_id)):
                return None
            return self._stored(key)

    def notes(self, tenant_id: str) -> Iterator[StoredNote]:
        after: dict[str, str] = {}
        while True:
            with self._faults():
                found = self._client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._folder(tenant_id), Delimiter="/", **after
                )
                page = [self._stored(each["Key"]) for each in found.get("Contents", ())]
            yield from page
            if not found.get("IsTruncated"):
                return
            after = {"ContinuationToken": found["NextContinuationToken"]}

    def put(self, tenant_id: str, number: int, note: str) -> bool:
        with self._faults():
            self._check_conditions()
            return self._create(f"{self._folder(tenant_id)}{_LAST - number:020}{_SUFFIX}", note)

    def put_cosigned(self, tenant_id: str, cosigned: CosignedNote) -> None:
        incarnation, size = _LAST_INCARNATION - cosigned.incarnation, _LAST - cosigned.size
        name = f"{cosigned.witness}/{incarnation:010}-{size:020}{_SUFFIX}"
        with self._faults():
            self._check_conditions()
            self._create(f"{self._cosigned(tenant_id)}{name}", cosigned.note)

    def cosigned(self, tenant_id: str) -> list[str]:
        prefix = self._cosigned(tenant_id)
        with self._faults():
            found = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/", MaxKeys=MAX_WITNESSES
            )
            keys = [self._first_key(each["Prefix"]) for each in found.get("CommonPrefixes", ())]
            return [self._read(key) for key in keys if key is not None]

    def tenants(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
        )
        with self._faults():
            folders = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ())]
        return sorted(unquote(each[len(self._prefix) : -1]) for each in folders)

    @property
    def _client(self) -> Any:
        # Made at first use, since finding the credentials may read files or ask the network.
        if self._made is None:
            self._made = botocore.session.Session().create_client("s3", config=_CONFIG)
        return self._made

    def _first_key(self, prefix: str) -> str | None:
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=1)
        return next((str(each["Key"]) for each in found.get("Contents", ())), None)

    def _check_conditions(self) -> None:
        if self._checked:
            return
        key = f"{self._prefix}{_PROBE}"
        # The first of these creates the object, unless an earlier start has. The second must fail.
        if self._create(key, "") and self._create(key, ""):
            raise CheckpointStoreFault(
                f"`{self._bucket}` ignores `If-None-Match`, so notes could be overwritten: use a "
                "server with conditional writes"
            )
        self._checked = True

    def _create(self, key: str, body: str) -> bool:
        try:
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=body.encode(),
                ContentType="text/plain; charset=utf-8",
                IfNoneMatch="*",
            )
        except botocore.exceptions.ClientError as error:
            # After a lost answer botocore tries again, and finds its own object. The caller then
            # looks for the latest note, and finds it too.
            if error.response.get("Error", {}).get("Code") in _TAKEN:
                return False
            raise
        return True

    def _read(self, key: str) -> str:
        answer = self._client.get_object(Bucket=self._bucket, Key=key)
        with answer["Body"] as body:
            note: bytes = body.read(MAX_NOTE)
        return note.decode(errors="replace")

    def _stored(self, key: str) -> StoredNote:
        digits = key.rpartition("/")[2].removesuffix(_SUFFIX)
        # A key that is no number of ours was put there by someone else. As the latest note it
        # stops all signing, which an operator notices.
        number = _LAST - int(digits) if digits.isascii() and digits.isdigit() else _LAST
        return StoredNote(number, self._read(key))

    def _cosigned(self, tenant_id: str) -> str:
        return f"{self._folder(tenant_id)}{COSIGNED}/"

    def _folder(self, tenant_id: str) -> str:
        return f"{self._prefix}{quote(tenant_id, safe='')}/"

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except _FAULTS as error:
            # botocore's messages name the operation, the bucket and the status, and no secret.
            where = f"checkpoint store `s3://{self._bucket}`"
            raise CheckpointStoreFault(f"{where}: {error}") from error
