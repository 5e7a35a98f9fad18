"""Large payloads in a bucket of S3, through the SDK's own driver. Needs the extra `perdure[s3]`.

Where and as whom is AWS's own matter: `AWS_PROFILE`, `AWS_REGION`, `AWS_ENDPOINT_URL` and their like, instance roles.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, TypedDict, TypeVar, cast
from urllib.parse import quote

from google.protobuf.message import DecodeError
from temporalio.contrib.aws.s3driver import S3StorageDriver, S3StorageDriverClient

from perdure.contract import WORKFLOW_TYPE
from perdure.errors import ConfigurationError, ServerUnavailable
from perdure.storage.unavailable import unavailable

try:
    from boto3.session import Session  # pyright: ignore[reportMissingTypeStubs]  # it has none
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
    from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        NoRegionError,
    )
except ImportError as missing:
    msg = "PERDURE_STORAGE names a bucket of S3, which needs more than is installed: pip install 'perdure[s3]'"
    raise ConfigurationError(msg) from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from temporalio.api.common.v1 import Payload
    from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext

    from perdure.storage.directories import Owner
    from perdure.storage.places import Bucket

Answer = TypeVar("Answer")

DRIVER = "perdure-s3"
"""The name that references carry. Another name would leave running sessions without their payloads."""

MAX_PAYLOAD = 1024**3
"""Bytes; a bound against accidents. The driver puts a payload in one piece, and S3 takes five times as much."""

RIGHTS = ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject")

MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
FORBIDDEN = frozenset({"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"})

_KEY = re.compile(r"v0/ns/[A-Za-z0-9!\-_.*'()%]+(?:/[a-z]{2}/[A-Za-z0-9!\-_.*'()%]+)*/d/sha256/([0-9a-f]{64})")
SAFE = "!*'()"
"""What the SDK's driver leaves as it is in keys, besides what `quote` does. It alone leaves `~`, too."""

MAX_KEY = 1024
"""Bytes that S3 takes for a key, prefix included."""


class _Body(Protocol):
    def read(self) -> bytes: ...


class _Object(TypedDict):
    Body: _Body


class _Listed(TypedDict):
    Key: str


class _Page(TypedDict):
    Contents: NotRequired[list[_Listed]]


class _Paginator(Protocol):
    def paginate(self, *, Bucket: str, Prefix: str) -> Iterable[_Page]: ...  # noqa: N803  # the same


class S3Api(Protocol):
    """What we use of boto3's client, which has no types."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> object: ...  # noqa: D102, N803  # boto3's
    def head_object(self, *, Bucket: str, Key: str) -> object: ...  # noqa: D102, N803  # the same
    def get_object(self, *, Bucket: str, Key: str) -> _Object: ...  # noqa: D102, N803  # the same
    def delete_object(self, *, Bucket: str, Key: str) -> object: ...  # noqa: D102, N803  # the same
    def get_paginator(self, name: Literal["list_objects_v2"]) -> _Paginator: ...  # noqa: D102  # the same


class StorageUnreachableError(OSError):
    """The bucket did not answer, or refused us: another attempt may help. No ValueError, which would end the matter."""


def s3_api() -> S3Api:
    """Return a client of S3, which any thread may use.

    Raises:
        ConfigurationError: AWS's own configuration can't be used.
    """
    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
    try:
        return cast("S3Api", cast("Any", Session()).client("s3", config=config))
    except (BotoCoreError, ValueError) as error:
        msg = f"the configuration of AWS can't be used: {error}"
        raise ConfigurationError(msg) from error


class _Prefixed(S3StorageDriverClient):
    """S3 as the SDK's driver wants it, in threads, under a prefix that stands in no reference."""

    def __init__(self, prefix: str) -> None:
        self._api = s3_api()
        self._prefix = prefix

    async def put_object(self, *, bucket: str, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._api.put_object, Bucket=bucket, Key=self._prefix + key, Body=data)

    async def object_exists(self, *, bucket: str, key: str) -> bool:
        try:
            await asyncio.to_thread(self._api.head_object, Bucket=bucket, Key=self._prefix + key)
        except ClientError as error:
            if _code(error) in MISSING:
                return False
            raise
        return True

    async def get_object(self, *, bucket: str, key: str) -> bytes:
        return await asyncio.to_thread(self._read, bucket, self._prefix + key)

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix; ours does not count."""
        pages = self._api.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=self._prefix + prefix)
        return [each["Key"].removeprefix(self._prefix) for page in pages for each in page.get("Contents", [])]

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        self._api.delete_object(Bucket=bucket, Key=self._prefix + key)

    def _read(self, bucket: str, key: str) -> bytes:
        return self._api.get_object(Bucket=bucket, Key=key)["Body"].read()


class BucketDriver(S3StorageDriver):
    """The SDK's driver, kept to one bucket.

    A reference is whatever a sender wrote. One to another bucket, or of another form than the driver's own, is not
    looked for: it could read what the worker may read, or fail in a way that no other attempt mends.
    """

    def __init__(self, bucket: Bucket) -> None:
        """Use this bucket."""
        self._objects = _Prefixed(bucket.prefix)
        super().__init__(self._objects, bucket.name, DRIVER, MAX_PAYLOAD)
        self._place = bucket

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store payloads.

        Raises:
            ServerUnavailable: the bucket does not take them.
        """
        try:
            return await super().store(context, payloads)
        except RuntimeError as error:
            msg = f"large payloads can't be kept in {self._place}: {error.__cause__ or error}"
            raise ServerUnavailable(msg) from error

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Retrieve payloads; what is not there becomes a payload that nothing accepts.

        Raises:
            StorageUnreachableError: the bucket does not answer.
        """
        return list(await asyncio.gather(*(self._retrieve_one(context, claim) for claim in claims)))

    async def _retrieve_one(self, context: StorageDriverRetrieveContext, claim: StorageDriverClaim) -> Payload:
        if not self._ours(claim):
            return unavailable()
        try:
            return (await super().retrieve(context, [claim]))[0]
        except (ValueError, KeyError, DecodeError):
            return unavailable()
        except RuntimeError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and _code(cause) in MISSING:
                return unavailable()
            msg = f"{self._place} can't be read: {cause or error}"
            raise StorageUnreachableError(msg) from error

    async def count(self, owner: Owner) -> int:
        """Return how many payloads are stored for a session.

        Raises:
            ServerUnavailable: the bucket does not answer, or we may not list it.
        """
        return len(await self._answered(lambda: self._keys(owner)))

    async def forget(self, owner: Owner) -> int:
        """Remove them, and return how many they were. A bucket that keeps versions keeps theirs.

        Raises:
            ServerUnavailable: the bucket does not answer, or we may not delete in it.
        """
        keys = await self._answered(lambda: self._keys(owner))
        for key in keys:
            await self._answered(lambda key=key: self._objects.delete(self._place.name, key))
        return len(keys)

    def _keys(self, owner: Owner) -> list[str]:
        """Return the keys under which the SDK's driver keeps a session's payloads. A sender may not know its type."""
        namespace, session = (
            quote(each, safe=SAFE).replace("~", "%7E") for each in (owner.namespace, owner.workflow_id)
        )
        prefixes = [f"v0/ns/{namespace}/wt/{kind}/wi/{session}/" for kind in (WORKFLOW_TYPE, "null")]
        return [key for prefix in prefixes for key in self._objects.keys(self._place.name, prefix)]

    async def _answered(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.to_thread(ask)
        except (BotoCoreError, ClientError) as error:
            msg = f"{self._place} does not do what it is asked: {_advice(error, self._place)}"
            raise ServerUnavailable(msg) from error

    def _ours(self, claim: StorageDriverClaim) -> bool:
        """Tell whether the driver may have written this claim."""
        data = claim.claim_data
        key = data.get("key", "")
        form = _KEY.fullmatch(key)
        fits = len(self._place.prefix) + len(key) <= MAX_KEY
        return (
            fits and data.get("bucket") == self._place.name and form is not None and form[1] == data.get("hash_value")
        )


def require_bucket(bucket: Bucket) -> None:
    """See that the bucket is there, and that we may read, list and write in it.

    Raises:
        ConfigurationError: it is not so. The message says what to do.
    """
    key = f"{bucket.prefix}perdure-was-here"
    try:
        api = s3_api()
        api.put_object(Bucket=bucket.name, Key=key, Body=b"")
        api.get_object(Bucket=bucket.name, Key=key)["Body"].read()
        _require_listing(api, bucket)
    except (BotoCoreError, ClientError) as error:
        msg = f"large payloads can't be kept in {bucket} (PERDURE_STORAGE): {_advice(error, bucket)}"
        raise ConfigurationError(msg) from error


def _require_listing(api: S3Api, bucket: Bucket) -> None:
    """See that S3 says of what is not there that it is not. It does so only to who may list."""
    try:
        api.head_object(Bucket=bucket.name, Key=f"{bucket.prefix}perdure-never-was-here")
    except ClientError as error:
        if _code(error) not in MISSING:
            raise


def _advice(error: BotoCoreError | ClientError, bucket: Bucket) -> str:
    match error:
        case NoCredentialsError():
            return "there are no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        case NoRegionError():
            return "no region is set; set AWS_REGION"
        case ClientError() if _code(error) in {"NoSuchBucket", *MISSING}:
            return f"there is no bucket {bucket.name}; make it (`aws s3 mb s3://{bucket.name}`), or name another"
        case ClientError() if _code(error) in FORBIDDEN:
            return f"access is denied; allow {', '.join(RIGHTS)} on {bucket.name} ({error})"
        case _:
            return f"{error}; is AWS_ENDPOINT_URL or AWS_REGION right?"


def _code(error: ClientError) -> str:
    response = cast("dict[str, dict[str, str]]", error.response)
    return response.get("Error", {}).get("Code", "")
