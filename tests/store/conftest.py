"""An S3 server of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

VARIABLES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An S3 server on this machine, which every client in this process is led to by its environment."""
    import s3fs  # noqa: PLC0415

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    before = {name: os.environ.get(name) for name in (*VARIABLES, "AWS_ENDPOINT_URL")}
    os.environ.update(VARIABLES, AWS_ENDPOINT_URL=url)
    yield url
    for instance in list(s3fs.S3FileSystem._cache.values()):
        if instance._s3 is not None:
            s3fs.S3FileSystem.close_session(instance.loop, instance._s3creator)
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def bucket(s3_server: str, request: pytest.FixtureRequest) -> str:
    """A new bucket, by its address."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name.lower()).strip("-")[:60].strip("-")
    client = boto3.client("s3")
    client.create_bucket(Bucket=name)
    client.close()
    return f"s3://{name}"
