"""The double inside a test's own process: calls that the framework's queue would never make, and windows of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from node_fleet import Fleet, Obj
from nodes import IMAGE, PREFIX

from cocoon_devkit.agent import Capacity, FakeNodes, NodeSettings, Speeds, Windows
from cocoon_devkit.agent.client import AgentClient, ControlError
from cocoon_devkit.agent.control import planted_request
from cocoon_devkit.agent.create import ProviderError
from cocoon_devkit.agent.delete import delete_pod
from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.journal import Journal, NodeJournal
from cocoon_devkit.agent.kube import Kube
from cocoon_devkit.agent.node import NodeObject
from cocoon_devkit.agent.nodeagent import NodeAgent
from cocoon_devkit.agent.tracked import Table, Tracked
from cocoon_devkit.agent.update import update_pod
from cocoon_devkit.cluster import Cluster

GI = 1 << 30


@pytest.fixture
def template(fleet: Fleet, tmp_path: Path) -> NodeSettings:
    """Quick nodes; an engine that does not answer is given up after half a second instead of half an hour."""
    return NodeSettings(
        name="",
        state_dir=tmp_path,
        registry=f"{fleet.registry.address}/{PREFIX}",
        pool="inner",
        speeds=Speeds(boot=0, save=0),
        windows=Windows(scale=0.1, inspect_first=0.5, inspect_total=5),
    )


@pytest_asyncio.fixture
async def nodes(cluster: Cluster, template: NodeSettings) -> AsyncIterator[FakeNodes]:
    async with FakeNodes(cluster.kubeconfig, template, ["inner"]) as nodes:
        yield nodes
    await asyncio.to_thread(cluster.kubectl, "delete", "node", *nodes.nodes)


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within 10 s: {what}")


async def boot(fleet: Fleet, agent: NodeAgent, name: str) -> Tracked:
    """Make a pod on the inner node and wait for its VM to be ready."""
    await asyncio.to_thread(fleet.begin, name, node="inner")
    key = f"{fleet.namespace}/{fleet.full(name)}"

    def ready() -> bool:
        tracked = agent.context.table.get(key)
        return tracked is not None and tracked.intent is not None and tracked.intent.state == "ready"

    await until(ready, f"{name} is ready")
    tracked = agent.context.table.get(key)
    assert tracked is not None
    return tracked


@pytest.mark.asyncio
@pytest.mark.scenario("N174")
async def test_a_second_delete_beside_one_in_flight_is_an_error(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    barrier = agent.faults.arm("vm.remove", fail=False, hold=True)
    first = asyncio.ensure_future(delete_pod(agent.context, tracked.pod))
    await until(lambda: barrier.waiting == 1, "the first delete is at the barrier")
    with pytest.raises(ProviderError):
        await delete_pod(agent.context, tracked.pod)
    assert barrier.hits == 1
    assert agent.context.table.current(tracked)
    agent.faults.release(barrier.id)
    await first
    assert agent.engine.by_name(tracked.vm_name) is None


@pytest.mark.asyncio
@pytest.mark.scenario("N173")
async def test_a_delete_for_a_superseded_uid_changes_nothing(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    older: Obj = {**tracked.pod, "metadata": {**tracked.pod["metadata"], "uid": "older"}}
    await delete_pod(agent.context, older)
    assert agent.context.table.current(tracked)
    vm = agent.engine.by_name(tracked.vm_name)
    assert vm is not None
    assert vm.state == "running"


@pytest.mark.asyncio
@pytest.mark.scenario("N053")
async def test_a_namesake_that_arrives_as_an_update_gets_its_own_create(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    agent.context.informer.pause(paused=True)
    await asyncio.to_thread(fleet.ask_delete, "demo-0", force=True)
    second = await asyncio.to_thread(fleet.begin, "demo-0", node="inner")
    await update_pod(agent.context, await asyncio.to_thread(fleet.the_pod, "demo-0"))
    successor = agent.context.table.get(tracked.key)
    assert successor is not None
    assert successor.uid == second
    # A report that was still on its way for the first one reaches nobody.
    assert not await agent.context.lifecycle.write(tracked, tracked.pod, "hibernating")
    agent.context.informer.pause(paused=False)
    pod = await asyncio.to_thread(fleet.until_state, "demo-0", "ready")
    assert pod["metadata"]["uid"] == second


@pytest.mark.asyncio
@pytest.mark.scenario("N059")
async def test_a_late_report_of_an_older_generation_is_dropped(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    older = tracked.pod
    await asyncio.to_thread(fleet.annotate, "demo-0", generation="5")
    await until(lambda: tracked.intent is not None and tracked.intent.generation == 5, "the stamp is echoed")
    tracked.pod = older
    since = len(nodes.journal.select())
    assert not await agent.context.lifecycle.write(tracked, older, "hibernating")
    assert tracked.intent is not None
    assert (tracked.intent.state, tracked.intent.generation) == ("ready", 5)
    assert not [each for each in nodes.journal.select(kind="api", op="annotate") if each["seq"] > since]


@pytest.mark.asyncio
@pytest.mark.scenario("N185")
async def test_an_engine_that_never_answers_evicts_the_pod(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    agent.faults.arm("vm.inspect")
    agent.engine.crash(tracked.vm_name, "stopped")
    await until(lambda: not agent.context.table.current(tracked), "the pod is evicted")
    statuses = [each for each in nodes.journal.select(kind="api", op="status") if each["pod"] == tracked.key]
    await until(lambda: bool(statuses) and fleet.get("demo-0") is None, "the pod is gone")
    # Nobody knows whether the VM is there, so it is not removed.
    assert agent.engine.by_name(tracked.vm_name) is not None


@pytest.mark.asyncio
@pytest.mark.scenario("N001")
async def test_the_control_endpoint_refuses_what_is_not_there(fleet: Fleet, nodes: FakeNodes) -> None:
    client = AgentClient(nodes.control)
    calls: list[Callable[[], object]] = [
        lambda: client.vms("nobody"),
        lambda: client.write_work("inner", "no-vm", "text"),
        lambda: client.crash_vm("inner", "no-vm"),
        lambda: client.change_snapshot("inner", "no-snapshot", size=1),
        lambda: client.release("inner", 99),
        lambda: client.settings("inner", colour="blue"),
        lambda: client.publish_image("UPPER:case:tag"),
    ]
    for call in calls:
        with pytest.raises(ControlError):
            await asyncio.to_thread(call)
    await asyncio.to_thread(client.add_node, "outer")
    assert [each["name"] for each in await asyncio.to_thread(client.nodes)] == ["inner", "outer"]


@pytest.mark.asyncio
@pytest.mark.scenario("N008", "N009")
async def test_storage_is_pushed_only_when_it_changed(cluster: Cluster, tmp_path: Path) -> None:
    kube = await Kube.connect(cluster.kubeconfig)
    capacity = Capacity(cpu=32, storage=100 * GI, base_images=90 * GI, reserve=0)
    settings = NodeSettings(name="measured", state_dir=tmp_path, pool="nobody", capacity=capacity)
    journal, faults = Journal(), Faults()
    own = NodeJournal(journal, "measured")
    node = NodeObject(kube, settings, Engine(tmp_path, Speeds(), faults, own), Table(), own)
    try:
        await node.register()
        before = await kube.get("/api/v1/nodes/measured")
        capacity.base_images = 0
        faults.arm("storage", times=1)
        await node.push_changed_storage()
        assert journal.select(op="node-storage") == [], "what could not be measured is not told"
        for free in (10, 12, 12):
            capacity.base_images = (100 - free) * GI
            await node.push_changed_storage()
        after = await kube.get("/api/v1/nodes/measured")
        assert [each["storage"] for each in journal.select(op="node-storage")] == [12 * GI]
        assert int(after["status"]["allocatable"]["ephemeral-storage"]) == 12 * GI
        assert after["status"]["allocatable"]["cpu"] == before["status"]["allocatable"]["cpu"] == "32"
        settings.pinned_storage = 12 * GI
        capacity.base_images = 0
        await node.push_changed_storage()
        assert len(journal.select(op="node-storage")) == 1
    finally:
        await kube.delete("/api/v1/nodes/measured", {})
        await kube.close()


@pytest.mark.asyncio
@pytest.mark.scenario("N002", "N003", "N005", "N006")
async def test_what_a_node_has_is_what_the_api_server_stores(cluster: Cluster, tmp_path: Path) -> None:
    """32 CPUs; 100 Gi of disk of which 60 are free; the value of the start; a template with a taint of that key."""
    kube = await Kube.connect(cluster.kubeconfig)
    own_taint = {"key": "virtual-kubelet.io/provider", "value": "other", "effect": "NoExecute"}
    settings = NodeSettings(
        name="counted",
        state_dir=tmp_path,
        pool="nobody",
        capacity=Capacity(cpu=32, storage=100 * GI, base_images=40 * GI, reserve=20),
        storage_allocatable="startup",
        taints=(own_taint,),
    )
    own = NodeJournal(Journal(), "counted")
    engine = Engine(tmp_path, Speeds(), Faults(), own)

    async def start() -> Obj:
        """Let an agent start on the node; returns the Node."""
        node = NodeObject(kube, settings, engine, Table(), own)
        await node.register()
        if engine.by_name("v") is None:
            engine.plant_vm(planted_request("v")).overlay_bytes = 0
            engine.change_snapshot((await engine.save(engine.vms()[0], "kept")).name, size=10 * GI)
        await node.push_changed_storage()
        return await kube.get("/api/v1/nodes/counted")

    try:
        body = await start()
        provider = [each for each in body["spec"]["taints"] if each["key"] == "virtual-kubelet.io/provider"]
        assert provider == [own_taint]
        have, free = body["status"]["capacity"], body["status"]["allocatable"]
        assert (have["cpu"], free["cpu"], have["pods"], free["pods"]) == ("32", "25", "256", "256")
        assert (have["ephemeral-storage"], free["ephemeral-storage"]) == (str(100 * GI), str(48 * GI))
        again = await start()
        assert again["status"]["allocatable"]["ephemeral-storage"] == str(40 * GI)
    finally:
        await kube.delete("/api/v1/nodes/counted", {})
        await kube.close()


@pytest.mark.asyncio
@pytest.mark.scenario("N136")
async def test_a_live_snapshot_pauses_the_vm_for_the_save_alone(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    vm = tracked.vm_name
    barrier = agent.faults.arm("push.start", fail=False, hold=True)
    agent.settings.speeds.save = 0.5
    since = (await asyncio.to_thread(fleet.the_pod, "demo-0"))["metadata"]["resourceVersion"]
    await asyncio.to_thread(fleet.annotate, "demo-0", snapshot=f"team/{fleet.prefix}:s1")
    await until(lambda: agent.engine.paused(vm), "the VM is being saved")
    assert not agent.context.probes.once(tracked)
    await until(lambda: barrier.waiting == 1, "the push has begun")
    assert not agent.engine.paused(vm)
    assert agent.context.probes.once(tracked)
    written = [
        each for each in nodes.journal.select(kind="api", op="status") if int(each["resourceVersion"]) > int(since)
    ]
    assert written == [], "it was ready all the time"
    agent.faults.release(barrier.id)
    await until(lambda: tracked.answer != "", "the answer")


@pytest.mark.asyncio
@pytest.mark.scenario("N155")
async def test_an_update_that_the_answer_causes_writes_nothing(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = nodes.nodes["inner"]
    tracked = await boot(fleet, agent, "demo-0")
    await asyncio.to_thread(fleet.annotate, "demo-0", snapshot=f"team/{fleet.prefix}:s1")
    await until(lambda: tracked.answer != "", "the answer")
    since = len(nodes.journal.select())
    await update_pod(agent.context, await asyncio.to_thread(fleet.the_pod, "demo-0"))
    assert [each for each in nodes.journal.select(kind="api") if each["seq"] > since] == []
    assert len(nodes.journal.select(kind="engine", op="save")) == 1


@pytest.mark.asyncio
@pytest.mark.scenario("N001", "N013")
async def test_several_nodes_share_a_process_and_nothing_else(fleet: Fleet, nodes: FakeNodes) -> None:
    agent = await nodes.add("outer")
    assert agent.settings.kubelet_port != nodes.nodes["inner"].settings.kubelet_port
    tracked = await boot(fleet, nodes.nodes["inner"], "demo-0")
    assert agent.engine.vms() == []
    await nodes.nodes["inner"].kill()
    assert agent.running
    assert tracked.request.image == IMAGE
