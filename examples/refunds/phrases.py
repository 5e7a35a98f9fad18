# ruff: noqa: RUF001  # Chinese has punctuation of its own
"""What the offline model says, in English and Chinese. Facts are never in a phrase: they are filled in from records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from perdure import ResultState, ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Phrases:
    """One language. The fields that end an answer with a question are `ask_...` and `offer_...`."""

    hello: str
    ask_refund: str
    ask_status: str
    offer_submit: str
    offer_look: str
    note: str
    declined: str
    no_tool: str
    submitted: str
    already: str
    record: str
    no_request: str
    failed: str
    denied: str
    not_run: str
    unreadable: str
    statuses: Mapping[str, str]
    space: str
    """What stands between two sentences."""

    def result(self, result: ToolResultBlock) -> str:
        """Say what a tool's result says, and nothing else."""
        if result.state is ResultState.ERROR:
            return self.failed.format(reason=result.text)
        if result.state is ResultState.DENIED:
            _, said, reason = result.text.partition("denied: ")
            return self.denied.format(reason=reason if said else "…")
        if result.state is not ResultState.SUCCESS:
            return self.not_run.format(tool=result.name)
        try:
            return self._record(cast("dict[str, Any]", json.loads(result.text)))
        except (ValueError, TypeError, KeyError, RecursionError):
            return self.unreadable

    def joined(self, *sentences: str) -> str:
        """Return sentences as one text."""
        return self.space.join(sentences)

    def _record(self, said: dict[str, Any]) -> str:
        if "created" in said:
            return self._fill(self.submitted if said["created"] is True else self.already, said["request"])
        requests = cast("list[dict[str, Any]]", said["requests"])
        if not requests:
            return self.joined(self.no_request.format(order=said["order"]["order_id"]), self.offer_submit)
        return "\n".join(self._fill(self.record, request) for request in requests)

    def _fill(self, phrase: str, request: dict[str, Any]) -> str:
        return phrase.format(
            request=request["request_id"],
            order=request["order_id"],
            amount=f"{request['amount']} {request['currency']}",
            status=self.statuses.get(request["status"], request["status"]),
        )


ENGLISH = Phrases(
    hello="Hello! I can submit a refund request for one of your orders, or look up how far one is.",
    ask_refund="Which order is it about? Please tell me its number, and I will submit the request.",
    ask_status="Which order do you mean? Please tell me its number, and I will look it up.",
    offer_submit="Shall I submit a request?",
    offer_look="Shall I look at that record?",
    note=(
        "I can't note that down as a fact. How far a refund is, only the refund service's own record says, and nothing "
        "that is said here changes it."
    ),
    declined="Then I do nothing. If a request is open already, our staff can take it back.",
    no_tool="I have no tool for that in this conversation.",
    submitted=(
        "I have submitted refund request {request} for order {order} ({amount}). The refund service says: {status}."
    ),
    already=(
        "There is a refund request for order {order} already, {request} ({amount}), so I have not submitted another. "
        "The refund service says: {status}."
    ),
    record="The refund service's record of order {order}: request {request} ({amount}) is {status}.",
    no_request="The refund service has no refund request for order {order} on record.",
    failed="That did not work: {reason}.",
    denied="Our staff has not agreed to that ({reason}), so nothing was requested.",
    not_run="That was stopped before it had a result ({tool}). Please ask again.",
    unreadable="The refund service gave an answer that I can't read, so I can't say how far it is.",
    statuses={
        "requested": "received and waiting for approval",
        "approved": "approved, with the payment still to come",
        "paid": "paid; the money has been refunded",
        "rejected": "rejected",
    },
    space=" ",
)

CHINESE = Phrases(
    hello="您好！我可以为您的订单提交退款申请，也可以查询退款处理到哪一步。",
    ask_refund="请问是哪个订单？请告诉我订单号，我来提交申请。",
    ask_status="请问您指的是哪个订单？请告诉我订单号，我来查询。",
    offer_submit="需要我提交退款申请吗？",
    offer_look="需要我查一下这条记录吗？",
    note="我不能把这句话记成事实。退款处理到哪一步，只以退款服务自己的记录为准，在这里说什么都不会改变它。",
    declined="好的，我什么都不做。如果之前已有申请，工作人员可以撤回。",
    no_tool="在这个对话里我没有办理此事的工具。",
    submitted="已为订单 {order} 提交退款申请 {request}（金额 {amount}）。退款服务的记录：{status}。",
    already="订单 {order} 已经有一个退款申请 {request}（金额 {amount}），所以没有再次提交。退款服务的记录：{status}。",
    record="退款服务的记录：订单 {order} 的退款申请 {request}（金额 {amount}）{status}。",
    no_request="退款服务中没有订单 {order} 的退款申请。",
    failed="没有办成：{reason}。",
    denied="工作人员没有同意（{reason}），所以没有提交任何申请。",
    not_run="操作（{tool}）在得到结果之前被停止了，请再问一次。",
    unreadable="退款服务的回答无法读取，所以我不能说处理到哪一步。",
    statuses={
        "requested": "已收到，等待审批",
        "approved": "已批准，等待付款",
        "paid": "已付款，退款已完成",
        "rejected": "已被拒绝",
    },
    space="",
)

LANGUAGES = (ENGLISH, CHINESE)
