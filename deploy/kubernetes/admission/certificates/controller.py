"""Creates and renews the webhook's certificate with the setting `certificates: self`. A replica
that changes something holds a Lease while it does.

Every replica runs this controller, and takes the Lease once it finds something to do. The Lease
keeps two replicas from doing the same work at once. The `resourceVersion` of each write keeps them
from overwriting each other's work.

A Lease counts as expired once it has not changed for long enough, as measured by this replica's
monotonic clock. The times written in the Lease are only for people to read: clocks of machines
differ, and step.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from deploy.kubernetes.admission.certificates.stored import (
    Publish,
    Published,
    ServingContext,
    Step,
    Stored,
    Wanted,
    WriteSecret,
    next_step,
)
from deploy.kubernetes.admission.kubernetes import ApiFault, Conflict, Denied, KubernetesApi, Object
from deploy.kubernetes.admission.metrics import ControllerFault, WebhookMetrics
from deploy.kubernetes.admission.settings import WebhookSettings
from policies.ground.clock import Clock
from policies.ground.process.tls_files import UnusableTls

DURATION_SECONDS = 30


class Lease:
    """The Kubernetes Lease `name`, as used by the replica `holder` of the webhook."""

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
        """The `resourceVersion` of the Lease that was seen last, and the monotonic time at which it
        was first seen."""

    async def acquire(self, now: dt.datetime) -> bool:
        """Take or renew the Lease. Returns False if another replica holds it. Raises `ApiFault`;
        its subclass `Conflict` means that another replica was faster."""
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
        """Give the Lease up, so that another replica can take it at once. After a crash before
        this, the others wait for 30 seconds."""
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


POLL_SECONDS = 10.0
MAX_SKEW_SECONDS = 300.0
MAX_STEPS = 6
"""The most steps that one round takes. A first start takes two, and so does a new authority, with a
pause in between."""
_log = logging.getLogger("sluice.certificates")


class ClockDiffers(Exception):
    """this machine's clock and the API server's differ by more than five minutes"""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The objects of the cluster as they were at the beginning of a step: the Secret, its parsed
    contents, and the webhook configuration."""

    stored: Stored
    secret: Object | None
    configuration: Object | None


class CertificateController:
    """Creates, renews and serves the certificate in one replica of the webhook."""

    def __init__(
        self,
        settings: WebhookSettings,
        api: KubernetesApi,
        serving: ServingContext,
        metrics: WebhookMetrics,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._api = api
        self._serving = serving
        self._metrics = metrics
        self._clock = clock
        self._lease = Lease(
            api, settings.namespace, settings.service, settings.pod, clock.monotonic
        )
        self._secrets = f"/api/v1/namespaces/{settings.namespace}/secrets"
        self._secret = f"{self._secrets}/{settings.secret}"
        self._configuration = (
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
            + settings.configuration
        )
        service = f"{settings.service}.{settings.namespace}.svc"
        self._wanted = Wanted(
            (service, f"{service}.cluster.local"), dt.timedelta(hours=settings.leaf_hours)
        )
        self._published: tuple[str, float] | None = None
        """The serial number of the newest authority that the webhook configuration trusts, and the
        monotonic time at which this replica first saw it there."""
        self._skew = 0.0
        api.skew_of = self._note_date

    async def run(self) -> None:
        """Make a round every ten seconds, forever. After a round that fails, the next one tries
        again."""
        while True:
            await self.round()
            await asyncio.sleep(POLL_SECONDS)

    async def round(self) -> bool:
        """Read the cluster's objects, serve the certificate in the Secret, and take steps until
        nothing is left to do. Returns False if the round failed."""
        try:
            for _ in range(MAX_STEPS):
                seen = await self._look()
                self._serve(seen.stored)
                step = self._plan(seen)
                if step is None or not await self._take(step, seen):
                    break
        except (ApiFault, ClockDiffers, UnusableTls) as error:
            fault = _fault(error)
            self._metrics.controller_faults.labels(fault).inc()
            # A conflict is how two replicas notice each other; the next round sees the outcome.
            level = logging.INFO if fault is ControllerFault.conflict else logging.WARNING
            _log.log(level, "certificates: the round is tried again: %s", error)
            return False
        return True

    async def _look(self) -> _Seen:
        # INVARIANT: the configuration is read before the Secret. Another replica writes the Secret
        # first and publishes after. Had we read them the other way, our Secret could be older than
        # the configuration, and `_publish` would put back an old bundle; in this order its
        # `resourceVersion` no longer matches.
        configuration = await self._api.get(self._configuration)
        secret = await self._api.get(self._secret)
        data = (secret or {}).get("data")
        return _Seen(
            Stored.from_secret(data if isinstance(data, dict) else {}), secret, configuration
        )

    def _serve(self, stored: Stored) -> None:
        if stored.leaf is not None and self._serving.use(stored.leaf):
            served = stored.served
            assert served is not None
            _log.info(
                "certificate `%x` is served, valid until %s",
                served.serial_number,
                served.not_valid_after_utc.isoformat(),
            )

    def _plan(self, seen: _Seen) -> Step | None:
        if abs(self._skew) > MAX_SKEW_SECONDS:
            raise ClockDiffers(
                f"this machine's clock is {self._skew:.0f} s ahead of the API server's"
            )
        published = self._publication(seen) if seen.configuration is not None else None
        return next_step(seen.stored, published, self._wanted, self._now())

    def _publication(self, seen: _Seen) -> Published:
        """Return whether all entries of the webhook configuration trust the Secret's bundle of
        authorities, and for how long the newest authority has been trusted there."""
        pem = seen.stored.bundle_pem
        newest = seen.stored.bundle[0].serial_number if seen.stored.bundle else 0
        matches = bool(pem) and not self._unpublished(seen.configuration or {}, pem)
        if not matches:
            # Counted anew if someone reset the configuration meanwhile.
            self._published = None
            return Published(matches=False, settled=None)
        now, name = self._clock.monotonic(), f"{newest:x}"
        if self._published is None or self._published[0] != name:
            self._published = (name, now)
        return Published(matches=True, settled=now - self._published[1])

    def _unpublished(self, configuration: Object, pem: bytes) -> list[int]:
        """Return the indices of those entries of the webhook configuration that belong to this
        webhook and don't trust exactly this bundle."""
        wanted = base64.b64encode(pem).decode()
        return [
            index
            for index, entry in enumerate(configuration.get("webhooks") or [])
            for client in [entry.get("clientConfig") or {}]
            if (client.get("service") or {}).get("name") == self._settings.service
            if client.get("caBundle") != wanted
        ]

    async def _take(self, step: Step, seen: _Seen) -> bool:
        """Take the Lease, and then the step. Returns False if another replica holds the Lease."""
        if not await self._lease.acquire(self._now()):
            return False
        match step:
            case WriteSecret():
                await self._write(step, seen.secret)
            case Publish():
                await self._publish(step, seen.configuration or {})
        await self._lease.release(self._now())
        return True

    async def _write(self, step: WriteSecret, secret: Object | None) -> None:
        # If we die after this write, another replica's next round publishes what is in it. If we
        # die before, the new keys were never used.
        data = step.stored.to_secret()
        if secret is None:
            made = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": {
                    "name": self._settings.secret,
                    "namespace": self._settings.namespace,
                    "labels": {"app.kubernetes.io/part-of": "sluice"},
                },
                "data": data,
            }
            await self._api.create(self._secrets, made)
        else:
            # With the `resourceVersion` that was read: what another replica wrote meanwhile stays.
            await self._api.replace(self._secret, {**secret, "data": data})
        _log.info("certificates: %s", step.reason)

    async def _publish(self, step: Publish, configuration: Object) -> None:
        value = base64.b64encode(step.bundle).decode()
        version = (configuration.get("metadata") or {}).get("resourceVersion")
        patch: list[Object] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        ]
        patch += [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value}
            for index in self._unpublished(configuration, step.bundle)
        ]
        await self._api.patch(self._configuration, patch)
        _log.info("certificates: `%s` trusts the bundle", self._settings.configuration)

    def _note_date(self, date: str) -> None:
        # Without a date that can be read, the last one counts.
        try:
            theirs = parsedate_to_datetime(date)
        except ValueError:
            return
        if theirs.tzinfo is not None:
            self._skew = (self._now() - theirs).total_seconds()

    def _now(self) -> dt.datetime:
        return utc(self._clock.now)


def utc(now: Callable[[], int]) -> dt.datetime:
    """Return the current time of `now`, a clock in microseconds since 1970 UTC, as a `datetime`."""
    return dt.datetime.fromtimestamp(now() / 1_000_000, dt.UTC)


def _fault(error: Exception) -> ControllerFault:
    match error:
        case Conflict():
            return ControllerFault.conflict
        case Denied():
            return ControllerFault.denied
        case ClockDiffers():
            return ControllerFault.clock
        case UnusableTls():
            return ControllerFault.unusable
    return ControllerFault.unreachable
