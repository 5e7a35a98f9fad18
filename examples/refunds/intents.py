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
    """A message as it was understood.

    `chinese` is None for a text without words. `agrees`: it says yes to something. `refers`: it speaks of "it".
    """

    intent: Intent
    orders: tuple[str, ...]
    chinese: bool | None
    agrees: bool
    refers: bool
    text: str


_ORDER = re.compile(r"(?<![A-Za-z0-9_-])([A-Za-z][0-9]{4,8})(?![A-Za-z0-9_-])")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LETTER = re.compile(r"[a-z]", re.IGNORECASE)

MAX_READ = 4000
"""Characters of a message that are read. Nobody asks for a refund in more, and patterns must stay fast."""


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.DOTALL)


_NOTE = _any(
    r"\b(noted?|mark(ed)?|record(ed)?|write|written|remember|register|log|set|put|update|change|pretend|assume|say)\b"
    r".*\b(refunded|paid|done|approved|rejected|settled|completed?)\b",
    r"\b(note|remember|record|pretend|assume)\b.*\brefund\b",
    r"(?<![忘登])记(?!得).*(退|付|批准|通过|完成|到账)",
    r"(登记|标|备注|改成|改为|写|设为|当作|就说).*(已|退了|退款了|付了|付款了|完成|到账|批准|通过)",
)
_ASKS_STATUS = _any(
    r"\bhow far\b|\bwhere('s| is| are| does| do)\b|\bstatus\b|\bprogress\b|\bany (news|update)|\bwhy\b|\bhow long\b",
    r"\bwhat('s| is) (going|happening|up with|become)\b|\bhow (is|does) it\b|\bwhen (will|do|does|is|can|am)\b",
    r"\blook (it|at|up|in|into|again)\b|\bcheck\b",
    r"\b(not|never|haven't|hasn't|didn't)( \w+)? (received|gotten|got|get|seen|arrived)\b",
    r"到哪|进度|怎么样|怎样了|如何了|什么时候|多久|查|状态|情况|看一下|看看|为什么|没有?(收到|到账)",
)
_DECLINES = _any(
    r"\b(don't|dont|do not|no longer|never|not)( \w+)? (want|need|request|ask|apply|open|submit|refund)\b",
    r"\b(no|cancel|withdraw|stop)( \w+){0,3} refund\b",
    r"(不(要|想|用|需要|再|打算|申请)|别(给|再|申请)?|取消|撤回|撤销|放弃)[^。!?,]*退",
)
_WISHES = _any(
    r"\b(to be|be|get|getting) refunded\b|\b(want|need|like|demand|expect)\b[^.!?]*\brefunded\b",
    r"(要|想|请|帮我|能|可以|希望|申请)[^。!?,已]*退",
)
_MAY_ASK_STATUS = _any(
    r"(^|[.!?,;:] *)(and |so |but )?(is|was|has|have|did|are|will)\b[^.!]*\b(refund|refunded|paid|approved)\b[^.!]*\?",
    r"(退|付|批准|通过|到账|处理|申请)[^。!]*(吗|没有|了没|么|\?)",
)
_CLAIMS = _any(
    r"\brefunded\b|\bpaid back\b|\b(refund|money)( for( order)? \S+)? +(is|was|has|have|already|arrived|came)\b",
    r"已经?(给我|帮我|把[^,]{1,8}|全|都|申请|完成|收到)?退|退款?(已经?)?(完成|成功|到账|过了|好了|完了)|退款?了",
)
_REFUND = _any(r"\brefunds?\b|\bmoney back\b|\breimburse|退款|退钱|退货|退掉")
_AGREES = _any(r"^\W*(yes|yeah|yep|please|ok|okay|sure|go ahead|do( it| so)?|好|是|行|可以|嗯|对|麻烦)")
_REFERS = _any(r"\b(it|this|that)\b|它|这|那|该")

_RULES = (
    (_NOTE, Intent.NOTE),
    (_ASKS_STATUS, Intent.STATUS),
    (_DECLINES, Intent.DECLINE),
    (_WISHES, Intent.REFUND),
    (_MAY_ASK_STATUS, Intent.STATUS),
    (_CLAIMS, Intent.NOTE),
    (_REFUND, Intent.REFUND),
)
"""The first that fits decides."""


def understand(text: str) -> Understood:
    """Read one message."""
    plain = unicodedata.normalize("NFKC", text[:MAX_READ]).replace("\u2019", "'")
    lower = plain.lower()
    return Understood(
        intent=next((intent for pattern, intent in _RULES if pattern.search(lower)), Intent.CHAT),
        orders=mentioned_orders(plain),
        chinese=_chinese(_ORDER.sub("", plain)),
        agrees=_AGREES.search(lower) is not None,
        refers=_REFERS.search(lower) is not None,
        text=text,
    )


def mentioned_orders(plain: str) -> tuple[str, ...]:
    """Return the order numbers in a text, as the shop writes them."""
    return tuple(dict.fromkeys(found.upper() for found in _ORDER.findall(plain)))


def _chinese(plain: str) -> bool | None:
    if _HAN.search(plain):
        return True
    return False if _LETTER.search(plain) else None
