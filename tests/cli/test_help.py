"""What the command line says about itself."""

from __future__ import annotations

import pytest

from perdure.cli import main
from perdure.cli.chat.orders import HELP

COMMANDS = (
    *("dev", "worker", "setup", "sweep", "replay", "upgrade"),
    *("chat", "submit", "ask", "result"),
    *("interrupt", "resume", "cancel", "steer", "inject", "pause", "unpause", "close"),
    *("approvals", "approve", "deny", "respond", "uncertain", "reconcile"),
    *("clear", "compact", "fork", "export", "import", "forget"),
    *("turn", "state", "view", "transcript", "sessions"),
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, command, "--help")
    assert (code, err) == (0, "")
    examples = out.partition("Examples")[2]
    assert f"perdure {command}" in examples


def test_the_overview_names_each_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"│ {command} " in out for command in COMMANDS)
    assert "4  the turn did not complete" in out


def test_help_on_a_pipe_has_no_control_codes_whatever_the_environment_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.FORCE_TERMINAL", None)
    _, out, _ = run(capsys, "ask", "--help")
    assert "\x1b" not in out


def test_the_help_of_a_conversation_fits_a_terminal() -> None:
    assert max(map(len, HELP.splitlines())) <= 80


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("perdure 0.")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ask"], "TEXT"),
        (["nonsense"], "nonsense"),
        (["ask", "hi", "-a", "support"], "--session (or PERDURE_SESSION)"),
        (["ask", "hi", "-s", "s"], "--agent (or PERDURE_AGENT)"),
        (["ask", "hi", "-a", "\ud800", "-s", "s"], "Unicode"),
        (["ask", "hi", "-a", "support", "-s", "s", "--on-busy", "explode"], "explode"),
        (["ask", "hi", "-a", "support", "-s", "s", "--attribute", "novalue"], "KEY=VALUE"),
        (["interrupt", "-a", "support", "-s", "s", "--partial", "some"], "some"),
        (["submit", "hi", "-a", "support", "-s", "s", "--after-failure", "explode"], "explode"),
        (["chat", "-a", "support", "-s", "s", "--while-busy", "dance"], "dance"),
        (["resume", "t-1", "-a", "support", "-s", "s", "--timeout", "1"], "--timeout goes with --wait"),
        (["approve", "r-1", "-a", "support", "-s", "s", "--timeout", "1"], "--timeout goes with --wait"),
        (["replay"], "--from-server"),
        (["replay", "nowhere", "--from-server"], "--from-server"),
        (["replay", "nowhere"], "nowhere"),
        (["forget"], "--anonymous"),
        (["forget", "-u", " "], "--anonymous"),
        (["forget", "-u", "alice", "--anonymous"], "--anonymous"),
        (["worker", "tests.cli.sample:app", "--build-id", "1"], "PERDURE_DEPLOYMENT or give --deployment"),
        (["worker", "tests.cli.sample:app", "--deployment", "a.b", "--build-id", "1"], "letters, digits"),
        (["upgrade", "--rate", "0"], "--rate"),
        (["worker", "no_colon"], "MODULE:APP"),
        (["worker", "no_such_module:app"], "no_such_module"),
        (["worker", "tests.cli.sample:not_an_app"], "not an App"),
        (["worker", "tests.cli.broken_sample:app"], "KeyError: 'missing'"),
        (["sweep", "--older-than", "soon"], "90m, 12h, 7d"),
        (["sweep", "--older-than", "5m"], "at least 1h"),
        (["dev", "tests.cli.sample:app", "--port", "0"], "--port"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PERDURE_AGENT", "PERDURE_SESSION"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, ""), err
    assert reason in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


def test_a_setting_that_can_not_be_used_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_STORAGE_THRESHOLD", "much")
    code, _, err = run(capsys, "view", "-a", "support", "-s", "s")
    assert code == 2
    assert "PERDURE_STORAGE_THRESHOLD" in err


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "replay", "--debug")
    assert "Traceback" in err
