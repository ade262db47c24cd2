"""A small client of the control endpoint, for tests and the demo.

It blocks: the double runs in a process of its own. Inside that process use the objects directly.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

_TIMEOUT: Final = 30.0


class ControlError(Exception):
    """The control endpoint refused; the message says why."""


class AgentClient:
    """Everything a test may do to the imaginary nodes behind ``base``, such as ``http://127.0.0.1:4711``."""

    def __init__(self, base: str) -> None:
        if not base.startswith("http://127.0.0.1:"):
            raise ValueError(f"the control endpoint is on this machine, not at {base!r}")
        self._base = base

    # -- nodes ------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[dict[str, Any]]:
        """Return name, ``running``, ``heartbeats``, and the numbers of VMs and snapshots of every node."""
        return self._list("GET", "/nodes")

    def add_node(self, name: str) -> None:
        self._call("POST", "/nodes", {"name": name})

    def stop_node(self, node: str) -> None:
        """Stop a node's agent gracefully."""
        self._call("POST", f"/nodes/{node}/stop")

    def kill_node(self, node: str) -> None:
        """Stop a node's agent dead, in the middle of whatever it does."""
        self._call("POST", f"/nodes/{node}/kill")

    def start_node(self, node: str) -> None:
        self._call("POST", f"/nodes/{node}/start")

    def restart_node(self, node: str) -> None:
        """Kill a node's agent and start it again: it then knows only what is on its disk and in the API."""
        self._call("POST", f"/nodes/{node}/restart")

    def heartbeats(self, node: str, *, on: bool) -> None:
        """Stop or resume lease and status of a Node; its pods are served on."""
        self._call("POST", f"/nodes/{node}/heartbeats", {"on": on})

    def wipe_node(self, node: str) -> None:
        """Lose VMs and snapshots of a node whose agent was killed."""
        self._call("POST", f"/nodes/{node}/wipe")

    def cordon(self, node: str, *, on: bool) -> None:
        """Let the scheduler place nothing on a node, or again."""
        self._call("POST", f"/nodes/{node}/cordon", {"on": on})

    def pause_informer(self, node: str, *, paused: bool) -> None:
        """Let the agent miss pod events until it is unpaused."""
        self._call("POST", f"/nodes/{node}/informer", {"paused": paused})

    def replay(self, node: str, pod: str, version: str) -> None:
        """Let the agent see an old version of a pod (``namespace/name``) as if it were news."""
        self._call("POST", f"/nodes/{node}/informer", {"pod": pod, "version": version})

    def overwrite_status(self, node: str, pod: str, version: str) -> None:
        """Let the agent update the whole status from an old version of a pod: its annotations come back (F-12)."""
        self._call("POST", f"/nodes/{node}/pods/{pod}/status", {"version": version})

    def forge_lifecycle(self, node: str, pod: str, state: str, generation: int, message: str = "") -> None:
        """Publish a lifecycle that is not so; the agent repairs it within its 15 s (F-19)."""
        body = {"state": state, "generation": generation, "message": message}
        self._call("POST", f"/nodes/{node}/pods/{pod}/lifecycle", body)

    def settings(self, node: str, **changes: Any) -> None:
        """Change any of ``cocoon_devkit.agent.settings.NodeSettings``; ``speeds``, ``capacity``, ``windows`` by parts."""
        self._call("POST", f"/nodes/{node}/settings", changes)

    def pods(self, node: str) -> list[dict[str, Any]]:
        """Return the pods that the agent tracks."""
        return self._list("GET", f"/nodes/{node}/pods")

    # -- VMs and snapshots ------------------------------------------------------------------------------------------

    def vms(self, node: str) -> dict[str, dict[str, Any]]:
        """Return a node's VMs by name: id, state, boot_id, memory (work, ticks, history), restored_from and _via."""
        return {vm["name"]: vm for vm in self._list("GET", f"/nodes/{node}/vms")}

    def plant_vm(self, node: str, name: str) -> dict[str, Any]:
        return dict(self._call("POST", f"/nodes/{node}/vms", {"name": name}))

    def change_vm(self, node: str, vm: str, **changes: Any) -> None:
        """Change a VM behind the agent's back, such as its ``ip`` or ``overlay_bytes``."""
        self._call("PATCH", f"/nodes/{node}/vms/{quote(vm)}", changes)

    def write_work(self, node: str, vm: str, text: str) -> dict[str, Any]:
        """Write a line into a running VM's memory. Raises :class:`ControlError` when it does not run."""
        return dict(self._call("POST", f"/nodes/{node}/vms/{quote(vm)}/work", {"text": text}))

    def crash_vm(self, node: str, vm: str, state: str = "stopped") -> None:
        """Let a VM fail by itself: ``stopped``, ``error`` or ``gone``."""
        self._call("POST", f"/nodes/{node}/vms/{quote(vm)}/crash", {"state": state})

    def snapshots(self, node: str) -> dict[str, dict[str, Any]]:
        """Return a node's local snapshots by name."""
        return {each["name"]: each for each in self._list("GET", f"/nodes/{node}/snapshots")}

    def copy_snapshot(self, node: str, source: str, name: str) -> None:
        """Put a copy of a local snapshot on the node, under any name and with an id of its own."""
        self._call("POST", f"/nodes/{node}/snapshots", {"source": source, "name": name})

    def change_snapshot(self, node: str, name: str, **changes: Any) -> None:
        """Change a local snapshot behind the agent's back, such as ``id`` or ``size``."""
        self._call("PATCH", f"/nodes/{node}/snapshots/{quote(name)}", changes)

    def forget_snapshot(self, node: str, name: str) -> None:
        """Lose a local snapshot behind the agent's back."""
        self._call("DELETE", f"/nodes/{node}/snapshots/{quote(name)}")

    def collect(self, node: str, **limits: Any) -> list[str]:
        """Run a node's garbage collection (``keep``, ``age`` in seconds, ``size`` in bytes, ``dry_run``); the victims."""
        victims: list[str] = self._call("POST", f"/nodes/{node}/gc", limits)
        return victims

    def reclaim(self, node: str) -> None:
        """Let the agent clear copies that no pod uses and no tag names, without waiting for its 10 minutes."""
        self._call("POST", f"/nodes/{node}/reclaim")

    def publish_image(self, ref: str, *, kind: str = "snapshot", hypervisor: str = "cloud-hypervisor") -> str:
        """Push a base image to the registry (``snapshot`` for clone, ``os`` for run); returns its digest."""
        answer = self._call("POST", "/images", {"ref": ref, "kind": kind, "hypervisor": hypervisor})
        return str(answer["digest"])

    # -- faults -----------------------------------------------------------------------------------------------------

    def fault(
        self,
        node: str,
        point: str,
        *,
        vm: str = "",
        fail: bool = True,
        message: str = "",
        delay: float = 0.0,
        hold: bool = False,
        status: int = 0,
        times: int | None = None,
        seconds: float | None = None,
    ) -> int:
        """Arm a fault (points: ``cocoon_devkit.agent.faults``); returns its id. ``delay`` and ``seconds`` are real seconds."""
        body = {"point": point, "vm": vm, "fail": fail, "message": message, "delay": delay, "hold": hold}
        body |= {"status": status, "times": times, "seconds": seconds}
        return int(self._call("POST", f"/nodes/{node}/faults", body)["id"])

    def kill_at(self, node: str, point: str, *, vm: str = "") -> int:
        """Kill a node's agent, as by SIGKILL, when it comes to a point; returns the fault's id."""
        body = {"point": point, "vm": vm, "kill": True, "times": 1}
        return int(self._call("POST", f"/nodes/{node}/faults", body)["id"])

    def wait_until_dead(self, node: str, *, seconds: float = 10.0) -> None:
        """Return once a node's agent does not run any more. Raises :class:`TimeoutError`."""
        self.wait(lambda: not any(each["running"] for each in self.nodes() if each["name"] == node), seconds=seconds)

    def barrier(self, node: str, point: str, *, vm: str = "") -> int:
        """Arm a barrier: whoever comes to the point waits until :meth:`release` (or :meth:`clear`), then goes on."""
        return self.fault(node, point, vm=vm, fail=False, hold=True)

    def faults(self, node: str) -> list[dict[str, Any]]:
        """Return the armed faults with ``hits`` and how many are ``waiting``."""
        return self._list("GET", f"/nodes/{node}/faults")

    def release(self, node: str, fault: int) -> None:
        self._call("POST", f"/nodes/{node}/faults/{fault}/release")

    def clear(self, node: str, fault: int | None = None) -> None:
        """Disarm one fault, or all of a node."""
        self._call("DELETE", f"/nodes/{node}/faults" + (f"/{fault}" if fault is not None else ""))

    def wait_at_barrier(self, node: str, fault: int, *, seconds: float = 10.0) -> None:
        """Return once somebody waits at a barrier. Raises :class:`TimeoutError`."""
        self.wait(lambda: any(each["id"] == fault and each["waiting"] for each in self.faults(node)), seconds=seconds)

    def wait_for_hit(self, node: str, fault: int, *, hits: int = 1, seconds: float = 10.0) -> None:
        """Return once a fault struck that often. Raises :class:`TimeoutError`."""
        self.wait(
            lambda: any(each["id"] == fault and each["hits"] >= hits for each in self.faults(node)), seconds=seconds
        )

    # -- the registry -----------------------------------------------------------------------------------------------

    def change_tag(self, ref: str, change: str, *, source: str = "") -> None:
        """Change a tag behind everybody's back (changes: ``cocoon_devkit.agent.tagfaults``)."""
        self._call("POST", "/tags", {"ref": ref, "change": change, "source": source})

    def gate(self) -> dict[str, str]:
        """Return the registry's addresses behind the gate, by client (``agent``, ``operator``)."""
        doors: dict[str, str] = self._call("GET", "/gate")["doors"]
        return doors

    def gate_rule(self, answer: int | str, **rule: Any) -> int:
        """Let the gate spoil requests (``cocoon_devkit.agent.registrygate.Rule``); returns the rule's id."""
        return int(self._call("POST", "/gate/rules", {"answer": answer, **rule})["id"])

    def gate_rules(self) -> list[dict[str, Any]]:
        """Return the rules in force with their ``hits``."""
        rules: list[dict[str, Any]] = self._call("GET", "/gate")["rules"]
        return rules

    def clear_gate(self, rule: int | None = None) -> None:
        """Take one rule or all out of force."""
        self._call("DELETE", "/gate/rules" + (f"/{rule}" if rule is not None else ""))

    def turn_door(self, client: str, *, shut: bool) -> None:
        """Refuse a client's connections, or take them again."""
        self._call("POST", f"/gate/{client}/{'shut' if shut else 'open'}")

    # -- journal ----------------------------------------------------------------------------------------------------

    def journal(self, *, since: int = 0, node: str = "", kind: str = "", op: str = "") -> list[dict[str, Any]]:
        """Return journal entries after ``since``, oldest first (``cocoon_devkit.agent.journal``)."""
        query = {"since": since, "node": node, "kind": kind, "op": op}
        return self._list("GET", "/journal?" + urlencode({key: value for key, value in query.items() if value}))

    def mark(self) -> int:
        """Return the number of the newest journal entry, to read on from later."""
        entries = self.journal()
        return int(entries[-1]["seq"]) if entries else 0

    # -- transport --------------------------------------------------------------------------------------------------

    @staticmethod
    def wait(condition: Callable[[], bool], *, seconds: float = 10.0, pause: float = 0.05) -> None:
        """Poll until a condition holds. Raises :class:`TimeoutError`."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not so within {seconds} s")
            time.sleep(pause)

    def _list(self, method: str, path: str) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self._call(method, path)
        return answer

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(  # noqa: S310  (the scheme is checked in __init__)
            self._base + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ControlError(f"{method} {path}: {error.read().decode(errors='replace')}") from error
