"""What can be configured, by flag and by environment (contract 8.1); a flag beats its variable, an empty one is unset."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cocoon_operator.clients.registry.failures import CredentialsError
from cocoon_operator.clients.registry.reference import InvalidRegistryError, RegistryAddress, parse_registry
from cocoon_operator.clients.registry.tls import ClientCertificate
from cocoon_operator.settingvalues import (
    Address,
    parse_address,
    parse_boolean,
    parse_duration,
    parse_endpoint,
    parse_file,
    parse_integer,
    parse_namespace,
    show_duration,
)

T = TypeVar("T")

TRACE_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


class ConfigError(Exception):
    """A setting that the operator cannot start with; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, valid. Durations are in seconds; ``tag_collection_timeout`` 0 waits for ever.

    ``ignored`` says of what could not be read that its default was taken, in a sentence each.
    """

    registry: RegistryAddress
    registry_client_cert: str
    registry_client_key: str
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
    trace_endpoint: str
    ignored: tuple[str, ...] = ()


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
    "registry_client_cert": _Setting(
        "REGISTRY_CLIENT_CERT", "", "", "file with the certificate (PEM) for a registry that asks for one"
    ),
    "registry_client_key": _Setting("REGISTRY_CLIENT_KEY", "", "", "file with its key (PEM, without a password)"),
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


ELSEWHERE: Final = {
    "GOOGLE_APPLICATION_CREDENTIALS": "key file for Google's registries (extra gcp)",
    "DOCKER_CONFIG, REGISTRY_AUTH_FILE, XDG_RUNTIME_DIR, HOME": "where files with logins for the registry are looked for",
    "HTTPS_PROXY, HTTP_PROXY, NO_PROXY": "proxies on the way to the registry",
    "SSL_CERT_FILE, SSL_CERT_DIR": "certificate authorities to trust instead of the system's",
    TRACE_ENDPOINT: "collector that gets traces, http(s)://host:port; without one there are none (extra otel)",
    "OTEL_*": "whatever else OpenTelemetry's SDK reads: sampler, headers, service name",
    "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT": "the API server of the cluster we run in; set by the kubelet",
}
"""What is read under names that are not ours."""


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
    others = [f"  {names}\n      {meaning}" for names, meaning in ELSEWHERE.items()]
    parser.epilog = "\n".join(
        [
            "environment only:",
            *lines,
            "",
            "read as everywhere:",
            *others,
            "",
            "A flag beats its variable, an empty variable is unset. Durations are Go's: 90s, 10m, 1h30m.",
        ]
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def load(flags: Mapping[str, str | None], env: Mapping[str, str]) -> Config:
    """Read every setting. Raises :class:`ConfigError`."""
    read = _Reader(flags, env)
    config = Config(
        registry=read.value("registry", parse_registry),
        registry_client_cert=read.value("registry_client_cert", parse_file),
        registry_client_key=read.value("registry_client_key", parse_file),
        metrics=read.value("metrics", parse_address),
        probes=read.value("probes", parse_address),
        leader_elect=read.lenient("leader_elect", parse_boolean),
        lease_duration=read.value("lease_duration", parse_duration),
        renew_deadline=read.value("renew_deadline", parse_duration),
        retry_period=read.value("retry_period", parse_duration),
        lease_namespace=read.value("lease_namespace", parse_namespace),
        set_workers=read.lenient("set_workers", parse_integer),
        hibernation_workers=read.lenient("hibernation_workers", parse_integer),
        hibernate_timeout=read.value("hibernate_timeout", parse_duration),
        wake_timeout=read.value("wake_timeout", parse_duration),
        log_level=read.value("log_level", _one_of("debug", "info", "warn", "warning", "error")),
        log_format=read.value("log_format", _one_of("text", "json")),
        kubeconfig=read.text("kubeconfig"),
        tag_collection_timeout=read.value("tag_collection_timeout", parse_duration),
        registry_timeout=read.value("registry_timeout", parse_duration),
        resync_interval=read.value("resync_interval", parse_duration),
        crd_timeout=read.value("crd_timeout", parse_duration),
        watch_namespace=read.value("watch_namespace", parse_namespace) or None,
        trace_endpoint=_trace_endpoint(env),
        ignored=tuple(read.ignored),
    )
    _check_ranges(config)
    _check_client_certificate(config)
    return config


def _trace_endpoint(env: Mapping[str, str]) -> str:
    try:
        return parse_endpoint(env.get(TRACE_ENDPOINT, ""))
    except ValueError as error:
        raise ConfigError(f"{TRACE_ENDPOINT}: {error}") from None


def effective(config: Config) -> dict[str, Any]:
    """Return every setting as it would be written, by its variable, for a log line; there is no secret among them."""
    ours = {setting.env: _written(getattr(config, name)) for name, setting in _SETTINGS.items()}
    return {**ours, TRACE_ENDPOINT: config.trace_endpoint}


def _written(value: object) -> Any:
    match value:
        case float():
            return show_duration(value)
        case Address():
            return str(value)
        case RegistryAddress():
            return "/".join(part for part in (value.host, value.path) if part)
        case None:
            return ""
        case _:
            return value


class _Reader:
    """Where a value comes from: the flag, else the variable unless it is empty, else the default."""

    def __init__(self, flags: Mapping[str, str | None], env: Mapping[str, str]) -> None:
        self._flags = flags
        self._env = env
        self.ignored: list[str] = []

    def text(self, name: str) -> str:
        flag = self._flags.get(name)
        return flag if flag is not None else self._env.get(_SETTINGS[name].env) or _SETTINGS[name].default

    def value(self, name: str, parse: Callable[[str], T]) -> T:
        """What cannot be read is refused, and called by the name under which it was written."""
        text = self.text(name)
        try:
            return parse(text)
        except InvalidRegistryError as error:
            raise ConfigError(str(error)) from None
        except ValueError as error:
            flag = _SETTINGS[name].flag if self._flags.get(name) is not None else ""
            raise ConfigError(f"{flag or _SETTINGS[name].env}={text}: {error}") from None

    def lenient(self, name: str, parse: Callable[[str], T]) -> T:
        """As :meth:`value`, but a variable that cannot be read gives the default, as it always did (S318, S319)."""
        try:
            return self.value(name, parse)
        except ConfigError as error:
            if self._flags.get(name) is not None:
                raise
            default = _SETTINGS[name].default
            self.ignored.append(f"{error}; ignored, it is {default} now")
            return parse(default)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"use one of {', '.join(allowed)}")
        return text.lower()

    return parse


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


def _check_client_certificate(config: Config) -> None:
    certificate, key = config.registry_client_cert, config.registry_client_key
    if bool(certificate) != bool(key):
        missing = "REGISTRY_CLIENT_KEY" if certificate else "REGISTRY_CLIENT_CERT"
        raise ConfigError(f"{missing} must be set too: a client certificate and its key go together")
    if certificate:
        try:
            ClientCertificate(certificate, key).tls()
        except CredentialsError as error:
            raise ConfigError(f"REGISTRY_CLIENT_CERT, REGISTRY_CLIENT_KEY: {error}") from None


def _check_lease(config: Config) -> None:
    """client-go's rules, and a second for what is on the wire when the renew deadline is over (I9)."""
    if config.lease_duration < config.renew_deadline + 1:
        raise ConfigError("LEADER_ELECT_LEASE_DURATION must be at least 1s more than LEADER_ELECT_RENEW_DEADLINE")
    if not 0 < config.retry_period * 1.2 < config.renew_deadline:
        raise ConfigError(
            "LEADER_ELECT_RETRY_PERIOD must be more than 0 and, times 1.2, less than LEADER_ELECT_RENEW_DEADLINE"
        )
