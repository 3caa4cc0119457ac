"""Tools ask the controller itself as if it were a broker: its answers, by another codec."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.own_configs import DESCRIBE_LOG_DIRS, own_log_dirs, with_own_configs
from tests.kafka import kafka_support as kio


@pytest.mark.parametrize("version", [0, 1])
async def test_configurations_of_the_controller_itself_are_cleared_not_set_and_those_of_others_passed_on(
    version: int,
) -> None:
    passed: list[bytes] = []

    async def pass_on(frame: bytes) -> bytes:
        passed.append(frame)
        return b"passed on"

    answered = with_own_configs(100, pass_on)
    schema = kio.schema("incremental_alter_configs", version, "request")

    def frame(broker: str, operation: int) -> bytes:
        config = schema.AlterableConfig(
            name="leader.replication.throttled.rate", config_operation=operation, value=None
        )
        resource = schema.AlterConfigsResource(resource_type=4, resource_name=broker, configs=(config,))
        request = schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        return kio.request_header(44, version, 7, "c", 1 + version) + kio.written(request)

    response = kio.schema("incremental_alter_configs", version, "response").IncrementalAlterConfigsResponse
    for operation, code in [(1, 0), (0, 42)]:
        answer = await answered(frame("100", operation))
        assert answer[:4] == struct.pack(">i", 7)
        [said] = kio.read(response, answer[4 + version :]).responses
        assert (int(said.error_code), said.resource_name) == (code, "100")
    assert await answered(frame("3", 1)) == b"passed on"
    assert len(passed) == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("kind", [4, 8])
async def test_the_controller_itself_has_no_configuration_to_describe(version: int, kind: int) -> None:
    async def pass_on(frame: bytes) -> bytes:
        return b"passed on"

    answered, flexible = with_own_configs(100, pass_on), int(version >= 4)
    schema = kio.schema("describe_configs", version, "request")
    more = {"include_synonyms": True} if version >= 1 else {}
    more |= {"include_documentation": False} if version >= 3 else {}

    def frame(*names: str) -> bytes:
        resources = tuple(
            schema.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names
        )
        return kio.request_header(32, version, 7, "c", 1 + flexible) + kio.written(
            schema.DescribeConfigsRequest(resources=resources, **more)
        )

    response = kio.schema("describe_configs", version, "response").DescribeConfigsResponse
    answer = await answered(frame("100"))
    [said] = kio.read(response, answer[4 + flexible :]).results
    assert (int(said.error_code), said.resource_name, said.configs) == (0, "100", ())
    for names in (("3",), ("100", "3"), ()):
        assert await answered(frame(*names)) == b"passed on"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_the_controller_itself_has_one_directory_without_replicas(version: int, tmp_path: Path) -> None:
    api = own_log_dirs(tmp_path)[DESCRIBE_LOG_DIRS]
    assert api.first <= version <= api.last
    assert api.handler is not None
    writer = Writer(flexible=version >= api.flexible_since)
    await api.handler(version, Reader(b"", 0, flexible=False), writer)
    response = kio.schema("describe_log_dirs", version, "response").DescribeLogDirsResponse
    [said] = kio.read(response, writer.message()).results
    assert (int(said.error_code), said.log_dir, said.topics) == (0, str(tmp_path), ())
