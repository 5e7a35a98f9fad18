"""Where a provider is and how it knows us: an address and a key, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
from pydantic import SecretStr

from perdure.errors import ConfigurationError
from perdure.providers.openai_errors import Complaint

if TYPE_CHECKING:
    from collections.abc import Generator

OPENAI = "https://api.openai.com/v1"
"""Where requests go when nobody says where."""


MAX_PORT = 65535
"""A larger one fails in the middle of connecting, and not as an error of httpx."""


class _Bearer(httpx.Auth):
    """Puts the key on a request at the last moment, so that no variable of ours holds the header."""

    def __init__(self, key: SecretStr) -> None:
        self._key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        request.headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        yield request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and, unless the server needs none, a key."""

    url: httpx.URL
    key: SecretStr | None = field(default=None, repr=False)

    @classmethod
    def of(cls, base_url: str | None, key: SecretStr | None) -> Endpoint:
        """Return the endpoint of a base URL and a key; blank ones count as not given.

        Raises:
            ConfigurationError: the URL or the key can't be used.
        """
        plain = "" if key is None else key.get_secret_value().strip()
        if not (plain.isascii() and plain.isprintable()) or " " in plain:
            msg = "the API key (OPENAI_API_KEY) holds characters that no HTTP header can carry; set it again"
            raise ConfigurationError(msg)
        return cls(_completions_url(base_url), SecretStr(plain) if plain else None)

    @property
    def auth(self) -> httpx.Auth:
        """What puts the key on a request. Without a key nothing is put on it, not even what a netrc file holds."""
        return httpx.Auth() if self.key is None else _Bearer(self.key)

    def complaint(self, content_type: str = "") -> Complaint:
        """Return what words errors of this provider."""
        secrets = () if self.key is None else (self.key.get_secret_value(),)
        return Complaint(self.url.netloc.decode(), content_type, secrets)


def _completions_url(base_url: str | None) -> httpx.URL:
    given = (base_url or "").strip() or OPENAI
    try:
        url = httpx.URL(given)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host or (url.port or 0) > MAX_PORT:
        msg = "the base URL (OPENAI_BASE_URL) is no address of an API; it looks like https://host/v1"
        raise ConfigurationError(msg)
    if url.userinfo:
        msg = "the base URL (OPENAI_BASE_URL) holds a user or a password, which logs would show; use the API key"
        raise ConfigurationError(msg)
    return url.copy_with(path=f"{url.path.rstrip('/')}/chat/completions")
