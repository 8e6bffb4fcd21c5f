"""Cosignatures of real witness processes, and what a checkpoint's level says without them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from control_api.checkpoint_store.location import FileStore
from control_api.checkpoint_store.stored_note import cosigned
from control_api.log.checkpoints import witnesses
from control_api.log.checkpoints.agreement import Level, cosigners, level_of, merged
from control_api.log.checkpoints.witnesses import Cosigner
from control_api.metrics.metrics import WitnessingMetrics
from control_api.security.egress import WitnessAddress, parse_witnesses
from control_api.store.queries import checkpoints
from control_api.store.queries.checkpoints import StoredCheckpoint
from policies.ground.signing import Signer
from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey, cosign, parse
from tests.control_api.log.checkpoints.signing import LOG, SIGNER, grow, maker
from tests.deploy.commands.witness.protocol_client import submit
from tests.deploy.commands.witness.running_witness import WitnessProcess, configure
from tests.support.open_store import TENANT, OpenStore, opened
from tests.support.waiting import until_async

LOG_KEY = VerifierKey(LOG, ED25519, SIGNER.public).text()
LYING = Signer(bytes(32))


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], WitnessProcess]]:
    running: dict[str, WitnessProcess] = {}

    def start(name: str) -> WitnessProcess:
        config = configure(
            tmp_path_factory.mktemp(name), name=name, logs=[{"origin": LOG, "key": LOG_KEY}]
        )
        running[name] = WitnessProcess(config)
        return running[name]

    yield start
    for each in running.values():
        each.kill()


def address(witness: WitnessProcess) -> WitnessAddress:
    return WitnessAddress.parse(f"{witness.key}@http://127.0.0.1:{witness.port}")


class Asking:
    """A cosigner at work, and its metrics."""

    def __init__(self, world: OpenStore, notes: Path, *addresses: WitnessAddress) -> None:
        self.registry = CollectorRegistry()
        self.addresses = addresses

        async def publics() -> list[bytes]:
            return [SIGNER.public]

        metrics = WitnessingMetrics(self.registry)
        self.cosigner = Cosigner(world.store, FileStore(notes), addresses, publics, metrics)
        self._world = world

    @asynccontextmanager
    async def in_background(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.cosigner.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def count(self, witness: WitnessAddress, outcome: str) -> float:
        labels = {"witness": witness.key.name, "outcome": outcome}
        return self.registry.get_sample_value("sluice_witness_requests_total", labels) or 0

    def behind(self, witness: WitnessAddress) -> float:
        labels = {"witness": witness.key.name}
        return self.registry.get_sample_value("sluice_witness_behind_seconds", labels) or 0

    async def latest(self) -> StoredCheckpoint:
        async with self._world.store.reading(TENANT) as connection:
            found = await checkpoints.latest(connection, TENANT)
        assert found is not None
        return found

    async def until_counted(self, witness: WitnessAddress, outcome: str, times: int = 1) -> None:
        await until_async(
            f"{witness.key.name} has {outcome}", lambda: self.count(witness, outcome) >= times
        )

    async def level(self, quorum: int) -> tuple[Level, int]:
        row = await self.latest()
        keys = [each.key for each in self.addresses]
        return level_of(row.note, row.origin, [SIGNER.public], keys, quorum)


@pytest.mark.deep(stands_in="test_the_store_has_a_cosignature_before_the_database")
async def test_two_witnesses_cosign_what_grows_and_a_hung_one_delays_nothing(
    world: OpenStore, notes: Path, witness: Callable[[str], WitnessProcess]
) -> None:
    kind = uuid.uuid4().hex  # the same log on the other database is another one
    one, two = address(witness(f"one-{kind}")), address(witness(f"two-{kind}"))
    async with _hung() as hung:
        asking, signing = Asking(world, notes, one, two, hung), maker(world, notes)
        async with asking.in_background():
            for round_ in (1, 2, 3):
                await grow(world, 7)
                made = await signing.make(TENANT)
                assert made is not None
                asking.cosigner.offer(TENANT, made)
                for each in (one, two):
                    await asking.until_counted(each, "cosigned", round_)
                row = await asking.latest()
                assert (row.size, row.witnesses) == (7 * round_, 2)
                assert await asking.level(2) == (Level.witnessed, 2)
                assert await asking.level(3) == (Level.signed, 2)
            assert asking.behind(hung) > asking.behind(one) == 0
            # A second replica knows nothing of all this: it learns the sizes from the witnesses.
            await grow(world, 5)
            made = await signing.make(TENANT)
            assert made is not None
            other = Asking(world, notes, one, two)
            async with other.in_background():
                other.cosigner.offer(TENANT, made)
                asking.cosigner.offer(TENANT, made)
                for each in (one, two):
                    await other.until_counted(each, "cosigned")
                    await asking.until_counted(each, "cosigned", 4)
            row = await asking.latest()
            assert (row.witnesses, row.note.count("— ")) == (2, 3)
            # What was cosigned is still the log's own checkpoint.
            assert await signing.make(TENANT) == row
    # With the database gone, the store still shows the level.
    stored, keys = FileStore(notes).latest(TENANT), [one.key, two.key]
    assert stored is not None
    note = cosigned(FileStore(notes), TENANT, stored.note)
    assert level_of(note, LOG, [SIGNER.public], keys, 2) == (Level.witnessed, 2)
    assert cosigners(note, keys) == sorted(key.name for key in keys)
    assert cosigners(note, keys[:1]) == [keys[0].name]
    assert cosigners("no note", keys) == []
    # And a database that has lost its checkpoints gets them back with their cosignatures.
    await world.rows("DELETE FROM checkpoints")
    restored = await maker(world, notes).make(TENANT)
    assert restored is not None
    assert (restored.size, restored.witnesses) == (row.size, 2)
    assert level_of(restored.note, LOG, [SIGNER.public], keys, 2) == (Level.witnessed, 2)


async def test_a_log_rewritten_with_its_key_is_refused_and_its_level_says_so(
    tmp_path: Path, notes: Path, witness: Callable[[str], WitnessProcess]
) -> None:
    watching = address(witness("watching"))
    async with opened(f"sqlite+aiosqlite:///{tmp_path / 'first.db'}") as world:
        await grow(world, 9)
        made = await maker(world, notes).make(TENANT)
        assert made is not None
        asking = Asking(world, notes, watching)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, made)
            await asking.until_counted(watching, "cosigned")
    # The insider makes the whole log anew, of the same name and with the same key, and has emptied
    # the checkpoint store too.
    async with opened(f"sqlite+aiosqlite:///{tmp_path / 'second.db'}") as world:
        asking, signing = Asking(world, notes, watching), maker(world, tmp_path / "emptied")
        async with asking.in_background():
            # Of fewer entries, of as many with another root, and of more.
            for count, outcome, times in (
                (5, "ahead", 1),
                (4, "inconsistent", 1),
                (6, "inconsistent", 2),
            ):
                await grow(world, count)
                made = await signing.make(TENANT)
                assert made is not None
                asking.cosigner.offer(TENANT, made)
                await asking.until_counted(watching, outcome, times)
                assert (made.origin, await asking.level(1)) == (LOG, (Level.signed, 0))


@pytest.mark.deep(stands_in="test_a_witness_that_did_not_answer_is_tried_again")
async def test_a_witness_that_starts_late_is_tried_again(
    tmp_path: Path, notes: Path, witness: Callable[[str], WitnessProcess]
) -> None:
    late = witness("late")
    key, port = late.key, late.port
    late.kill()
    away = WitnessAddress.parse(f"{key}@http://127.0.0.1:{port}")
    async with opened(f"sqlite+aiosqlite:///{tmp_path / 'late.db'}") as world:
        await grow(world, 3)
        made = await maker(world, notes).make(TENANT)
        assert made is not None
        asking = Asking(world, notes, away)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, made)
            await asking.until_counted(away, "unreachable")
            assert await asking.level(1) == (Level.signed, 0)
            config = next(tmp_path.parent.glob("late*/witness.yaml"))
            text = config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}")
            config.write_text(text)
            with WitnessProcess(config) as back:
                assert back.key == key
                await asking.until_counted(away, "cosigned")
                assert submit(port, b"").status == 400
            assert await asking.level(1) == (Level.witnessed, 1)


async def test_the_store_has_a_cosignature_before_the_database(
    tmp_path: Path, notes: Path, witness: Callable[[str], WitnessProcess]
) -> None:
    watching = address(witness("between"))
    async with (
        opened(f"sqlite+aiosqlite:///{tmp_path / 'between.db'}") as world,
        _hung() as hung,
    ):
        await grow(world, 3)
        made = await maker(world, notes).make(TENANT)
        assert made is not None
        full = notes / TENANT / "cosigned"
        full.write_text("no folder can be made here")
        # One that hangs is asked first, and delays nothing.
        asking = Asking(world, notes, hung, watching)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, made)
            await asking.until_counted(watching, "failed")
            assert await asking.level(1) == (Level.signed, 0)
            full.unlink()
            await asking.until_counted(watching, "cosigned")
            assert await asking.level(1) == (Level.witnessed, 1)
        # As after a kill between the two: the witness is asked again, the store keeps what it has.
        stored = FileStore(notes).cosigned(TENANT)
        await world.rows("UPDATE checkpoints SET note = :note, witnesses = 0", note=made.note)
        asking = Asking(world, notes, watching)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, made)
            await asking.until_counted(watching, "cosigned")
            assert await asking.level(1) == (Level.witnessed, 1)
            assert FileStore(notes).cosigned(TENANT) == stored
            await grow(world, 2)
            grown = await maker(world, notes).make(TENANT)
            assert grown is not None
            asking.cosigner.offer(TENANT, grown)
            await asking.until_counted(watching, "cosigned", 2)
            assert ((await asking.latest()).size, asking.behind(watching)) == (5, 0)
            assert await asking.level(2) == (Level.signed, 1)
        # What another witness has cosigned stays beside it, and is not asked for again.
        line = cosign(parse(grown.note).text, hung.key.name, LYING, 1_767_225_600)
        note, _ = merged(grown.note, (line,), [hung.key])
        await world.rows("UPDATE checkpoints SET note = :note WHERE size = 5", note=note)
        asking = Asking(world, notes, hung, watching)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, await asking.latest())
            await asking.until_counted(watching, "cosigned")
            assert await asking.level(2) == (Level.witnessed, 2)
            assert asking.behind(hung) == 0


async def test_a_witness_that_did_not_answer_is_tried_again(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnesses, "FIRST_PAUSE", 0.01)
    async with (
        opened(f"sqlite+aiosqlite:///{tmp_path / 'again.db'}") as world,
        _answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n") as failing,
    ):
        await grow(world, 1)
        made = await maker(world, notes).make(TENANT)
        assert made is not None
        asking = Asking(world, notes, failing)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, made)
            await asking.until_counted(failing, "unreachable", 3)
        assert asking.behind(failing) > 0


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "unusable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "unusable"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "unusable",
        ),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\n+5\n", "unusable"),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n5\n", "ahead"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99999, "unusable"),
        (b"not HTTP at all", "unreachable"),
    ],
)
async def test_no_answer_of_a_witness_harms_a_checkpoint(
    tmp_path: Path, notes: Path, answer: bytes, outcome: str
) -> None:
    async with (
        opened(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}") as world,
        _answering(answer) as lying,
    ):
        await grow(world, 3)
        made = await maker(world, notes).make(TENANT)
        assert made is not None
        asking = Asking(world, notes, lying)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, made)
            await asking.until_counted(lying, outcome)
        assert await asking.latest() == made


def test_invalid_addresses_of_witnesses_are_refused() -> None:
    key = VerifierKey("w.example/1", COSIGNATURE, Signer(bytes(32)).public).text()
    for url in ("https://w.example", "https://w.example:8443/sluice/", "http://[::1]:8720"):
        (found,) = parse_witnesses(f" {key}@{url} ,")
        assert found.url == url.rstrip("/")
    for text in (
        key,
        f"{key}@http://w.example",
        f"{key}@ftp://w.example",
        f"{key}@https://user:secret@w.example",
        f"{key}@https://w.example?key=1",
        f"{key}@https://w.example:99999",
        f"{LOG_KEY}@https://w.example",
        f"{key}@https://a.example,{key}@https://b.example",
        "nothing@https://w.example",
    ):
        with pytest.raises(ValueError, match=r"."):
            parse_witnesses(text)


@asynccontextmanager
async def _hung() -> AsyncIterator[WitnessAddress]:
    async with _answering(b"") as address_:
        yield address_


@asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[WitnessAddress]:
    """A witness that answers every request with the same bytes; with none, it hangs."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        if not answer:
            await reader.read(-1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    key = VerifierKey("lying.example", COSIGNATURE, LYING.public)
    async with server:
        yield WitnessAddress(key, f"http://127.0.0.1:{port}")
