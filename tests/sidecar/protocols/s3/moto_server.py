"""A real S3 server: moto's, which keeps buckets as S3 does, and doesn't verify signatures."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import until


@contextmanager
def running_moto(log: Path) -> Iterator[int]:
    port = free_port()
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            with suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return True

        until("moto answers", answers, despite=OSError)
        yield port
    finally:
        process.terminate()
        process.wait(60)
