"""An operator removes the nodes that all others hang on, on a real ZooKeeper with real processes: no process ends, and
all goes on by itself."""

from __future__ import annotations

import pytest
from kazoo.exceptions import NoNodeError

from tests.integration.cluster import Cluster, until
from tests.integration.order import Claim

pytestmark = [pytest.mark.java]

EPOCH, SEAT = "/controller_epoch", "/controller"


def newest(cluster: Cluster) -> Claim:
    return cluster.order.claims()[-1]


async def with_a_topic(cluster: Cluster) -> Claim:
    await cluster.start()
    assert await cluster.controller.create_topic("before") == 201
    await cluster.whole()
    return newest(cluster)


async def uproot(cluster: Cluster, *roots: str) -> None:
    """These nodes and all below them, in one transaction."""

    async def below(path: str) -> list[str]:
        names = await cluster.zookeeper("get_children", path)
        return [one for name in names for one in await below(f"{path}/{name}")] + [path]

    async def is_done() -> bool:
        paths = [path for root in roots for path in await below(root)]
        return await cluster.together(*(("delete", path) for path in paths))

    await until(is_done, "no node is made or removed between the listing and the deletion")


async def everywhere(cluster: Cluster, topic: str) -> None:
    """It is made, and every broker is told of it."""
    await cluster.serve(topic)

    async def is_told() -> bool:
        told = [await broker.told() for broker in cluster.brokers.values()]
        return all((topic, 0) in one for one in told)

    await until(is_told, f"every broker knows {topic}")
    assert [broker.state for broker in cluster.brokers.values()] == ["running"] * 3


async def test_nonsense_in_the_epoch_is_said_and_mending_it_is_enough(cluster: Cluster) -> None:
    before = await with_a_topic(cluster)
    assert await cluster.together(("set_data", EPOCH, b"abc"), ("delete", SEAT))

    async def is_said() -> bool:
        verdicts = [await broker.get("/healthz/cluster") for broker in cluster.running]
        said = "no controller can be elected: /controller_epoch holds b'abc'; write the number of the last epoch"
        return len(verdicts) == 3 and all(
            one and one["status"] == "red" and any(reason.startswith(said) for reason in one["reasons"])
            for one in verdicts
        )

    await until(is_said, "every broker names the trouble")
    await cluster.zookeeper("set", EPOCH, b"1")
    claim = await cluster.claim_after(before)
    assert claim.controller_epoch == before.controller_epoch + 1
    await everywhere(cluster, "afterwards")
    await cluster.whole()


async def test_an_epoch_deleted_under_a_term_is_not_drawn_again(cluster: Cluster) -> None:
    before = await with_a_topic(cluster)
    for number in range(2):
        await cluster.zookeeper("delete", EPOCH)
        claim = await cluster.claim_after(before)
        assert claim.controller_epoch > before.controller_epoch
        before = claim
        await everywhere(cluster, f"afterwards-{number}")
    await cluster.whole()


async def test_the_list_of_brokers_is_made_again_and_all_register(cluster: Cluster) -> None:
    before = await with_a_topic(cluster)
    await uproot(cluster, "/brokers/ids")
    await until(
        lambda: all(len(cluster.order.registrations(one)) == 2 for one in cluster.brokers), "all are registered again"
    )
    await everywhere(cluster, "afterwards")
    await cluster.whole()
    assert newest(cluster).controller_epoch <= before.controller_epoch + 1


async def test_where_everything_is_removed_all_begin_anew_above_the_earlier_epochs(cluster: Cluster) -> None:
    before = await with_a_topic(cluster)
    known = await cluster.zookeeper("get", "/cluster/id")
    await uproot(cluster, "")
    claim = await cluster.claim_after(before)
    assert claim.controller_epoch > before.controller_epoch
    await everywhere(cluster, "afterwards")
    await cluster.whole()
    assert (await cluster.zookeeper("get", "/cluster/id"))[0] == known[0], "or no broker would start again"
    with pytest.raises(NoNodeError):
        await cluster.zookeeper("get", "/brokers/topics/before")
