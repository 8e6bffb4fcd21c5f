"""PyArrow's S3 file system, which Ray, Polars and Arrow's data sets use, with the sidecar between
it and an S3 server. Its client is AWS's SDK for C++."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests import servers
from tests.sidecar.protocols.s3.front import S3Front, text

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/s3/test_sdks.py::test_requests_of_the_sdk_for_cpp_arrive_with_their_headers"
)

PROGRAM = """
import sys
import pyarrow
import pyarrow.parquet
from pyarrow import fs

port, bucket = sys.argv[1:]
s3 = fs.S3FileSystem(
    access_key="AKIAAGENT", secret_key="none", scheme="http",
    endpoint_override=f"127.0.0.1:{port}", region="us-east-1",
)
print(sorted(each.path for each in s3.get_file_info(fs.FileSelector(f"{bucket}/open"))))
print(s3.get_file_info(f"{bucket}/open/a.txt").size)
with s3.open_input_file(f"{bucket}/open/a.txt") as file:
    print(file.read().decode())
with s3.open_output_stream(f"{bucket}/new/large") as file:
    for _ in range(12):
        file.write(bytes(1 << 20))
s3.copy_file(f"{bucket}/open/a.txt", f"{bucket}/new/copy")
s3.move(f"{bucket}/new/copy", f"{bucket}/new/moved")
s3.delete_file(f"{bucket}/new/moved")
s3.create_dir(f"{bucket}/new/folder")
table = pyarrow.table({"n": list(range(1000))})
pyarrow.parquet.write_table(table, f"{bucket}/new/folder/table.parquet", filesystem=s3)
print(pyarrow.parquet.read_table(f"{bucket}/new/folder/table.parquet", filesystem=s3).num_rows)
s3.delete_dir_contents(f"{bucket}/new/folder")
try:
    s3.open_input_file(f"{bucket}/shut/s.txt").read()
except OSError as error:
    print(error)
"""


async def test_pyarrow_lists_reads_writes_and_deletes(writing: S3Front) -> None:
    pyarrow = servers.need("pyarrow")
    environment = {**os.environ, "PYTHONPATH": str(pyarrow.parent), "ARROW_S3_LOG_LEVEL": "OFF"}
    command = [sys.executable, "-c", PROGRAM, str(writing.port), writing.bucket]
    ran = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    listed, size, read, rows, refused = ran.stdout.split("\n", 4)
    below = f"{writing.bucket}/open"
    assert listed == str([f"{below}/a.txt", f"{below}/b.txt", f"{below}/deep"])
    assert (size, read, rows) == ("18", "text of open/a.txt", "1000")
    assert "ACCESS_DENIED" in refused
    large = await asyncio.to_thread(
        writing.direct.get_object, Bucket=writing.bucket, Key="new/large"
    )
    assert text(large) == bytes(12 << 20)
