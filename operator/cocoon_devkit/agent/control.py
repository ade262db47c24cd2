"""The control endpoint of the double: nodes, VMs, snapshots, images, the journal, over HTTP with JSON bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from cocoon_devkit.agent import images, nodegc, reclaim
from cocoon_devkit.agent.controlfaults import FaultControl, agent_of
from cocoon_devkit.agent.nodeagent import NodeAgent
from cocoon_devkit.agent.podview import VMRequest
from cocoon_devkit.agent.records import SnapshotRecord, VMRecord
from cocoon_devkit.agent.registryclient import RegistryError
from cocoon_devkit.agent.wire import Obj

if TYPE_CHECKING:
    from cocoon_devkit.agent.fakenodes import FakeNodes

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(nodes: FakeNodes) -> web.Application:
    """Return the application; every answer is JSON, errors carry ``{"error": ...}``."""
    control = _Control(nodes)
    app = web.Application(middlewares=[_errors])
    app.add_routes(
        [
            web.get("/nodes", control.list_nodes),
            web.post("/nodes", control.add_node),
            web.post("/nodes/{node}/{action:stop|kill|start|restart}", control.run_node),
            web.post("/nodes/{node}/heartbeats", control.set_heartbeats),
            web.post("/nodes/{node}/wipe", control.wipe_disk),
            web.post("/nodes/{node}/cordon", control.cordon),
            web.post("/nodes/{node}/settings", control.change_settings),
            web.get("/nodes/{node}/pods", control.list_pods),
            web.get("/nodes/{node}/vms", control.list_vms),
            web.post("/nodes/{node}/vms", control.plant_vm),
            web.patch("/nodes/{node}/vms/{vm}", control.change_vm),
            web.post("/nodes/{node}/vms/{vm}/work", control.write_work),
            web.post("/nodes/{node}/vms/{vm}/crash", control.crash_vm),
            web.get("/nodes/{node}/snapshots", control.list_snapshots),
            web.post("/nodes/{node}/snapshots", control.copy_snapshot),
            web.patch("/nodes/{node}/snapshots/{name:.+}", control.change_snapshot),
            web.delete("/nodes/{node}/snapshots/{name:.+}", control.forget_snapshot),
            web.post("/nodes/{node}/gc", control.collect),
            web.post("/nodes/{node}/reclaim", control.reclaim),
            web.post("/images", control.publish_image),
            web.get("/journal", control.read_journal),
            *FaultControl(nodes).routes(),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response({"error": error.text}, status=error.status)
    except (KeyError, TypeError, ValueError) as error:
        return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)


class _Control:
    """The handlers. Bodies name the keyword arguments of what they call."""

    def __init__(self, nodes: FakeNodes) -> None:
        self._nodes = nodes

    def _node(self, request: web.Request) -> NodeAgent:
        return agent_of(self._nodes, request)

    # -- nodes ------------------------------------------------------------------------------------------------------

    async def list_nodes(self, _request: web.Request) -> web.Response:
        return web.json_response([_node_view(agent) for agent in self._nodes.nodes.values()])

    async def add_node(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response(_node_view(await self._nodes.add(body["name"])))

    async def run_node(self, request: web.Request) -> web.Response:
        """Stop, kill, start or restart (kill, then start) the agent of a node."""
        agent = self._node(request)
        action = request.match_info["action"]
        if action in {"kill", "restart"}:
            await agent.kill()
        elif action == "stop":
            await agent.stop()
        if action in {"start", "restart"}:
            await agent.start()
        return web.json_response(_node_view(agent))

    async def set_heartbeats(self, request: web.Request) -> web.Response:
        agent = self._node(request)
        await agent.set_heartbeats(on=bool((await request.json())["on"]))
        return web.json_response(_node_view(agent))

    async def wipe_disk(self, request: web.Request) -> web.Response:
        """Lose VMs and snapshots of a node whose agent was killed."""
        self._node(request).wipe_disk()
        return web.json_response({})

    async def cordon(self, request: web.Request) -> web.Response:
        await self._node(request).node.cordon(on=bool((await request.json())["on"]))
        return web.json_response({})

    async def change_settings(self, request: web.Request) -> web.Response:
        """Change any of a node's settings, parts of ``speeds``, ``capacity`` and ``windows``; a Node status is pushed."""
        agent = self._node(request)
        body: Obj = await request.json()
        for part in ("speeds", "capacity", "windows"):
            _assign(getattr(agent.settings, part), body.pop(part, {}))
        # A copy first: it refuses what makes no sense before anything has changed.
        replace(agent.settings, **body)
        _assign(agent.settings, body)
        if agent.node.beating:
            await agent.node.push_status()
        return web.json_response(_node_view(agent))

    async def list_pods(self, request: web.Request) -> web.Response:
        agent = self._node(request)
        return web.json_response(
            [
                {
                    "key": tracked.key,
                    "uid": tracked.uid,
                    "vm": tracked.vm_name,
                    "id": tracked.vm_id,
                    "intent": asdict(tracked.intent) if tracked.intent else None,
                    "tasks": sorted(tracked.tasks),
                }
                for tracked in agent.context.table
            ]
        )

    # -- VMs --------------------------------------------------------------------------------------------------------

    async def list_vms(self, request: web.Request) -> web.Response:
        return web.json_response([vm_view(vm) for vm in self._node(request).engine.vms()])

    async def plant_vm(self, request: web.Request) -> web.Response:
        """Put a running VM on the node that no pod asked for (N035, N190)."""
        body = await request.json()
        return web.json_response(vm_view(self._node(request).engine.plant_vm(planted_request(body["name"]))))

    async def change_vm(self, request: web.Request) -> web.Response:
        """Change a VM behind the agent's back, such as its ``ip`` or ``overlay_bytes``."""
        name = request.match_info["vm"]
        vm = self._node(request).engine.change_vm(name, **await request.json())
        if vm is None:
            raise web.HTTPNotFound(text=f"no VM {name}")
        return web.json_response(vm_view(vm))

    async def write_work(self, request: web.Request) -> web.Response:
        name = request.match_info["vm"]
        vm = self._node(request).engine.work(name, (await request.json())["text"])
        if vm is None:
            raise web.HTTPNotFound(text=f"no VM {name} runs here")
        return web.json_response(vm_view(vm))

    async def crash_vm(self, request: web.Request) -> web.Response:
        """Let a VM fail by itself: ``{"state": "stopped" | "error" | "gone"}``."""
        agent = self._node(request)
        name, state = request.match_info["vm"], (await request.json())["state"]
        if agent.engine.crash(name, state) is None:
            raise web.HTTPNotFound(text=f"no VM {name}")
        return web.json_response({})

    # -- snapshots --------------------------------------------------------------------------------------------------

    async def list_snapshots(self, request: web.Request) -> web.Response:
        return web.json_response([snapshot_view(each) for each in self._node(request).engine.snapshots()])

    async def copy_snapshot(self, request: web.Request) -> web.Response:
        """Put a copy of a local snapshot on the node under another name: ``{"source", "name"}``."""
        body = await request.json()
        engine = self._node(request).engine
        source = engine.snapshot(body["source"])
        if source is None:
            raise web.HTTPNotFound(text=f"no snapshot {body['source']}")
        return web.json_response(snapshot_view(engine.import_snapshot(replace(source, name=body["name"]))))

    async def change_snapshot(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        snapshot = self._node(request).engine.change_snapshot(name, **await request.json())
        if snapshot is None:
            raise web.HTTPNotFound(text=f"no snapshot {name}")
        return web.json_response(snapshot_view(snapshot))

    async def forget_snapshot(self, request: web.Request) -> web.Response:
        self._node(request).engine.forget_snapshot(request.match_info["name"])
        return web.json_response({})

    async def collect(self, request: web.Request) -> web.Response:
        """Run the node's garbage collection: ``keep``, ``age``, ``size``, ``dry_run``; answers with the victims."""
        agent = self._node(request)
        if "node-gc" not in agent.settings.cache_reclaim:
            raise web.HTTPConflict(text="the switch cache_reclaim has no node-gc")
        return web.json_response(nodegc.collect(agent.engine, **await request.json()))

    async def reclaim(self, request: web.Request) -> web.Response:
        await reclaim.reclaim(self._node(request).context)
        return web.json_response({})

    # -- the rest ---------------------------------------------------------------------------------------------------

    async def publish_image(self, request: web.Request) -> web.Response:
        """Push a base image: ``{"ref", "kind": "snapshot" | "os", "hypervisor"}``; answers with its digest."""
        body: Obj = await request.json()
        registry = self._nodes.registry()
        try:
            if body.get("kind", "snapshot") == "os":
                digest = await images.publish_os_image(registry, body["ref"])
            else:
                hypervisor = body.get("hypervisor", "cloud-hypervisor")
                digest = await images.publish_snapshot(registry, body["ref"], hypervisor=hypervisor)
        except RegistryError as error:
            raise web.HTTPBadGateway(text=str(error)) from error
        finally:
            await registry.close()
        return web.json_response({"digest": digest})

    async def read_journal(self, request: web.Request) -> web.Response:
        query = request.query
        entries = self._nodes.journal.select(
            since=int(query.get("since", "0")),
            node=query.get("node", ""),
            kind=query.get("kind", ""),
            op=query.get("op", ""),
        )
        return web.json_response(entries)


def vm_view(vm: VMRecord) -> dict[str, Any]:
    """Return what a test may know about a VM; ``memory`` is as of now."""
    names = ("id", "name", "state", "ip", "image", "cloned_from", "restored_from", "restored_digest", "restored_via")
    memory = vm.live_memory()
    return {name: getattr(vm, name) for name in names} | {"boot_id": memory.boot_id, "memory": asdict(memory)}


def snapshot_view(snapshot: SnapshotRecord) -> dict[str, Any]:
    return asdict(snapshot)


def _node_view(agent: NodeAgent) -> dict[str, Any]:
    return {
        "name": agent.settings.name,
        "running": agent.running,
        "heartbeats": agent.node.beating,
        "vms": len(agent.engine.vms()),
        "snapshots": len(agent.engine.snapshots()),
    }


def _assign(target: object, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if not hasattr(target, name):
            raise KeyError(name)
        setattr(target, name, value)


def planted_request(name: str) -> VMRequest:
    """Return what a VM is made of that no pod asked for."""
    return VMRequest(
        vm_name=name,
        mode="run",
        image="planted",
        os="linux",
        backend="cloud-hypervisor",
        managed=True,
        fork_from="",
        clone_from_dir="",
        force_pull=False,
        probe_port=0,
        cpu=1,
        memory=1 << 30,
        storage=10 << 30,
    )
