"""What a fleet of sidecars needs of each part, and which limit it meets first.

    python -m tests.benchmarks.sizing                      the table of deploy/INTERNALS.md
    python -m tests.benchmarks.sizing --lane_batch_us 1500    with another input

A computation of capacity from costs that were measured (`Costs`, each field with the command that
measured it). It is a model: it adds up CPU time and bytes, leaves each part a reserve, and knows no
burst. Nothing here measures anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import ceil

BUSY = 0.6
"""The share of a core, or of a link, that is planned for."""
MB, GIB = 1e6, 2.0**30


@dataclass(frozen=True)
class Costs:
    """CPU in microseconds, of the control API, PostgreSQL and Redis. Where no other command is
    named: `python -m tests.benchmarks.sizing_costs`."""

    report_api: float
    """A status report; a sidecar sends one every 4.5 s."""
    report_postgresql: float
    batch_api: float
    """A batch of records, without its records."""
    batch_postgresql: float
    record_api: float
    """Each record of a batch."""
    record_postgresql: float
    batch_wal: float
    """Bytes of WAL."""
    record_wal: float
    lane_batch_us: float
    """How long a batch keeps its tenant's log, without its records, in microseconds of time. From
    `python -m tests.benchmarks.postgresql append`: 12,118/s in batches of 64, so 5.3 ms each."""
    lane_record_us: float
    """The same for each record: what PostgreSQL takes for it, and its share of the sync."""
    round_api: float
    """A heartbeat of one tenant: query, signature, sending."""
    challenge_api: float
    """Reading one challenge; every process reads all of them."""
    round_redis: float
    """A round's commands, of one process and one tenant."""
    challenge_redis: float
    """Adding a challenge, and one process's reading of it."""
    delivery_redis: float
    """Sending a heartbeat to one sidecar, and its next blocking read."""
    beat_bytes: float
    """A heartbeat on its way to one sidecar, without its nonces."""
    nonce_bytes: float
    client_bytes: float
    """Redis memory of one sidecar's two connections."""


@dataclass(frozen=True)
class Site:
    """What can be bought of each part."""

    postgresql_cores: float = 32
    redis_link: float = 1250
    """MB a second out of one Redis node: 10 Gbit/s."""
    connections: float = 17
    """SLUICE_DATABASE_CONNECTIONS, and one that listens."""
    record_disk: float = 2500
    """Bytes that a record takes in PostgreSQL."""


@dataclass(frozen=True)
class Fleet:
    """`sidecars` that each decide `rate` times a second, shared equally by `tenants`."""

    sidecars: int
    rate: float
    tenants: int


@dataclass(frozen=True)
class Needs:
    """`used` has, for each hard limit, the share of it that is used: above 1 it is exceeded."""

    processes: int
    """For reports and records. Each of them answers every challenge, too."""
    postgresql_cores: float
    wal: float
    redis_cores: float
    redis_memory: float
    redis_out: float
    records: float
    delay: float
    used: dict[str, float]

    @property
    def first(self) -> str:
        return max(self.used, key=lambda name: self.used[name])


REPORT_SECONDS, CHALLENGE_SECONDS = 4.5, 2.625
GATHER, LONGEST_GATHER, PER_REQUEST = (
    0.01,
    0.25,
    0.05,
)  # control_api/policy/publishing/heartbeats.py
LINGER, MOST = 0.2, 512  # sidecar/control/shipper.py
MAX_DELAY = 30.0
"""Seconds after which a sidecar takes a post for lost."""
TOO_MUCH = 10
LOG = "one tenant's log"


def needs(costs: Costs, site: Site, fleet: Fleet) -> Needs:
    """The needs of a fleet, also of one that exceeds a limit."""
    each = fleet.sidecars / fleet.tenants
    records = fleet.sidecars * fleet.rate
    size, delay, lane = _batches(costs, each, fleet.rate)
    batches, reports = records / size, fleet.sidecars / REPORT_SECONDS
    challenges = fleet.sidecars / CHALLENGE_SECONDS
    beats = _beats(challenges, fleet.tenants)
    own = (challenges * costs.challenge_api + beats * costs.round_api) / 1e6
    shared = (
        reports * costs.report_api + batches * costs.batch_api + records * costs.record_api
    ) / 1e6
    processes = max(2, ceil(shared / BUSY))
    deliveries = processes * beats * each
    nonces = processes * challenges * each
    redis_out = (deliveries * costs.beat_bytes + nonces * costs.nonce_bytes) / MB
    postgresql = (
        reports * costs.report_postgresql
        + batches * costs.batch_postgresql
        + records * costs.record_postgresql
    ) / 1e6
    asked = processes * (challenges * costs.challenge_redis + beats * costs.round_redis) / 1e6
    told = deliveries * costs.delivery_redis / 1e6
    return Needs(
        processes=processes,
        postgresql_cores=postgresql / BUSY,
        wal=(batches * costs.batch_wal + records * costs.record_wal) / MB,
        redis_cores=(asked + told) / BUSY,
        redis_memory=fleet.sidecars * costs.client_bytes / GIB,
        redis_out=redis_out,
        records=records,
        delay=delay,
        used={
            LOG: lane,
            "heartbeats: CPU of the Redis node of a tenant": (told / fleet.tenants + asked) / BUSY,
            "heartbeats: network of that node": redis_out / fleet.tenants / site.redis_link / BUSY,
            "heartbeats: CPU of each control API process": own / BUSY,
            "PostgreSQL's cores": postgresql / BUSY / site.postgresql_cores,
        },
    )


def _batches(costs: Costs, sidecars: float, rate: float) -> tuple[float, float, float]:
    """Records in a batch, seconds until a record is in the log, and the share of the tenant's log
    that is used at best: while a batch waits for the log, the sidecar's next one grows."""
    batch, record = costs.lane_batch_us / 1e6, costs.lane_record_us / 1e6
    arriving = sidecars * rate
    best = arriving * (batch / MOST + record) / BUSY
    size = 1 + rate * LINGER
    if arriving / size * (batch + size * record) > BUSY:
        left = BUSY - arriving * record
        size = min(MOST, arriving * batch / left) if left > 0 else MOST
    delay = LINGER + size / rate if size > 1 + rate * LINGER else LINGER
    # A post waits for one batch of each sidecar of the tenant.
    waits = sidecars * (batch + size * record)
    return size, delay, max(best, waits / MAX_DELAY if size > 1 + rate * LINGER else 0.0)


def _beats(challenges: float, tenants: int) -> float:
    """Heartbeats a second of one process, over all tenants."""
    gather = LONGEST_GATHER if challenges * PER_REQUEST > 1 else GATHER
    rounds = 1 / (gather + 1 / challenges)
    return min(challenges, rounds * tenants)


FLEETS = tuple(
    Fleet(sidecars, rate, tenants)
    for sidecars, shared in ((1000, (1,)), (10_000, (1, 10)), (100_000, (1, 100)))
    for tenants in shared
    for rate in (1, 10)
)
HEADINGS = (
    "Sidecars", "Tenants", "Decisions/s each", "Control API processes", "PostgreSQL cores",
    "WAL, disk a day", "Redis cores, memory, out", "Records wait", "First limit, used",
    "Reached at",
)  # fmt: skip


def table(costs: Costs, site: Site, fleets: Iterable[Fleet] = FLEETS) -> str:
    """In Markdown."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(_row(costs, site, each) for each in fleets)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _row(costs: Costs, site: Site, fleet: Fleet) -> tuple[str, ...]:
    found = needs(costs, site, fleet)
    used = found.used[found.first]
    names = (f"{fleet.sidecars:,}", f"{fleet.tenants:,}", f"{fleet.rate:g}")
    share = f"{used:.0%}" if used <= TOO_MUCH else f"more than {TOO_MUCH:.0%}"
    end = (f"{found.first}, {share}", _reached(costs, site, fleet))
    disk = found.records * site.record_disk * 86_400 / 1e9
    return (
        *names,
        f"{found.processes:,} ({found.processes * site.connections:,.0f} connections)",
        f"{found.postgresql_cores:,.1f}",
        f"{found.wal:,.1f} MB/s, {disk:,.0f} GB",
        f"{found.redis_cores:,.1f}, {found.redis_memory:.1f} GiB, {found.redis_out:,.0f} MB/s",
        f"{found.delay:.1f} s" if found.used[LOG] <= 1 else "ever longer",
        *end,
    )


def _reached(costs: Costs, site: Site, fleet: Fleet) -> str:
    """How many sidecars reach the limit, with as many to a tenant."""
    each = fleet.sidecars / fleet.tenants if fleet.tenants > 1 else None
    low, high = 10, 10_000_000
    while high - low > low // 100 + 1:
        middle = (low + high) // 2
        tenants = 1 if each is None else max(1, round(middle / each))
        found = needs(costs, site, replace(fleet, sidecars=middle, tenants=tenants))
        low, high = (low, middle) if max(found.used.values()) > 1 else (middle, high)
    return f"{float(f'{low:.2g}'):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sizing")
    for given in (MEASURED, Site()):
        for field in fields(given):
            value = getattr(given, field.name)
            parser.add_argument(f"--{field.name}", type=float, default=value, help=f"{value:g}")
    asked = vars(parser.parse_args())
    costs = Costs(**{field.name: asked[field.name] for field in fields(Costs)})
    site = Site(**{field.name: asked[field.name] for field in fields(Site)})
    print(table(costs, site))


MEASURED = Costs(
    report_api=238,
    report_postgresql=80,
    batch_api=1780,
    batch_postgresql=1060,
    record_api=66,
    record_postgresql=32,
    batch_wal=1490,
    record_wal=2140,
    lane_batch_us=2700,
    lane_record_us=40,
    round_api=2380,
    challenge_api=17,
    round_redis=293,
    challenge_redis=1.1,
    delivery_redis=28,
    beat_bytes=275,
    nonce_bytes=20,
    client_bytes=60_000,
)
"""Of this project at the revision that this file belongs to."""


if __name__ == "__main__":
    main()
