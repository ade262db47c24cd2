"""What a pod may be made from: the tag is asked before every create (design 4.3 rule 1), and only its answer decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Answer, Present
from cocoon_operator.api.cocoonset import AgentSpec, ToolboxSpec
from cocoon_operator.reconcile import records, tags
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.run import Run


@dataclass(frozen=True, slots=True)
class Fresh:
    """No saved state exists, and none is on record: a fresh boot loses nothing."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The tag exists and is the set's own: the pod gets the restore mark."""

    digest: str


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """The saved memory belongs to another image: it is moved aside first, then the boot is fresh (W-13)."""

    why: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing may be created now; the reason is reported already."""


Source: TypeAlias = Fresh | Restore | OtherMachine | Blocked


async def find(run: Run, member: Member) -> Source:
    """Decide what the pod of a member may be made from."""
    if not member.managed:
        return Fresh()
    if other := tags.rival(run, member.vm_name):
        tags.report_rival(run, member.vm_name, other)
        return Blocked()
    answer: Answer | None = await tags.ask(run, member.vm_name)
    if isinstance(answer, Present) and member.vm_name not in run.own_names:
        return await leftover(run, member, answer)
    if isinstance(answer, Absent) and member.vm_name in run.records:
        answer = await tags.put_back(run, member.vm_name)
    match answer:
        case Present():
            return _restorable(run, member, answer)
        case Absent():
            return Fresh()
        case _:
            return Blocked()


async def leftover(run: Run, member: Member, found: Present) -> Source:
    """A tag under a name that was never settled as this set's: of an earlier namesake, neither resurrected nor destroyed."""
    if not run.ctx.claims.complete:
        message = (
            f"{member.vm_name}:{keys.TAG_HIBERNATE} ({found.digest}) exists and is not this set's; only one namespace is "
            f"watched, so it is not moved: remove or re-tag it"
        )
        run.trouble("LeftoverSnapshot", message)
        run.come_back(60)
        return Blocked()
    orphan = await tags.move_aside(run, member.vm_name)
    if orphan is None:
        return Blocked()
    if orphan:
        run.event(
            "Warning",
            "LeftoverSnapshotMoved",
            f"{member.vm_name}:{keys.TAG_HIBERNATE} was left by an earlier set of this name; it is now {member.vm_name}:{orphan}",
        )
    return Fresh()


async def enlist(run: Run, members: Iterable[Member]) -> None:
    """Write VM names down before their first create, so that deletion collects their tags (rule 3)."""
    names = {member.vm_name for member in members if member.managed} - set(records.listed_names(run.set))
    if names:
        text = records.names_text((*records.listed_names(run.set), *run.own_names, *names))
        await run.annotate_set({keys.DELETE_VM_NAMES: text})


def _restorable(run: Run, member: Member, found: Present) -> Source:
    options: AgentSpec | ToolboxSpec = run.spec.agent if member.toolbox is None else member.toolbox
    if found.base_image and found.base_image != options.image:
        return OtherMachine(f"it was saved from image {found.base_image}, and the set asks for {options.image}")
    return Restore(found.digest)
