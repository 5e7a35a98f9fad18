"""perdure: durable AI-agent sessions on Temporal.

Everything that programs are written against is importable from here; `perdure.errors`, `perdure.changes` and
`perdure.testing` hold the rest.
"""

from perdure.agents import Agent, App
from perdure.client import SessionHandle, Sessions
from perdure.commands import Decision, OnBusy, Partial
from perdure.errors import PerdureError
from perdure.identity import SessionKey
from perdure.messages import (
    Base64Source,
    DataBlock,
    Message,
    ResultState,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    Usage,
)
from perdure.models import Delta, Model, ModelError, ModelRequest, ModelResponse, Purpose, ToolCall, ToolSpec
from perdure.operations import Effect, Outcome
from perdure.permissions import PermissionBehavior, PermissionContext, PermissionMode, PermissionRule
from perdure.plan import PlanModeContext
from perdure.providers import OpenAIChatModel
from perdure.results import (
    CloseReceipt,
    ForgetReceipt,
    Interaction,
    InterruptReceipt,
    KnownSession,
    Operation,
    PauseReceipt,
    Receipt,
    RenewReceipt,
    SessionInfo,
    SessionStatus,
    SessionView,
    SteerReceipt,
    Stopped,
    TranscriptEntry,
    TurnError,
    TurnResult,
    TurnStatus,
    TurnView,
)
from perdure.state import AgentState
from perdure.tasks import Requirement, RequirementDecision, Scope, Task, TasksContext, Verification
from perdure.toolgroups import ToolContextState, ToolGroup
from perdure.tools import RuntimeContext, Tool, ToolContext, ToolError, ToolOutput, Verdict, tool

__all__ = [
    "Agent",
    "AgentState",
    "App",
    "Base64Source",
    "CloseReceipt",
    "DataBlock",
    "Decision",
    "Delta",
    "Effect",
    "ForgetReceipt",
    "Interaction",
    "InterruptReceipt",
    "KnownSession",
    "Message",
    "Model",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "OnBusy",
    "OpenAIChatModel",
    "Operation",
    "Outcome",
    "Partial",
    "PauseReceipt",
    "PerdureError",
    "PermissionBehavior",
    "PermissionContext",
    "PermissionMode",
    "PermissionRule",
    "PlanModeContext",
    "Purpose",
    "Receipt",
    "RenewReceipt",
    "Requirement",
    "RequirementDecision",
    "ResultState",
    "Role",
    "RuntimeContext",
    "Scope",
    "SessionHandle",
    "SessionInfo",
    "SessionKey",
    "SessionStatus",
    "SessionView",
    "Sessions",
    "SteerReceipt",
    "Stopped",
    "Task",
    "TasksContext",
    "TextBlock",
    "ThinkingBlock",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolContextState",
    "ToolError",
    "ToolGroup",
    "ToolOutput",
    "ToolResultBlock",
    "ToolSpec",
    "ToolUseBlock",
    "TranscriptEntry",
    "TurnError",
    "TurnResult",
    "TurnStatus",
    "TurnView",
    "URLSource",
    "Usage",
    "Verdict",
    "Verification",
    "tool",
]
