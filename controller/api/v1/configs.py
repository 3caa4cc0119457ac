"""Configuration of topics, brokers and the cluster: the values in force and where each comes from.

The names of the sources are Kafka's. The properties file of a broker other than the controller's own is known to that
broker only, so it is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from controller.api.bodies import LISTED, answer, decode_body, number_in_path
from controller.api.ports import ClusterView
from controller.api.problems import invalid, refusal_for
from controller.api.routing.active import ActiveController
from controller.base.config import BrokerConfig
from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import CLUSTER_DEFAULT, UNCLEAN
from controller.core.codes import Code
from controller.core.events import ConfigAsked

#: properties that steer the controller, so that those of its own process are in force for the whole cluster
STEERING: Final = (
    UNCLEAN,
    "auto.leader.rebalance.enable",
    "leader.imbalance.per.broker.percentage",
    "leader.imbalance.check.interval.seconds",
    "delete.topic.enable",
)

#: a source, and the values it gives
Level = tuple[str, Mapping[str, str]]


class PatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """null removes an override."""

    values: Annotated[dict[str, str | None], LISTED]


class ValueBody(msgspec.Struct, frozen=True):
    name: str
    value: str
    source: str


class ConfigBody(msgspec.Struct, frozen=True):
    """`kind` is topic, broker or cluster."""

    kind: str
    entity: str
    values: Sequence[ValueBody]


class Configs:
    """Handlers of the three kinds of configuration."""

    def __init__(self, view: ClusterView, active: ActiveController, config: BrokerConfig) -> None:
        self._view = view
        self._active = active
        self._static, self._default = properties_of(config)

    def routes(self) -> Sequence[web.RouteDef]:
        topic, broker, cluster = "/v1/topics/{topic}/config", "/v1/brokers/{broker}/config", "/v1/cluster/config"
        return [
            self._active.route("GET", topic, self.of_topic),
            self._active.route("PATCH", topic, self.change_topic),
            self._active.route("GET", broker, self.of_broker),
            self._active.route("PATCH", broker, self.change_broker),
            self._active.route("GET", cluster, self.of_cluster),
            self._active.route("PATCH", cluster, self.change_cluster),
        ]

    async def of_topic(self, request: web.Request, raw: bytes) -> web.Response:
        name, cluster = request.match_info["topic"], self._active.cluster
        if name not in cluster.topics:
            raise refusal_for(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        own: Level = ("DYNAMIC_TOPIC_CONFIG", cluster.duties.topic_configs.get(name, {}))
        inherited = [(source, _only(values, (UNCLEAN,))) for source, values in self._of_everybody(cluster)]
        return answer(ConfigBody("topic", name, in_force([own, *inherited])))

    async def of_broker(self, request: web.Request, raw: bytes) -> web.Response:
        broker_id, cluster = number_in_path(request, "broker"), self._active.cluster
        duties = cluster.duties
        if not any(broker_id in known for known in (cluster.brokers, cluster.gone, cluster.hosted)):
            raise refusal_for(Code.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
        levels: list[Level] = [("DYNAMIC_BROKER_CONFIG", duties.broker_configs.get(str(broker_id), {}))]
        levels += self._of_everybody(cluster) if broker_id == self._view.own_broker_id else [_cluster_level(cluster)]
        return answer(ConfigBody("broker", str(broker_id), in_force(levels)))

    async def of_cluster(self, request: web.Request, raw: bytes) -> web.Response:
        dynamic, *own = self._of_everybody(self._active.cluster)
        levels = [dynamic, *((source, _only(values, STEERING)) for source, values in own)]
        return answer(ConfigBody("cluster", CLUSTER_DEFAULT, in_force(levels)))

    async def change_topic(self, request: web.Request, raw: bytes) -> web.Response:
        await self._change(request, raw, "topics", request.match_info["topic"])
        return await self.of_topic(request, raw)

    async def change_broker(self, request: web.Request, raw: bytes) -> web.Response:
        await self._change(request, raw, "brokers", str(number_in_path(request, "broker")))
        return await self.of_broker(request, raw)

    async def change_cluster(self, request: web.Request, raw: bytes) -> web.Response:
        await self._change(request, raw, "brokers", CLUSTER_DEFAULT)
        return await self.of_cluster(request, raw)

    async def _change(self, request: web.Request, raw: bytes, kind: str, entity: str) -> None:
        values = decode_body(raw, PatchBody).values
        if not values:
            raise invalid("give at least one value; null removes one")
        await self._active.ask(ConfigAsked(kind, entity, values), request.path)

    def _of_everybody(self, cluster: Cluster) -> list[Level]:
        """Returns the levels that hold where a topic or broker has no value of its own."""
        return [_cluster_level(cluster), ("STATIC_BROKER_CONFIG", self._static), ("DEFAULT_CONFIG", self._default)]


def in_force(levels: Sequence[Level]) -> list[ValueBody]:
    """Of each name the value of the first level that has it."""
    found: dict[str, ValueBody] = {}
    for source, values in levels:
        for name, value in values.items():
            found.setdefault(name, ValueBody(name, value, source))
    return [found[name] for name in sorted(found)]


def properties_of(config: BrokerConfig) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the properties of a process: those that differ from their default, and the defaults of the others."""
    static: dict[str, str] = {}
    default: dict[str, str] = {}
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if value is not None:
            (default if value == field.default else static)[field.encode_name] = _text(value)
    return static, default


def _cluster_level(cluster: Cluster) -> Level:
    return "DYNAMIC_DEFAULT_BROKER_CONFIG", cluster.duties.broker_configs.get(CLUSTER_DEFAULT, {})


def _only(values: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name in names}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
