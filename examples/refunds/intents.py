"""What a customer's words ask for, in English and Chinese. Rules, no guesses: when in doubt, look or ask.

Reading does no harm, so that status comes before everything that acts; a claim ("it is refunded") asks for nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum


class Intent(StrEnum):
    """What somebody wants."""

    REFUND = "refund"
    STATUS = "status"
    NOTE = "note"
    DECLINE = "decline"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class Understood:
    """A message as it was understood."""

    intent: Intent
    orders: tuple[str, ...]
    chinese: bool | None
    text: str


_ORDER = re.compile(r"(?<![A-Za-z0-9_-])([A-Za-z][0-9]{4,8})(?![A-Za-z0-9_-])")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LETTER = re.compile(r"[a-z]", re.IGNORECASE)

_NOTE = re.compile(
    r"\b(note|mark|record|write|remember|register|log|set|put|update|change|pretend|assume|say)\b"
    r".*\b(refunded|paid|done|approved|rejected|settled|completed|refund)\b"
    r"|(记|标记|备注|登记|标为|标成|改成|改为|写上|写成|设为|当作|就说).*(退|付|批准|通过|完成|到账)",
    re.DOTALL,
)
_STATUS = re.compile(
    r"\bhow far\b|\bwhere('s| is| are| does| do)\b|\bstatus\b|\bprogress\b|\bany (news|update)|\bwhat('s| is) (going|happening|up with)\b"
    r"|\bhow (is|long|does it stand)\b|\bwhen\b|\blook (it|at|up|in|again)|\bcheck\b"
    r"|\b(is|was|has|have|did|are)\b[^.!]*\b(refunded|paid|approved|rejected|refund)\b[^.!]*\?"
    r"|到哪|进度|怎么样|怎样了|如何了|什么时候|多久|查|状态|情况|看一下|看看"
    r"|(退|付|批准|通过|到账|处理|申请)[^。!]*(吗|没有|了没|么)",
)
_DECLINE = re.compile(
    r"\b(don't|dont|do not|no longer|not|never|no|cancel|stop|withdraw|without)\b[^.!?]*\b(refund|money back)"
    r"|\brefund\b[^.!?]*\b(cancel|not)"
    r"|(不|别|勿|取消|撤回|撤销|放弃)[^。!?,]*(退款|退钱|退货|退了|退)",
)
_CLAIM = re.compile(
    r"\b(refunded|paid back)\b|\b(refund|money)\b[^.!?]*\b(is|was|has|have|been|already|arrived|came)\b"
    r"|(已经?|都)[^。!?]*(退|付)|(退款?|退钱|付)[^。!?]*(完成|成功|到账|过了|好了|完了)|退了",
)
_REFUND = re.compile(r"\brefund|\bmoney back\b|\breimburse|退款|退钱|退货|退掉|申请退|要退|想退")
_LOOK = re.compile(r"^\W*(yes|yeah|yep|please|ok|okay|sure|go ahead|do( it| so)?|好|是|行|可以|嗯|对|麻烦)")


def understand(text: str) -> Understood:
    """Read one message."""
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'")
    orders = tuple(dict.fromkeys(found.upper() for found in _ORDER.findall(plain)))
    return Understood(_intent(plain.lower()), orders, _chinese(_ORDER.sub("", plain)), text)


def agrees(text: str) -> bool:
    """Tell whether a message says yes to an offer."""
    return _LOOK.search(unicodedata.normalize("NFKC", text).lower()) is not None


def _intent(plain: str) -> Intent:
    if _NOTE.search(plain):
        return Intent.NOTE
    if _STATUS.search(plain):
        return Intent.STATUS
    if _DECLINE.search(plain):
        return Intent.DECLINE
    if _CLAIM.search(plain):
        return Intent.NOTE
    return Intent.REFUND if _REFUND.search(plain) else Intent.CHAT


def _chinese(plain: str) -> bool | None:
    """Return whether it is Chinese; None when it has no words."""
    if _HAN.search(plain):
        return True
    return False if _LETTER.search(plain) else None
