"""Stands before `curl` when a test runs the README's commands: writes down what is asked, and lets
the real one ask it, or asks itself where none is installed. A status of 400 or more is a failure.

    CURL_REAL=<the real one, or empty> CURL_LOG=<file of lines `METHOD URL STATUS`>
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request


def main(arguments: list[str]) -> int:
    method, url, headers, body = "", "", {}, None
    rest = iter(arguments)
    for each in rest:
        if each == "-X":
            method = next(rest)
        elif each == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif each == "--json":
            body = next(rest).encode()
        elif each == "--fail":
            pass  # it fails without
        elif each.startswith("http://127.0.0.1:"):
            url = each
        else:
            sys.exit(f"the README's commands use no `{each}`")
    method = method or ("GET" if body is None else "POST")
    status, answer = ask(arguments, method, url, headers, body)
    with open(os.environ["CURL_LOG"], "a", encoding="utf-8") as file:
        file.write(f"{method} {url} {status}\n")
    sys.stdout.write(answer)
    return 0 if status < 400 else 22


def ask(
    arguments: list[str], method: str, url: str, headers: dict[str, str], body: bytes | None
) -> tuple[int, str]:
    if curl := os.environ["CURL_REAL"]:
        command = [curl, "-sS", "-w", "\n%{http_code}", *arguments]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        answer, _, status = told.rpartition("\n")
        return int(status), answer
    if body is not None:
        headers = {"Content-Type": "application/json"} | headers
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answered:
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
