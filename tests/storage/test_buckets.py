from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from boto3.session import Session  # pyright: ignore[reportMissingTypeStubs]  # it has none
from moto.server import ThreadedMotoServer
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.converter import (
    JSONProtoPayloadConverter,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from perdure import Agent, App, ModelRequest
from perdure.connection import data_converter
from perdure.contract import UNAVAILABLE
from perdure.errors import ConfigurationError, ServerUnavailable
from perdure.storage import external_storage
from perdure.storage.buckets import BucketDriver, StorageUnreachableError, require_bucket
from perdure.storage.places import Bucket, storage_place
from perdure.testing import ScriptedModel
from tests.support.world import failed_tasks, fresh, world
from worker.running import connect_worker
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.embedded import EmbeddedServer

BIG = 3_000_000
PLACE = Bucket("payloads", "perdure/test/")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A real S3 API on loopback, with one bucket, as AWS's own variables name it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    client = cast("Any", Session()).client("s3")
    httpx.post(f"http://{host}:{port}/moto-api/reset").raise_for_status()  # its memory is the whole process's
    client.create_bucket(Bucket=PLACE.name)
    yield client
    client.close()
    server.stop()


def answer(request: ModelRequest) -> str:
    return f"{len(request.messages[-1].text)} of {len(request.messages)}"


def keys(s3: Any) -> list[str]:
    return [each["Key"] for each in s3.list_objects_v2(Bucket=PLACE.name).get("Contents", [])]


async def claim_of(driver: BucketDriver, payload: Payload) -> StorageDriverClaim:
    target = StorageDriverWorkflowInfo(namespace="default", id="session:a:~:ü", type="AgentSession")
    (claim,) = await driver.store(StorageDriverStoreContext(target=target), [payload])
    return claim


async def retrieved(driver: BucketDriver, claim: StorageDriverClaim) -> Payload:
    (payload,) = await driver.retrieve(StorageDriverRetrieveContext(), [claim])
    return payload


async def test_sessions_keep_their_large_payloads_in_a_bucket(server: EmbeddedServer, s3: Any) -> None:
    """B60: 3 MB from a person; another worker reads it from there."""
    app = App([Agent("a", ScriptedModel(answer))])
    async with world(server, app, storage=str(PLACE)) as served:
        session = served.sessions.session("a", fresh())
        assert (await session.ask("x" * BIG, timeout=60)).output == f"{BIG} of 1"
        found = keys(s3)
        assert found
        assert all(key.startswith("perdure/test/v0/ns/default/") for key in found)
        await served.stop_worker()
        await served.start_worker()
        assert (await session.ask("y", timeout=60)).output == "1 of 3"
        assert await failed_tasks(session) == 0
        assert served.env["PERDURE_STORAGE"] == "s3://payloads/perdure/test"


async def test_a_session_that_is_forgotten_leaves_nothing_in_the_bucket(server: EmbeddedServer, s3: Any) -> None:
    """And nobody else loses anything, whose id begins like its own or who lies beside the prefix."""
    app = App([Agent("a", ScriptedModel(answer))])
    async with world(server, app, storage=str(PLACE), archive_url="none") as served:
        user = fresh("~ü")
        for name in ("s", "s2"):
            assert (await served.sessions.session("a", name, user).ask("x" * BIG, timeout=60)).output
        s3.put_object(Bucket=PLACE.name, Key=f"not-{PLACE.prefix}v0", Body=b"another's")
        before = keys(s3)
        receipt = await served.sessions.forget(user, session_id="s")
        assert receipt.files > 0
        assert len(keys(s3)) == len(before) - receipt.files
        assert (await served.sessions.session("a", "s2", user).ask("y", timeout=60)).output == "1 of 3"
        await served.sessions.forget(user)
        assert keys(s3) == [f"not-{PLACE.prefix}v0"]


async def test_what_a_sender_can_forge_is_nothing_and_fails_nothing(s3: Any) -> None:
    """Another bucket, another form, a key that S3 refuses, content that is not what it says, or nothing at all."""
    driver = BucketDriver(PLACE)
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b"1")
    claim = dict((await claim_of(driver, payload)).claim_data)
    assert await retrieved(driver, StorageDriverClaim(claim)) == payload
    s3.create_bucket(Bucket="secrets")
    s3.put_object(Bucket="secrets", Key=f"{PLACE.prefix}{claim['key']}", Body=payload.SerializeToString())
    long = claim["key"].replace("/d/", f"/xx/{'x' * 2000}/d/")
    never = claim["key"][:-64] + "0" * 64
    s3.put_object(Bucket=PLACE.name, Key=f"{PLACE.prefix}{never}", Body=b"damaged")
    absent = claim["key"][:-64] + "1" * 64
    for change in (
        {"bucket": "secrets"},
        {"bucket": ""},
        {"key": "../../etc/passwd"},
        {"key": long},
        {"key": never, "hash_value": "0" * 64},
        {"key": absent, "hash_value": "1" * 64},
        {"hash_value": "0" * 64},
        {"hash_algorithm": "md5"},
    ):
        found = await retrieved(driver, StorageDriverClaim(claim | change))
        assert found.metadata["encoding"] == UNAVAILABLE, change
    assert (await retrieved(driver, StorageDriverClaim({}))).metadata["encoding"] == UNAVAILABLE


async def test_a_bucket_that_does_not_answer_is_waited_for(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage is no reason to take a payload for one that never was."""
    claim = await claim_of(BucketDriver(PLACE), Payload(data=b"1"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    driver = BucketDriver(PLACE)
    with pytest.raises(StorageUnreachableError, match="s3://payloads/perdure/test can't be read"):
        await retrieved(driver, claim)
    with pytest.raises(ServerUnavailable, match="can't be kept in s3://payloads"):
        await claim_of(driver, Payload(data=b"2"))
    storage = external_storage(PLACE, 1)
    reference = reference_to(claim)
    with pytest.raises(StorageUnreachableError):
        await storage._retrieve_payload(reference)  # pyright: ignore[reportPrivateUsage]  # what the SDK calls


def reference_to(claim: StorageDriverClaim) -> Payload:
    reference = ExternalStorageReference(driver_name="perdure-s3", claim_data=dict(claim.claim_data))
    payload = JSONProtoPayloadConverter().to_payload(reference)
    assert payload is not None
    return payload


@pytest.mark.parametrize(
    ("place", "environment", "advice"),
    [
        (Bucket("nowhere"), {}, "aws s3 mb s3://nowhere"),
        (PLACE, {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "set AWS_PROFILE"),
        (PLACE, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "AWS_ENDPOINT_URL"),
        (PLACE, {"AWS_ENDPOINT_URL": "nonsense"}, "configuration of AWS"),
    ],
)
async def test_a_worker_does_not_start_when_its_bucket_cant_be_used(
    *,
    place: Bucket,
    environment: dict[str, str],
    advice: str,
    server: EmbeddedServer,
    s3: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message names what to mend."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    with pytest.raises(ConfigurationError, match=advice):
        await connect_worker(WorkerSettings.load(storage=str(place)), server.address)


async def test_a_worker_starts_when_its_bucket_can_be_used(server: EmbeddedServer, s3: Any) -> None:
    await connect_worker(WorkerSettings.load(storage=str(PLACE)), server.address)
    await asyncio.to_thread(require_bucket, Bucket(PLACE.name))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "perdure.storage.buckets", raising=False)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'perdure\[s3\]'"):
        data_converter(PLACE)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://payloads", Bucket("payloads")),
        ("s3://payloads/", Bucket("payloads")),
        ("s3://payloads/a/b/", Bucket("payloads", "a/b/")),
    ],
)
def test_a_bucket_is_read_and_written_as_it_is_configured(text: str, place: Bucket) -> None:
    assert storage_place(text) == place
    assert storage_place(str(place)) == place


@pytest.mark.parametrize("text", ["s3://", "s3://X", "s3:///a", "s3://bucket/ä", "gs://bucket", "s3://a/b"])
def test_what_is_neither_a_folder_nor_a_bucket_is_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="storage can't be"):
        WorkerSettings.load(storage=text)
    monkeypatch.setenv("PERDURE_STORAGE", text)
    with pytest.raises(ConfigurationError, match="PERDURE_STORAGE can't be"):
        WorkerSettings.load()
