"""Vocabularies: what is a member, and what an empty text means."""

from __future__ import annotations

from enum import StrEnum

import pytest

from cocoon_operator.api.enums import (
    AgentMode,
    Backend,
    ConnType,
    Desire,
    HibernatePolicy,
    HibernationPhase,
    LifecycleState,
    OperatingSystem,
    Role,
    SetPhase,
    SnapshotPolicy,
    ToolboxMode,
    is_member,
    or_default,
)

_VOCABULARIES = [
    pytest.param(AgentMode, {"clone", "run"}, "static", marks=pytest.mark.scenario("S001")),
    pytest.param(ToolboxMode, {"run", "clone", "static"}, "fork", marks=pytest.mark.scenario("S002")),
    pytest.param(
        OperatingSystem, {"linux", "windows", "android", "macos"}, "freebsd", marks=pytest.mark.scenario("S003")
    ),
    pytest.param(SnapshotPolicy, {"always", "main-only", "never"}, "sometimes", marks=pytest.mark.scenario("S004")),
    pytest.param(HibernatePolicy, {"retain", "release"}, "relase", marks=pytest.mark.scenario("S005")),
    pytest.param(ConnType, {"ssh", "rdp", "vnc", "adb"}, "telnet", marks=pytest.mark.scenario("S006")),
    pytest.param(Backend, {"cloud-hypervisor", "firecracker"}, "qemu", marks=pytest.mark.scenario("S007")),
    pytest.param(Desire, {"Hibernate", "Wake"}, "hibernate", marks=pytest.mark.scenario("S008")),
    pytest.param(Role, {"main", "sub-agent", "toolbox"}, "sub"),
    pytest.param(LifecycleState, {"creating", "ready", "hibernating", "hibernated", "failed"}, "Failed"),
    pytest.param(
        SetPhase,
        {"Pending", "Running", "Scaling", "Suspending", "Suspended", "Waking", "Migrating", "Failed"},
        "Active",
    ),
    pytest.param(HibernationPhase, {"Pending", "Hibernating", "Hibernated", "Waking", "Active", "Failed"}, "Suspended"),
]


@pytest.mark.parametrize(("vocabulary", "words", "unknown"), _VOCABULARIES)
def test_a_vocabulary_has_exactly_its_words(vocabulary: type[StrEnum], words: set[str], unknown: str) -> None:
    assert {str(member) for member in vocabulary} == words
    assert all(is_member(vocabulary, word) for word in words)
    assert not is_member(vocabulary, "")
    assert not is_member(vocabulary, unknown)


@pytest.mark.scenario("S009")
@pytest.mark.parametrize(
    ("vocabulary", "default"),
    [
        (AgentMode, "clone"),
        (ToolboxMode, "run"),
        (OperatingSystem, "linux"),
        (SnapshotPolicy, "always"),
        (HibernatePolicy, "retain"),
        (Backend, "cloud-hypervisor"),
    ],
)
def test_an_empty_value_is_the_default_and_every_other_one_passes(vocabulary: type[StrEnum], default: str) -> None:
    assert or_default(vocabulary, "") == default
    assert all(or_default(vocabulary, word) == word for word in [*vocabulary, "unheard-of"])


def test_a_vocabulary_without_a_default_has_none() -> None:
    with pytest.raises(KeyError):
        or_default(ConnType, "")
