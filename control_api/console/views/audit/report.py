"""Makes an evidence report by `sluice report`, in a process of its own, from an export in a
temporary folder that is removed in every case.

    export > a file, at most MAX_EXPORT bytes > sluice report > report.html and report.json > a ZIP

Knows no page, and reads no log: the export is given. The verifier is a program apart, which this
service starts and does not import.
"""

import asyncio
import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path

from control_api.analyses.this_program import this_program
from control_api.responses.stream import Stream
from policies.ground.errors import Conflict, TooLarge, Unavailable

MODULE = "control_api.verifier.report"
SECONDS = 60.0
"""How long the export and the report may take together."""
MAX_EXPORT = 256 * 1024 * 1024
"""How many bytes of an export are written."""
MAX_REPORT = 64 * 1024 * 1024
"""How many bytes a report may have."""
NICE = 10
NAMES = ("report.html", "report.json")
_FAILED = 1
"""The exit code if the export does not hold."""
_TOLD = 4000
_PIECE = 1024 * 1024


async def make_report(export: Stream, by: str, name: str, seconds: float = SECONDS) -> Stream:
    """A ZIP of the report on the event or session (`by`) with this id. Raises `Conflict` if the
    export does not hold or can't be proven yet, `TooLarge`, and `Unavailable` if it takes too
    long."""
    with tempfile.TemporaryDirectory(prefix="sluice-report-") as made:
        folder = Path(made)
        try:
            async with asyncio.timeout(seconds):
                await _write(export, folder / "log.ndjson")
                await _run(folder, f"--{by}={name}")
        except TimeoutError:
            raise Unavailable(
                f"the report was not made within {seconds:.0f} s: download the log, and make it "
                "by `sluice report`"
            ) from None
        zipped = await asyncio.to_thread(_zipped, folder)
    return Stream("application/zip", _pieces(zipped), f"evidence-{by}.zip")


async def _write(export: Stream, path: Path) -> None:
    written = 0
    with path.open("wb") as file:
        async with contextlib.aclosing(export.pieces) as pieces:
            async for piece in pieces:
                written += len(piece)
                if written > MAX_EXPORT:
                    raise TooLarge(
                        f"the report needs more than {MAX_EXPORT >> 20} MiB of the log: download "
                        "it, and make the report by `sluice report`"
                    )
                await asyncio.to_thread(file.write, piece)


async def _run(folder: Path, selection: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *this_program(MODULE),
        str(folder / "log.ndjson"),
        selection,
        "-o",
        str(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A Ctrl-C in a terminal is for the service, which then ends this process.
        start_new_session=True,
    )
    try:
        with contextlib.suppress(OSError):  # where a sandbox forbids it, or it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)  # evaluations come first
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return
    told = (out if process.returncode == _FAILED else err)[:_TOLD].decode(errors="replace")
    told = told.replace(f"{folder}/", "").strip()
    if process.returncode == _FAILED:
        raise Conflict("FAILED: the log does not hold, so there is no report", details=told)
    raise Conflict("the report can't be made", details=told)


def _zipped(folder: Path) -> bytes:
    if sum((folder / name).stat().st_size for name in NAMES) > MAX_REPORT:
        raise TooLarge(
            f"the report has more than {MAX_REPORT >> 20} MiB: download the log, and make it by "
            "`sluice report` for a shorter time"
        )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.write(folder / name, name)
    return made.getvalue()


async def _pieces(whole: bytes) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(whole), _PIECE):
        yield whole[begin : begin + _PIECE]
