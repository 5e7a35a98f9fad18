"""The names that programs outside this repository are written against. Taking one away breaks them."""

from __future__ import annotations

from importlib import import_module

import pytest

import perdure
from perdure import errors

AGENTS = (
    *("Agent", "App", "Effect", "Outcome", "RuntimeContext", "ToolContext", "ToolError", "ToolGroup", "ToolOutput"),
    *("Verdict", "tool"),
)
MODELS = (
    *("Delta", "Model", "ModelError", "ModelRequest", "ModelResponse", "OpenAIChatModel", "ToolCall", "ToolSpec"),
    "Usage",
)
SESSIONS = (
    *(
        "CloseReceipt",
        "ForgetReceipt",
        "Interaction",
        "KnownSession",
        "InterruptReceipt",
        "Operation",
        "Receipt",
        "SessionHandle",
    ),
    *("SessionInfo", "SessionKey", "SessionView", "Sessions", "SteerReceipt", "TranscriptEntry", "TurnError"),
    *("TurnResult", "TurnStatus", "TurnView"),
)
VALUES = (
    *("AgentState", "DataBlock", "Message", "PermissionContext", "PermissionMode", "PermissionRule"),
    *("PlanModeContext", "Requirement", "RequirementDecision", "Scope", "Task", "TextBlock", "ThinkingBlock"),
    *("ToolContextState", "ToolResultBlock", "ToolUseBlock", "Verification"),
)
ERRORS = (
    *(
        "ArchiveUnavailable",
        "ConfigurationError",
        "ContextTooLarge",
        "InteractionNotFound",
        "InvalidCommand",
        "InvalidSessionKey",
        "NotResumable",
        "NotSteerable",
    ),
    *("PerdureError", "QueueFull", "RollbackRefused", "RunConflict", "ServerUnavailable", "SessionBusy"),
    *("SessionClosed", "SessionExists", "SessionNotFound", "SetupRequired", "StaleRevision", "StaleRun"),
    *("TurnConflict", "TurnNotFound", "UncertainOperations"),
)
CHANGES = (
    *("AddRule", "BeginTask", "DecideRequirement", "InvalidateSubject", "ProposeRequirement", "RecordVerification"),
    *("RemoveRule", "ReplaceTasks", "SetActivatedGroups", "SetContext", "SetPermissionMode", "SetPlanMode"),
    *("SetSubjectVersion", "SetSummary"),
)
TESTING = ("Reply", "ScriptedModel", "record_history", "replay", "serve")


@pytest.mark.parametrize("name", sorted({*AGENTS, *MODELS, *SESSIONS, *VALUES}))
def test_a_name_of_the_public_interface_is_importable_from_the_top(name: str) -> None:
    assert hasattr(perdure, name)
    assert name in perdure.__all__


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("perdure.changes", name) for name in CHANGES),
        *(("perdure.errors", name) for name in ERRORS),
        *(("perdure.testing", name) for name in TESTING),
    ],
)
def test_a_name_of_the_public_interface_is_importable_from_its_module(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


def test_the_names_at_the_top_are_sorted_and_all_there() -> None:
    assert list(perdure.__all__) == sorted(set(perdure.__all__))
    assert all(hasattr(perdure, name) for name in perdure.__all__)


def test_a_star_import_brings_what_is_listed_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from perdure import *", names)  # noqa: S102  # a star import is not allowed in a function
    assert names.keys() - {"__builtins__"} == set(perdure.__all__)


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_a_perdure_error(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.PerdureError)
    assert errors.BY_NAME[name] is getattr(errors, name)
