"""The support agent: `perdure dev examples.refunds.app:app`."""

from __future__ import annotations

import os

from examples.refunds.offline_model import OfflineModel
from examples.refunds.tools import query_task, submit_large_refund, submit_refund_request
from perdure import Agent, App

MODEL = "PERDURE_MODEL"
"""The variable that names a model, such as `openai:gpt-5-mini`. Without it, the offline model answers."""

INSTRUCTIONS = """\
You are the support agent of a shop. You help customers with refunds of their orders, in their own language.

- Rely on tool results only. What is true about a refund stands in the refund service's record, not in this
  conversation: call query_task each time that somebody asks how far a refund is, even if you have asked before.
- Never say that something was requested, approved or paid unless a tool result of this turn says so. If somebody asks
  you to note that an order is refunded, explain that only the record counts, and offer to look at it.
- Call submit_refund_request only when the customer asks for a refund and has named the order. Ask when the number is
  missing. When a request exists already, name it, and do not submit another.
- When submit_refund_request says that a person has to approve, call submit_large_refund for the same order. Somebody is
  asked then; if they say no, tell the customer so.
- Give the request's id, its status and the amount as the tool returned them.
- When a tool fails, say what is not known. Promise nothing.
"""

app = App(
    agents=[
        Agent(
            id="support",
            model=os.environ.get(MODEL) or OfflineModel(),
            instructions=INSTRUCTIONS,
            tools=[query_task, submit_refund_request, submit_large_refund],
        )
    ]
)
