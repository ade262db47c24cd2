"""What can be configured, by flag and by environment (contract 8.1); a flag beats its variable, an empty one is unset."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from cocoon_operator.clients.registry.reference import InvalidRegistryError, RegistryAddress, parse_registry

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LEVELS: Final = ("debug", "info", "warn", "warning", "error")
_FORMATS: Final = ("text", "json")


class ConfigError(Exception):
    """A setting that the operator cannot start with; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; an empty host means everywhere."""

    host: str
    port: int

    @override
    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, valid. Durations are in seconds; ``tag_collection_timeout`` 0 waits for ever."""

    registry: RegistryAddress
    metrics: Address | None
    probes: Address | None
    leader_elect: bool
    lease_duration: float
    renew_deadline: float
    retry_period: float
    lease_namespace: str
    set_workers: int
    hibernation_workers: int
    hibernate_timeout: float
    wake_timeout: float
    log_level: str
    log_format: str
    kubeconfig: str
    tag_collection_timeout: float
    registry_timeout: float
    resync_interval: float
    crd_timeout: float
    watch_namespace: str | None


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting: its variable, its flag ("" for none), its default, and what it is for."""

    env: str
    flag: str
    default: str
    help: str


_SETTINGS: Final = {
    "metrics": _Setting("METRICS_ADDR", "--metrics-bind-address", ":8080", "where /metrics is served, 0 for nowhere"),
    "probes": _Setting(
        "PROBE_ADDR", "--health-probe-bind-address", ":8081", "where /healthz, /livez and /readyz are served"
    ),
    "leader_elect": _Setting("LEADER_ELECT", "--leader-elect", "true", "act only while holding the Lease"),
    "lease_duration": _Setting(
        "LEADER_ELECT_LEASE_DURATION",
        "--leader-elect-lease-duration",
        "15s",
        "how long other replicas wait for a leader that is silent",
    ),
    "renew_deadline": _Setting(
        "LEADER_ELECT_RENEW_DEADLINE",
        "--leader-elect-renew-deadline",
        "10s",
        "how long a leader that cannot renew goes on",
    ),
    "retry_period": _Setting(
        "LEADER_ELECT_RETRY_PERIOD",
        "--leader-elect-retry-period",
        "2s",
        "how often the Lease is renewed, or asked for",
    ),
    "set_workers": _Setting("COCOONSET_CONCURRENCY", "--cocoonset-concurrency", "4", "sets worked on at once"),
    "hibernation_workers": _Setting(
        "HIBERNATION_CONCURRENCY",
        "--hibernation-concurrency",
        "4",
        "CocoonHibernations without a set worked on at once",
    ),
    "hibernate_timeout": _Setting(
        "HIBERNATE_TIMEOUT", "", "3m", "when a CocoonHibernation that is not confirmed as saved shows Failed"
    ),
    "wake_timeout": _Setting("WAKE_TIMEOUT", "", "5m", "when a CocoonHibernation whose VM is not up shows Failed"),
    "kubeconfig": _Setting(
        "KUBECONFIG", "--kubeconfig", "", "cluster to use; without one: the one we run in, else ~/.kube/config"
    ),
    "registry": _Setting("OCI_REGISTRY", "", "", "host[:port][/path] of the snapshots, without a scheme; required"),
    "log_level": _Setting("OPERATOR_LOG_LEVEL", "", "info", "debug, info, warn or error"),
    "log_format": _Setting("LOG_FORMAT", "", "text", "text or json"),
    "tag_collection_timeout": _Setting(
        "TAG_COLLECTION_TIMEOUT", "", "10m", "how long a deletion waits for tags it cannot collect, 0 for ever"
    ),
    "registry_timeout": _Setting("REGISTRY_TIMEOUT", "", "10s", "how long one question to the registry may take"),
    "resync_interval": _Setting("RESYNC_INTERVAL", "", "5m", "how often everything is looked at without an event"),
    "crd_timeout": _Setting("CRD_TIMEOUT", "", "30s", "how long to wait at the start for the CRDs to be served"),
    "watch_namespace": _Setting("WATCH_NAMESPACE", "", "", "work in this namespace only"),
    "lease_namespace": _Setting("POD_NAMESPACE", "", "cocoon-system", "namespace of the Lease outside a cluster"),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the contract; what has none is told in the text below them."""
    for name, setting in _SETTINGS.items():
        if setting.flag:
            text = f"{setting.help} (env {setting.env}, default {setting.default or 'none'})"
            optional = {"nargs": "?", "const": "true"} if name == "leader_elect" else {}
            parser.add_argument(setting.flag, dest=name, metavar="VALUE", help=text, **optional)  # type: ignore[arg-type]
    lines = [
        f"  {setting.env:<24} {setting.help} (default {setting.default or 'none'})"
        for setting in _SETTINGS.values()
        if not setting.flag
    ]
    parser.epilog = "environment only:\n" + "\n".join(lines)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def load(flags: Mapping[str, str | None], env: Mapping[str, str]) -> Config:
    """Read every setting. Raises :class:`ConfigError`."""
    read = _Reader(flags, env)
    config = Config(
        registry=_registry(read.text("registry")),
        metrics=_address("METRICS_ADDR", read.text("metrics")),
        probes=_address("PROBE_ADDR", read.text("probes")),
        leader_elect=read.boolean("leader_elect"),
        lease_duration=read.duration("lease_duration"),
        renew_deadline=read.duration("renew_deadline"),
        retry_period=read.duration("retry_period"),
        lease_namespace=read.text("lease_namespace"),
        set_workers=read.integer("set_workers"),
        hibernation_workers=read.integer("hibernation_workers"),
        hibernate_timeout=read.duration("hibernate_timeout"),
        wake_timeout=read.duration("wake_timeout"),
        log_level=read.choice("log_level", _LEVELS),
        log_format=read.choice("log_format", _FORMATS),
        kubeconfig=read.text("kubeconfig"),
        tag_collection_timeout=read.duration("tag_collection_timeout"),
        registry_timeout=read.duration("registry_timeout"),
        resync_interval=read.duration("resync_interval"),
        crd_timeout=read.duration("crd_timeout"),
        watch_namespace=read.text("watch_namespace") or None,
    )
    _check_ranges(config)
    return config


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration text (``10m``, ``1h30m``, ``1.5s``, ``0``). Raises :class:`ValueError`."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write for example 90s, 10m or 1h30m")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


class _Reader:
    """Where a value comes from: the flag, else the variable unless it is empty, else the default."""

    def __init__(self, flags: Mapping[str, str | None], env: Mapping[str, str]) -> None:
        self._flags = flags
        self._env = env

    def text(self, name: str) -> str:
        flag = self._flags.get(name)
        return flag if flag is not None else self._env.get(_SETTINGS[name].env) or _SETTINGS[name].default

    def boolean(self, name: str) -> bool:
        """A flag that says neither is refused; a variable that does reads as the default (S319)."""
        text = self.text(name)
        if text in _TRUE | _FALSE:
            return text in _TRUE
        if self._flags.get(name) is not None:
            raise ConfigError(f"{_SETTINGS[name].flag}={text}: write true or false")
        return _SETTINGS[name].default in _TRUE

    def integer(self, name: str) -> int:
        """A flag that is no number is refused; a variable that is none reads as the default (S318)."""
        text = self.text(name)
        if _INTEGER.match(text):
            return int(text)
        if self._flags.get(name) is not None:
            raise ConfigError(f"{_SETTINGS[name].flag}={text}: write a number")
        return int(_SETTINGS[name].default)

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        text = self.text(name).lower()
        if text not in allowed:
            raise ConfigError(f"{_SETTINGS[name].env}={text}: use one of {', '.join(allowed)}")
        return text

    def duration(self, name: str) -> float:
        setting = _SETTINGS[name]
        try:
            return parse_duration(self.text(name))
        except ValueError as error:
            where = setting.flag if self._flags.get(name) is not None else setting.env
            raise ConfigError(f"{where}: {error}") from None


def _registry(text: str) -> RegistryAddress:
    try:
        return parse_registry(text)
    except InvalidRegistryError as error:
        raise ConfigError(str(error)) from None


def _address(name: str, text: str) -> Address | None:
    if text in {"0", "off"}:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not _INTEGER.match(port) or not 0 <= int(port) <= 65535:
        raise ConfigError(f"{name}={text}: write [host]:port, or 0 to switch it off")
    return Address(host.strip("[]"), int(port))


def _check_ranges(config: Config) -> None:
    if config.set_workers < 1:
        raise ConfigError(f"cocoonset concurrency must be at least 1, got {config.set_workers}")
    if config.hibernation_workers < 1:
        raise ConfigError(f"hibernation concurrency must be at least 1, got {config.hibernation_workers}")
    _check_lease(config)
    for variable, seconds in (("HIBERNATE_TIMEOUT", config.hibernate_timeout), ("WAKE_TIMEOUT", config.wake_timeout)):
        if seconds < 1:
            raise ConfigError(f"{variable} must be at least 1s")
    if config.resync_interval < 1:
        raise ConfigError("RESYNC_INTERVAL must be at least 1s")
    if config.registry_timeout < 1:
        raise ConfigError("REGISTRY_TIMEOUT must be at least 1s")


def _check_lease(config: Config) -> None:
    """client-go's rules, and a second for what is on the wire when the renew deadline is over (I9)."""
    if config.lease_duration < config.renew_deadline + 1:
        raise ConfigError("LEADER_ELECT_LEASE_DURATION must be at least 1s more than LEADER_ELECT_RENEW_DEADLINE")
    if not 0 < config.retry_period * 1.2 < config.renew_deadline:
        raise ConfigError(
            "LEADER_ELECT_RETRY_PERIOD must be more than 0 and, times 1.2, less than LEADER_ELECT_RENEW_DEADLINE"
        )
