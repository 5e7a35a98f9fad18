"""Images, sounds and files as OpenAI's chat completions take them, and in words where they take none.

What the documentation does not name is put in words, not sent: a refused part would fail every later call of its
conversation too. https://platform.openai.com/docs/guides/images-vision, /audio and /file-inputs
"""

from __future__ import annotations

import base64
import binascii
from typing import assert_never
from urllib.parse import urlsplit

from perdure.messages import Base64Source, DataBlock, URLSource
from perdure.values import clean_text

JsonBody = dict[str, object]
"""A JSON object on its way out."""

IMAGES = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/jpg": "image/jpeg",
    "image/webp": "image/webp",
    "image/gif": "image/gif",
}
"""The images that are taken, by the names that they go by."""

SOUNDS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
"""The sounds that are taken, and the `format` of each."""

PDF = "application/pdf"
"""The only file that is taken."""

_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_READABLE = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
_MAX_SHOWN = 2_000


def data_part(block: DataBlock) -> JsonBody | None:
    """Return the content part of a user's message for this data, or None where there is none for it."""
    match block.source:
        case URLSource() as source:
            return _linked_part(source)
        case Base64Source() as source:
            return _embedded_part(source, block.name)
        case _ as never:
            assert_never(never)


def data_text(block: DataBlock) -> str:
    """Return words that stand for this data: the contents of a text file, or what the data is."""
    kind = _kind(block.source.media_type)
    named = f"{kind or 'data of unknown kind'}{f', named {block.name}' if block.name else ''}"
    match block.source:
        case URLSource(url=url):
            # A data URL holds the data itself, which is no text for a model.
            where = "" if url.lower().startswith("data:") else f", at {url[:_MAX_SHOWN]}"
            return f"[attached: {named}{where}]"
        case Base64Source(data=data):
            text = _decoded_text(data) if kind.startswith("text/") or kind in _READABLE else None
            return f"[attached: {named}, not readable here]" if text is None else f"[attached: {named}]\n{text}"
        case _ as never:
            assert_never(never)


def _linked_part(source: URLSource) -> JsonBody | None:
    try:
        parts = urlsplit(source.url)
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not source.url.isprintable() or " " in source.url:
        return None
    kind = _kind(source.media_type)
    if kind in IMAGES or (not kind and parts.path.lower().endswith(_IMAGE_ENDINGS)):
        return {"type": "image_url", "image_url": {"url": source.url}}
    return None


def _embedded_part(source: Base64Source, name: str | None) -> JsonBody | None:
    kind = _kind(source.media_type)
    if kind not in IMAGES and kind not in SOUNDS and kind != PDF:
        return None
    data = "".join(source.data.split())
    if not _decoded(data):
        return None
    if kind in IMAGES:
        return {"type": "image_url", "image_url": {"url": f"data:{IMAGES[kind]};base64,{data}"}}
    if kind in SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": data, "format": SOUNDS[kind]}}
    filename = name if name and name.strip() else "document.pdf"
    return {"type": "file", "file": {"filename": filename, "file_data": f"data:{PDF};base64,{data}"}}


def _kind(media_type: str | None) -> str:
    """Return a media type without its parameters, in lower case."""
    return (media_type or "").partition(";")[0].strip().lower()


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _decoded_text(data: str) -> str | None:
    raw = _decoded("".join(data.split()))
    try:
        return None if raw is None else clean_text(raw.decode())
    except UnicodeDecodeError:
        return None
