"""A Lease, held while a replica changes the certificates. Keeps two replicas from doing the same
work at once; what keeps them from damaging each other's is the `resourceVersion` of each write.

Expiry is judged by how long the Lease has not changed, on our own monotonic clock. The times in it
are written for people: clocks of machines differ, and step.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from control_api.admission.kubernetes.api import KubernetesApi, Object

DURATION_SECONDS = 30


class Lease:
    """The Lease `name`, as seen by the replica `holder`."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        holder: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._api = api
        self._list = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._list}/{name}"
        self._metadata = {"name": name, "namespace": namespace}
        self._holder = holder
        self._monotonic = monotonic
        self._seen: tuple[str, float] = ("", 0.0)
        """The version seen last, and when it was first seen."""

    async def acquire(self, now: dt.datetime) -> bool:
        """Take or renew the Lease. False if another replica holds it. Raises `ApiFault`; a
        `Conflict` means that another was faster."""
        found = await self._api.get(self._path)
        if found is None:
            await self._api.create(self._list, self._object(self._metadata, now))
            return True
        metadata = found.get("metadata") or {}
        if not self._free(found, str(metadata.get("resourceVersion", ""))):
            return False
        await self._api.replace(self._path, self._object(metadata, now))
        return True

    async def release(self, now: dt.datetime) -> None:
        """Let the next replica take it at once. A crash before this costs 30 seconds."""
        found = await self._api.get(self._path)
        if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._holder:
            free = self._object(found.get("metadata") or {}, now)
            free["spec"]["holderIdentity"] = ""
            await self._api.replace(self._path, free)

    def _free(self, found: Object, version: str) -> bool:
        if version != self._seen[0]:
            self._seen = (version, self._monotonic())
        holder = (found.get("spec") or {}).get("holderIdentity") or ""
        expired = self._monotonic() - self._seen[1] > DURATION_SECONDS
        return holder in ("", self._holder) or expired

    def _object(self, metadata: Object, now: dt.datetime) -> Object:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                # MicroTime: RFC 3339 with exactly six decimals.
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
