"""What the witness remembers: through kills, restarts, damage, a second process, a full disk."""

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

from deploy.commands.witness.configuration import load
from deploy.commands.witness.serve import prepared
from policies.ground.clock import Clock
from policies.ground.process.secret_file import UnusableFile
from tests.deploy.commands.witness.protocol_client import Log, cosigned_at, submit
from tests.deploy.commands.witness.running_witness import DYING, WitnessProcess, configure

CLOCK = Clock(lambda: 1_700_000_000_000_000, lambda: 0.0)


@pytest.mark.deep(stands_in="test_a_witness_does_not_start_with_the_state_of_another")
@pytest.mark.parametrize(
    ("step", "remembered"),
    [
        ("before-writing", 3),
        ("before-renaming", 3),
        ("after-renaming", 7),
        ("before-answering", 7),
    ],
)
def test_a_witness_killed_at_a_step_signs_no_second_version(
    tmp_path: Path, step: str, remembered: int
) -> None:
    log = Log("killed.example", 9)
    config = configure(tmp_path, log)
    with WitnessProcess(config) as first:
        assert submit(first.port, log.body(0, 3)).status == 200
        first.kill()
    with WitnessProcess(config, DYING, step) as dying:
        with pytest.raises((HTTPException, ConnectionError)):
            submit(dying.port, log.body(3, 7))
        assert dying.process.wait(20) == -9
    with WitnessProcess(config) as again:
        assert again.key == first.key
        # What was only written binds it like what was answered, and is signed if asked for.
        rewritten = log.rewritten(9)
        assert submit(again.port, rewritten.body(0, 9)).body == f"{remembered}\n".encode()
        assert submit(again.port, rewritten.body(remembered, 9)).status == 422
        answer = submit(again.port, log.body(remembered, 7))
        cosigned_at(log.text(7), answer.body, again.key)
        assert again.end()[0] == 0


@pytest.mark.deep(stands_in="test_nothing_is_signed_while_the_state_can_not_be_written")
def test_only_one_of_many_concurrent_versions_is_signed(tmp_path: Path) -> None:
    log = Log("raced.example", 30)
    with WitnessProcess(configure(tmp_path, log)) as witness, ThreadPoolExecutor(8) as pool:
        versions = [log, *(log.rewritten(30 - n) for n in range(7))]
        bodies = [each.body(0, len(each.leaves)) for each in versions]
        answers = list(pool.map(lambda body: submit(witness.port, body).status, bodies))
    assert sorted(answers) == [200, *[409] * 7]


@pytest.mark.deep(stands_in="test_nothing_is_signed_while_the_state_can_not_be_written")
def test_a_witness_s_files_are_private_and_in_use_only_once(tmp_path: Path) -> None:
    log = Log("private.example", 3)
    config = configure(tmp_path, log)
    with WitnessProcess(config) as witness:
        assert submit(witness.port, log.body(0, 3)).status == 200
        command = [sys.executable, "-m", "deploy.commands.witness", "--config", str(config)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert (second.returncode, "in use by another witness" in second.stderr) == (2, True)
        # The same key with another memory would be as bad.
        assert "in use by another witness" in _refusal(configure(tmp_path, log, state="another"))
        paths = [tmp_path / "witness.key", *(tmp_path / "state").iterdir()]
        assert [stat.S_IMODE(each.stat().st_mode) for each in paths] == [0o600] * 3
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_a_witness_does_not_start_with_the_state_of_another(tmp_path: Path) -> None:
    log = Log("damaged.example", 6)
    config = configure(tmp_path, log)
    with WitnessProcess(config) as witness:
        assert submit(witness.port, log.body(0, 3)).status == 200
        (note,) = (tmp_path / "state").glob("*.note")
        before = note.stat().st_ino
        assert submit(witness.port, log.body(3, 5)).status == 200
        # A note is replaced by a whole one, and never written into.
        assert note.stat().st_ino != before
        witness.kill()
    with WitnessProcess(configure(tmp_path, log, Log("two.example", 3))) as again:
        (warning,) = [each["message"] for each in again.log if each["level"] == "warning"]
        assert "`two.example` is known: its next begins it" in warning
        # What it signed before it was killed binds it.
        assert submit(again.port, log.rewritten(3).body(0, 3)).body == b"5\n"
        # And nothing is answered before it is written.
        away = note.parent.rename(tmp_path / "away")
        assert submit(again.port, log.body(5, 6)).status == 503
        away.rename(note.parent)
    configure(tmp_path, log)
    key, content = tmp_path / "witness.key", note.read_bytes()
    seed = key.read_bytes()
    for damaged in (b"", content[:-5], b"\xff" + content):
        note.write_bytes(damaged)
        assert "is damaged" in _refusal(config)
    note.write_bytes(content.replace(b"\n5\n", b"\n2\n"))
    assert "was exchanged" in _refusal(config)
    note.write_bytes(content)
    moved = note.rename(note.with_name("0" * 64 + ".note"))
    assert "the note of another log" in _refusal(config)
    moved.rename(note)
    key.unlink()
    assert "bring the key back" in _refusal(config)
    assert not key.exists()
    key.touch(0o600)
    assert "is not the base64 of 32 bytes" in _refusal(config)
    key.write_bytes(seed)
    assert "was exchanged" in _refusal(configure(tmp_path, log, name="renamed.example"))
    key.chmod(0o644)
    assert "readable by other users" in _refusal(configure(tmp_path, log))


def test_nothing_is_signed_while_the_state_can_not_be_written(tmp_path: Path) -> None:
    log, raced = Log("unwritable.example", 9), Log("raced.example", 30)
    with WitnessProcess(configure(tmp_path, log, raced)) as witness, ThreadPoolExecutor(8) as pool:
        # Of several versions at once, one is signed.
        versions = [raced, *(raced.rewritten(30 - n) for n in range(7))]
        bodies = [each.body(0, len(each.leaves)) for each in versions]
        answers = list(pool.map(lambda body: submit(witness.port, body).status, bodies))
        assert sorted(answers) == [200, *[409] * 7]
        assert submit(witness.port, log.body(0, 3)).status == 200
        state = tmp_path / "state"
        # The directory is gone, as with a disk that was unmounted.
        away = state.rename(tmp_path / "away")
        answer = submit(witness.port, log.body(3, 5))
        assert (answer.status, b"can't be written" in answer.body) == (503, True)
        away.rename(state)
        # It knows what it signed, even if its file has vanished meanwhile.
        for each in state.glob("*.note"):
            each.unlink()
        assert submit(witness.port, log.rewritten(9).body(0, 9)).body == b"3\n"
        assert submit(witness.port, log.body(3, 5)).status == 200
        # Its files are its own: for no other user, and for no second witness.
        paths = [tmp_path / "witness.key", *state.iterdir()]
        assert {stat.S_IMODE(each.stat().st_mode) for each in paths} == {0o600}
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert "in use by another witness" in _refusal(configure(tmp_path, log, state="another"))
        # A rewritten log is logged with the note that proves it.
        forged = log.rewritten(9)
        assert submit(witness.port, forged.body(5, 9)).status == 422
        _, logged = witness.end()
    assert forged.note(9).splitlines()[2] in logged


@pytest.mark.deep(stands_in="test_a_witness_does_not_start_with_the_state_of_another")
def test_a_warning_names_the_logs_whose_next_checkpoint_begins_them(tmp_path: Path) -> None:
    logs = [Log("one.example", 3), Log("two.example", 3)]
    config = configure(tmp_path, *logs)
    with WitnessProcess(config) as first:
        assert submit(first.port, logs[0].body(0, 3)).status == 200
        first.end()
    with WitnessProcess(config) as again:
        (warning,) = [each["message"] for each in again.log if each["level"] == "warning"]
    assert "`two.example` is known: its next begins it" in warning


@pytest.mark.deep(stands_in="test_nothing_is_signed_while_the_state_can_not_be_written")
def test_a_rewritten_log_is_logged_with_the_note_that_proves_it(tmp_path: Path) -> None:
    log = Log("caught.example", 9)
    with WitnessProcess(configure(tmp_path, log)) as witness:
        assert submit(witness.port, log.body(0, 5)).status == 200
        forged = log.rewritten(9)
        assert submit(witness.port, forged.body(5, 9)).status == 422
        _, logged = witness.end()
    assert forged.note(9).splitlines()[2] in logged


def _refusal(config: Path) -> str:
    """Why a witness with this configuration does not start."""
    with pytest.raises(UnusableFile) as caught, prepared(load(config), CLOCK):
        pass
    return str(caught.value)
