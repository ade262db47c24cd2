"""The part of the control endpoint that lets things go wrong: faults, forged words, spoilt tags, the gate (section 6)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from aiohttp import web

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.kube import KubeStatusError
from cocoon_devkit.agent.nodeagent import NodeAgent
from cocoon_devkit.agent.registryclient import RegistryError
from cocoon_devkit.agent.registrygate import RegistryGate, Rule
from cocoon_devkit.agent.tagfaults import change_tag
from cocoon_devkit.agent.wire import Obj

if TYPE_CHECKING:
    from cocoon_devkit.agent.fakenodes import FakeNodes


def agent_of(nodes: FakeNodes, request: web.Request) -> NodeAgent:
    """Return the agent that a path names; 404 when there is none."""
    agent = nodes.nodes.get(request.match_info["node"])
    if agent is None:
        raise web.HTTPNotFound(text=f"no node {request.match_info['node']}")
    return agent


class FaultControl:
    """The handlers. Bodies name the keyword arguments of what they call."""

    def __init__(self, nodes: FakeNodes) -> None:
        self._nodes = nodes

    def routes(self) -> list[web.RouteDef]:
        """Return the paths that are served here."""
        node, pod = "/nodes/{node}", "/nodes/{node}/pods/{namespace}/{pod}"
        return [
            web.get(f"{node}/faults", self.list_faults),
            web.post(f"{node}/faults", self.arm_fault),
            web.delete(f"{node}/faults", self.clear_faults),
            web.delete(f"{node}/faults/{{fault}}", self.clear_faults),
            web.post(f"{node}/faults/{{fault}}/release", self.release_fault),
            web.post(f"{node}/informer", self.set_informer),
            web.post(f"{pod}/status", self.overwrite_status),
            web.post(f"{pod}/lifecycle", self.forge_lifecycle),
            web.post("/tags", self.change_tag),
            web.get("/gate", self.show_gate),
            web.post("/gate/rules", self.add_rule),
            web.delete("/gate/rules", self.clear_rules),
            web.delete("/gate/rules/{rule}", self.clear_rules),
            web.post("/gate/{client}/{action:open|shut}", self.turn_door),
        ]

    # -- faults of a node -----------------------------------------------------------------------------------------------

    async def list_faults(self, request: web.Request) -> web.Response:
        return web.json_response(agent_of(self._nodes, request).faults.view())

    async def arm_fault(self, request: web.Request) -> web.Response:
        fault = agent_of(self._nodes, request).faults.arm(**await request.json())
        return web.json_response(fault.view())

    async def clear_faults(self, request: web.Request) -> web.Response:
        fault = request.match_info.get("fault")
        agent_of(self._nodes, request).faults.clear(int(fault) if fault else None)
        return web.json_response({})

    async def release_fault(self, request: web.Request) -> web.Response:
        if not agent_of(self._nodes, request).faults.release(int(request.match_info["fault"])):
            raise web.HTTPNotFound(text="no such fault")
        return web.json_response({})

    # -- pods as the agent sees and tells them --------------------------------------------------------------------------

    async def set_informer(self, request: web.Request) -> web.Response:
        """Pause the informer or let it go on, ``{"paused"}``, or let it see an old version again, ``{"pod", "version"}``."""
        body: Obj = await request.json()
        informer = agent_of(self._nodes, request).context.informer
        if "paused" in body:
            informer.pause(body["paused"])
        else:
            informer.replay(self._seen(request, body["pod"], body["version"]))
        return web.json_response({})

    async def overwrite_status(self, request: web.Request) -> web.Response:
        """Update the whole status from the version of the pod that ``{"version"}`` names (F-12)."""
        body: Obj = await request.json()
        agent = agent_of(self._nodes, request)
        pod = self._seen(request, _key(request), body["version"])
        return web.json_response(_version(await _api(agent.context.api.overwrite_status(pod))))

    async def forge_lifecycle(self, request: web.Request) -> web.Response:
        """Publish ``{"state", "generation", "message"}`` without its being so (F-19); the agent repairs it in its own time."""
        body: Obj = await request.json()
        agent = agent_of(self._nodes, request)
        pod = agent.context.informer.store.get(_key(request))
        if pod is None:
            raise web.HTTPNotFound(text=f"no pod {_key(request)} on this node")
        changes = {
            wire.LIFECYCLE_STATE: str(body["state"]),
            wire.LIFECYCLE_GENERATION: str(body["generation"]),
            wire.LIFECYCLE_MESSAGE: str(body["message"]) or None,
        }
        return web.json_response(_version(await _api(agent.context.api.annotate(pod, changes))))

    def _seen(self, request: web.Request, key: str, version: str) -> Obj:
        pod = agent_of(self._nodes, request).context.informer.seen(key, str(version))
        if pod is None:
            raise web.HTTPNotFound(text=f"version {version} of {key} is not remembered")
        return pod

    # -- the registry ---------------------------------------------------------------------------------------------------

    async def change_tag(self, request: web.Request) -> web.Response:
        """Change a tag behind everybody's back: ``{"ref", "change", "source"}``."""
        registry = self._nodes.registry()
        try:
            await change_tag(registry, **await request.json())
        except RegistryError as error:
            raise web.HTTPBadGateway(text=str(error)) from error
        finally:
            await registry.close()
        return web.json_response({})

    def _gate(self) -> RegistryGate:
        if self._nodes.gate is None:
            raise web.HTTPNotFound(text="there is no gate: start the nodes with --registry-gate")
        return self._nodes.gate

    async def show_gate(self, _request: web.Request) -> web.Response:
        gate = self._gate()
        return web.json_response({"doors": gate.doors, "rules": gate.view()})

    async def add_rule(self, request: web.Request) -> web.Response:
        return web.json_response({"id": self._gate().add(Rule(**await request.json())).id})

    async def clear_rules(self, request: web.Request) -> web.Response:
        rule = request.match_info.get("rule")
        self._gate().clear(int(rule) if rule else None)
        return web.json_response({})

    async def turn_door(self, request: web.Request) -> web.Response:
        client = request.match_info["client"]
        await (self._gate().open(client) if request.match_info["action"] == "open" else self._gate().shut(client))
        return web.json_response({})


def _key(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['pod']}"


async def _api(call: Awaitable[Obj]) -> Obj:
    try:
        return await call
    except KubeStatusError as error:
        raise web.HTTPBadGateway(text=str(error)) from error


def _version(pod: Obj) -> dict[str, str]:
    return {"version": str(pod["metadata"]["resourceVersion"])}
