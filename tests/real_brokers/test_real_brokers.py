"""Three Kafka 3.9.1 brokers obey us: topics, faults, reassignment and elections, by Kafka's own tools, unchanged.

One cluster for all, in the order of the file; each test has topics of its own and leaves every broker up.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.wire.client import HttpClient
from tests.browser.pages import a_visit
from tests.real_brokers.cluster import Cluster, Controller, a_cluster
from tests.real_brokers.kills import LEFT_FOR, followed, is_left_alone_after_a_handback, pair
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
THREE = ("--partitions", "6", "--replication-factor", "3")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with a_cluster(tmp_path_factory.mktemp("kafka"), log_dirs=2) as cluster:
        yield cluster


async def in_sync(cluster: Cluster, topic: str) -> None:
    await until(lambda: cluster.is_in_sync(topic, 1, 2, 3), f"all replicas of {topic} are in sync")


async def test_the_seat_is_taken_from_kafka_and_given_back_and_neither_corrects_the_other(cluster: Cluster) -> None:
    """Kafka's own controller decides first, so that ours finds its states."""
    await cluster.create("before", *THREE)
    await in_sync(cluster, "before")
    written = cluster.zxids()
    taken = await cluster.controller.take_over()
    assert (taken["check"]["reasons"], taken["check"]["writes"]) == ([], [])
    assert cluster.read("/controller")["brokerid"] == 100
    await cluster.create("ours", *THREE)
    await in_sync(cluster, "ours")
    both = cluster.zxids()
    assert {path: both[path] for path in written if path.startswith("/kafka/brokers/topics/before")} == {
        path: zxid for path, zxid in written.items() if path.startswith("/kafka/brokers/topics/before")
    }
    assert (await cluster.controller.ask("POST", "/v1/handback", {}))[0] == 200
    await until(lambda: (cluster.read("/controller") or {}).get("brokerid") in (1, 2, 3), "one of Kafka's is back")
    await cluster.create("theirs", *THREE)  # it has loaded, and decides
    after = cluster.zxids()
    assert {path: after[path] for path in both} == both | {
        path: after[path] for path in ("/kafka/brokers/topics", "/kafka/config/topics") if path in after
    }
    await cluster.controller.take_over()
    assert cluster.zxids().items() >= both.items()
    epochs = cluster.kazoo.get("/kafka/controller_epoch")[0]
    assert epochs == b"4", "a claim, ours, theirs, ours"


async def test_records_go_in_and_come_out_and_topics_grow_and_go(cluster: Cluster) -> None:
    await cluster.create("orders", *THREE)
    assert len(await cluster.produce("orders", 300)) == 300
    assert await cluster.consume("orders", 300) == 300
    offsets = cluster.read("/brokers/topics/__consumer_offsets")["partitions"]  # made by a broker, not by us
    assert {one for replicas in offsets.values() for one in replicas} == {1, 2, 3}
    await cluster.tool("TopicCommand", "--alter", "--topic", "orders", "--partitions", "8")
    described = await cluster.tool("TopicCommand", "--describe", "--topic", "orders")
    assert described.count("Leader: ") == 8
    assert "Leader: none" not in described
    await cluster.create("short-lived", *THREE)
    await cluster.tool("TopicCommand", "--delete", "--topic", "short-lived")
    await until(lambda: cluster.read("/brokers/topics/short-lived") is None, "the topic is gone")
    data = [path for broker in cluster.brokers.values() for path in broker.log_directories]
    await until(lambda: not any(list(one.glob("short-lived-*")) for one in data), "its data is renamed or gone")


async def test_a_topic_that_exists_is_refused_in_kafkas_own_words(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="already exists"):
        await cluster.create("orders", *THREE)


async def test_a_broker_killed_leads_nothing_and_comes_back_in_sync(cluster: Cluster) -> None:
    await cluster.create("killed", *THREE)
    await cluster.brokers[2].kill()
    await until(lambda: 2 not in cluster.leaders("killed"), "others lead")
    assert {state["leader_epoch"] for state in cluster.states("killed").values()} <= {0, 1}
    assert len(await cluster.produce("killed", 200)) == 200
    await cluster.brokers[2].start()
    await in_sync(cluster, "killed")
    assert await cluster.consume("killed", 200) == 200


@pytest.mark.chromium
async def test_its_decisions_are_explained_counted_streamed_written_down_and_shown(cluster: Cluster) -> None:
    """Of the broker that was killed and came back in the test before."""
    ask = cluster.controller.ask
    placed = cluster.read("/brokers/topics/killed")["partitions"]
    numbers = [int(number) for number, replicas in placed.items() if replicas[0] == 2]
    assert numbers, "it led something"
    _, story = await ask("GET", f"/v1/partitions/killed/{numbers[0]}/story")
    assert any(one["reason"] == "brokers gone 2" for one in story["story"]), story
    assert {one["broker_id"] for one in story["replicas"] if one["is_eligible"]} == {1, 2, 3}
    _, answer = await ask("POST", "/v1/what-if", {"kill": [1]})
    assert (answer["offline"], len(answer["moves"]) > 0) == ([], True)
    _, history = await ask("GET", "/v1/controller/history")
    assert history["items"][-1]["broker_id"] == 100
    assert "acknowledged" in history["items"][-1]["phases"], "real brokers have answered"
    client = HttpClient()
    path = f"{cluster.controller.url}/v1/events?last=10000&follow=false"
    streamed = (await client.send("GET", path, b"", {}, 10_000)).body.decode()
    metrics = (await client.send("GET", f"{cluster.controller.url}/metrics", b"", {}, 10_000)).body.decode()
    await client.close()
    assert '"topic":"killed"' in streamed
    for line in ("kafka_controller_kafkacontroller_activecontrollercount 1.0", "kafka_brokers 3.0"):
        assert line in metrics.splitlines()
    lines = map(json.loads, (cluster.controller.directory / "state-change.log").read_text().splitlines())
    written = [one for one in lines if (one["kind"], one.get("topic")) == ("partition", "killed")]
    leaders = [one["leader"] for one in written if one["partition"] == numbers[0]]
    assert (leaders[0], leaders[-1] in (1, 3)) == (2, True)
    async with a_visit() as visit:
        await visit.page.goto(cluster.controller.url)
        await visit.until("document.querySelector('#live .on') !== null")
        await visit.until("document.querySelector('#matrix').textContent.includes('killed')")
        assert await visit.text("#controller strong") == "broker 100"
        assert visit.complaints == []


async def test_a_broker_frozen_past_its_session_is_replaced_and_rejoins(cluster: Cluster) -> None:
    await cluster.create("frozen", *THREE)
    await in_sync(cluster, "frozen")
    cluster.brokers[3].send(signal.SIGSTOP)
    try:
        await until(lambda: 3 not in cluster.leaders("frozen"), "others lead")
    finally:
        cluster.brokers[3].send(signal.SIGCONT)
    await until(lambda: cluster.is_registered(3), "it registers anew")
    await in_sync(cluster, "frozen")


async def test_a_controlled_shutdown_moves_leaderships_before_the_broker_goes(cluster: Cluster) -> None:
    await cluster.create("polite", *THREE)
    await in_sync(cluster, "polite")
    await cluster.brokers[1].stop()
    text = cluster.brokers[1].log_text()
    assert "Controlled shutdown request returned successfully" in text
    assert "Proceeding to do an unclean shutdown" not in text
    states = cluster.states("polite").values()
    assert all(state["leader"] in (2, 3) and 1 not in state["isr"] for state in states)
    assert {state["leader_epoch"] for state in states} == {1}
    await cluster.brokers[1].start()
    await in_sync(cluster, "polite")


async def test_a_broker_that_bounces_unseen_is_told_everything_anew(cluster: Cluster) -> None:
    """Our process stands still, within its session, while a broker goes and comes back."""
    await cluster.create("bounced", "--replica-assignment", "2:1:3,2:3:1,1:2:3")
    await in_sync(cluster, "bounced")
    await cluster.controller.end()
    patient = Controller(cluster.directory, cluster.zookeeper, 100, ["--set", "zookeeper.session.timeout.ms=30000"])
    cluster.controllers.append(patient)
    await patient.start()
    await patient.take_over()
    epoch = cluster.read("/controller_epoch")
    patient.send(signal.SIGSTOP)
    try:
        await cluster.brokers[2].kill()
        # its session is ended by its own hand, or it could not register again
        await until(lambda: not cluster.is_registered(2), "its registration is gone")
        await cluster.brokers[2].launch()
        await until(lambda: cluster.is_registered(2), "it is registered again")
    finally:
        patient.send(signal.SIGCONT)
    await cluster.brokers[2].listening()
    await in_sync(cluster, "bounced")
    await until(lambda: min(cluster.leaders("bounced")) > 0, "all are led")
    assert len(await cluster.produce("bounced", 50)) == 50
    assert (cluster.read("/controller")["brokerid"], cluster.read("/controller_epoch")) == (100, epoch), "one term"
    lines = map(json.loads, (patient.directory / "state-change.log").read_text().splitlines())
    seen = [
        one for one in lines if (one["kind"], one.get("broker_id"), one["controller_epoch"]) == ("broker", 2, epoch)
    ]
    assert ("live", "bounced") in [(one["target"], one["reason"]) for one in seen], seen
    await patient.end()
    await cluster.controller.start()
    await cluster.controller.take_over()


async def test_partitions_move_by_kafkas_own_reassignment_command(cluster: Cluster) -> None:
    await cluster.create("moved", "--replica-assignment", "1:2,2:3")
    assert len(await cluster.produce("moved", 100)) == 100
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": n, "replicas": [3, 1]} for n in (0, 1)]}
    path = cluster.directory / "plan.json"
    path.write_text(json.dumps(plan))
    name = "reassign.ReassignPartitionsCommand"
    output = await cluster.tool(name, "--execute", "--reassignment-json-file", str(path))
    assert "Successfully started partition reassignments for moved-0,moved-1" in output

    async def is_complete() -> bool:
        said = await cluster.tool(name, "--verify", "--reassignment-json-file", str(path))
        return said.count("is completed.") == 2

    await until(is_complete, "the reassignment is complete by its own word")
    assert "No partition reassignments found." in await cluster.tool(name, "--list")
    assert cluster.read("/brokers/topics/moved")["partitions"] == {"0": [3, 1], "1": [3, 1]}
    assert await cluster.consume("moved", 100) == 100


async def test_preferred_leaders_by_kafkas_own_election_command(cluster: Cluster) -> None:
    await cluster.create("elected", "--replica-assignment", "1:2:3,1:3:2")
    await in_sync(cluster, "elected")
    await cluster.brokers[1].stop()
    await cluster.brokers[1].start()
    await in_sync(cluster, "elected")
    assert 1 not in cluster.leaders("elected")
    asked = ("--election-type", "preferred", "--topic", "elected", "--partition", "0")
    output = await cluster.tool("LeaderElectionCommand", *asked)
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in output
    assert cluster.states("elected")[0]["leader"] == 1
    assert cluster.states("elected")[1]["leader"] != 1
    assert "Valid replica already elected" in await cluster.tool("LeaderElectionCommand", *asked)


async def test_a_failed_log_directory_loses_its_leaderships_and_nothing_else(cluster: Cluster) -> None:
    await cluster.create("dirs", "--replica-assignment", ",".join(["3:1:2"] * 4))
    await in_sync(cluster, "dirs")
    broker = cluster.brokers[3]
    directory = next(one for one in broker.log_directories if list(one.glob("dirs-*")))
    lost = {int(path.name.rpartition("-")[2]) for path in directory.glob("dirs-*")}
    shutil.rmtree(directory)
    directory.write_bytes(b"not a directory any more")
    await until(lambda: all(cluster.states("dirs")[n]["leader"] != 3 for n in lost), "others lead these")
    assert all(state["leader"] == 3 for n, state in cluster.states("dirs").items() if n not in lost)
    await broker.stop()
    directory.unlink()
    await broker.start()
    await in_sync(cluster, "dirs")


async def test_our_controller_killed_is_followed_by_a_kafka_broker_and_returns_when_asked(cluster: Cluster) -> None:
    await cluster.controller.end(signal.SIGKILL)
    await until(lambda: (cluster.read("/controller") or {}).get("brokerid") in (1, 2, 3), "the safety net holds")
    await cluster.create("while-away", *THREE)
    await cluster.controller.start()
    await cluster.controller.take_over()
    await in_sync(cluster, "while-away")
    assert len(await cluster.produce("while-away", 50)) == 50


async def test_preferred_ours_takes_the_seat_from_the_broker_that_got_it_but_not_after_a_handback(
    cluster: Cluster,
) -> None:
    def is_theirs() -> bool:
        return (cluster.read("/controller") or {}).get("brokerid") in (1, 2, 3)

    await cluster.controller.take_over()
    await cluster.controller.end(signal.SIGKILL)
    await until(is_theirs, "all of ours are away, and a broker got it")
    preferring = Controller(cluster.directory, cluster.zookeeper, 101, ["--prefer"])
    cluster.controllers.append(preferring)
    await preferring.start()
    await until(preferring.is_active, "it has taken the seat without a command")
    assert (await preferring.ask("POST", "/v1/handback", {}))[0] == 200
    await until(is_theirs, "it was given to them")
    await preferring.end()
    await preferring.start()
    await cluster.create("left-alone", *THREE)
    await in_sync(cluster, "left-alone")
    assert is_theirs()
    await preferring.take_over()
    assert cluster.read("/controller")["brokerid"] == 101


async def test_of_two_of_ours_the_other_leads_after_each_ones_end_but_not_after_a_handback(cluster: Cluster) -> None:
    """Whether or not a broker was faster, and with the default preference. After a handback none of ours leads. `python
    -m tests.real_brokers.kills` does it twenty times."""
    first, second = await pair(cluster)
    await followed(cluster, first, second)
    await first.start()
    taken = await followed(cluster, second, first)
    await second.start()
    assert await is_left_alone_after_a_handback(cluster, first, LEFT_FOR * taken.took_s)
