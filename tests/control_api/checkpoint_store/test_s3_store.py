"""Notes in a bucket of a real S3 server: conditional writes, the latest first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from control_api.checkpoint_store.location import StoreLocation, open_store
from control_api.checkpoint_store.s3_store import S3Store
from control_api.checkpoint_store.stored_note import CheckpointStoreFault, CosignedNote, StoredNote
from tests.sidecar.protocols.s3.moto_server import running_moto

botocore = pytest.importorskip("botocore.session")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_moto(tmp_path_factory.mktemp("moto") / "log") as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def aws(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator sets for botocore."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def bucket(name: str) -> str:
    botocore.Session().create_client("s3").create_bucket(Bucket=name)
    return name


def test_the_latest_note_comes_first() -> None:
    store = open_store(StoreLocation.parse(f"s3://{bucket('latest')}/sluice/notes"))
    assert store.latest("acme") is None
    assert store.cosigned("acme") == []
    store.put_cosigned("acme", CosignedNote("0a0b0c0d", 0, 8, "log\n8\n"))
    assert store.latest("acme") is None
    for number in range(1, 13):
        assert store.put("acme", number, f"log\n{number}\n")
    assert not store.put("acme", 12, "log\nagain\n")
    assert store.latest("acme") == StoredNote(12, "log\n12\n")
    assert [each.number for each in store.notes("acme")] == list(range(12, 0, -1))
    assert store.put("ten_Ä/..", 1, "other\n1\n")
    assert store.tenants() == ["acme", "ten_Ä/.."]
    # Each witness has its latest cosigned note, beside the log's own.
    for incarnation, size in ((0, 9), (0, 10), (1, 4), (1, 3)):
        note = f"log#{incarnation}\n{size}\n"
        store.put_cosigned("acme", CosignedNote("0a0b0c0d", incarnation, size, note))
    store.put_cosigned("acme", CosignedNote("0a0b0c0d", 1, 4, "log#1\nagain\n"))
    store.put_cosigned("acme", CosignedNote("ffffffff", 0, 9, "log\n9\n"))
    assert store.cosigned("acme") == ["log#1\n4\n", "log\n9\n"]
    assert store.latest("acme") == StoredNote(12, "log\n12\n")
    # Of several writers at once, one is accepted.
    ready = threading.Barrier(4)

    def write(at: int) -> bool:
        ready.wait()
        return store.put("acme", 13, f"log\n{at}\n")

    with ThreadPoolExecutor(4) as writers:
        accepted = list(writers.map(write, range(4)))
    assert accepted.count(True) == 1
    assert store.latest("acme") == StoredNote(13, f"log\n{accepted.index(True)}\n")
    # Another prefix of the same bucket is another store.
    assert open_store(StoreLocation.parse("s3://latest/sluice")).latest("acme") is None


@pytest.mark.deep(stands_in="test_the_latest_note_comes_first")
def test_each_witness_has_its_latest_cosigned_note() -> None:
    store = open_store(StoreLocation.parse(f"s3://{bucket('cosigned')}/notes"))
    assert store.cosigned("acme") == []
    for incarnation, size in ((0, 9), (0, 10), (1, 4), (1, 3)):
        note = f"log#{incarnation}\n{size}\n"
        store.put_cosigned("acme", CosignedNote("0a0b0c0d", incarnation, size, note))
    assert store.latest("acme") is None
    store.put_cosigned("acme", CosignedNote("0a0b0c0d", 1, 4, "log#1\nagain\n"))
    store.put_cosigned("acme", CosignedNote("ffffffff", 0, 9, "log\n9\n"))
    assert store.cosigned("acme") == ["log#1\n4\n", "log\n9\n"]
    assert store.put("acme", 1, "log\n9\n")
    assert store.latest("acme") == StoredNote(1, "log\n9\n")
    assert list(store.notes("acme")) == [StoredNote(1, "log\n9\n")]
    assert store.tenants() == ["acme"]


@pytest.mark.deep(stands_in="test_the_latest_note_comes_first")
def test_only_one_of_several_writers_is_accepted() -> None:
    name, accepted = bucket("writers"), []
    ready = threading.Barrier(4)

    def write(at: int) -> None:
        store = S3Store(name, "")
        ready.wait()
        if store.put("acme", 1, f"log\n{at}\n"):
            accepted.append(at)

    threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(accepted) == 1
    assert S3Store(name, "").latest("acme") == StoredNote(1, f"log\n{accepted[0]}\n")


def test_a_missing_bucket_is_a_fault() -> None:
    store = S3Store("no-such-bucket", "notes")
    for ask in (
        lambda: store.latest("acme"),
        lambda: store.put("acme", 1, "log\n"),
        lambda: list(store.notes("acme")),
        store.tenants,
    ):
        with pytest.raises(CheckpointStoreFault, match="no-such-bucket"):
            ask()


class Careless(BaseHTTPRequestHandler):
    """A server that stores every object, whatever the condition says."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_server_that_ignores_conditions_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(CheckpointStoreFault, match="ignores `If-None-Match`"):
            S3Store("careless", "notes").put("acme", 1, "log\n")
        server.shutdown()


@pytest.mark.parametrize(
    "text",
    [
        "checkpoints",
        "file://checkpoints",
        "file:///",
        "s3://",
        "s3://UPPER/x",
        "s3://bucket/a//b",
        "s3://bucket/x?region=eu",
        "https://example.org/notes",
    ],
)
def test_an_invalid_location_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        StoreLocation.parse(text)


def test_a_location_is_shown_as_it_was_set() -> None:
    for text in ("file:///var/lib/notes", "s3://bucket/some/prefix", "s3://bucket"):
        assert str(StoreLocation.parse(text)) == text
    assert StoreLocation.parse("file:///a%20b").directory == Path("/a b")
