"""Flags and variables (contract 8.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoon_devkit import checkout
from cocoon_devkit.pki import issue_client_identity
from cocoon_operator import app
from cocoon_operator import config as configuration
from cocoon_operator.config import Config, ConfigError, effective, load
from cocoon_operator.settingvalues import Address, parse_duration, show_duration
from cocoon_operator.version import version

ENV = {"OCI_REGISTRY": "registry.example.com/vms"}


def config(flags: dict[str, str | None] | None = None, **env: str) -> Config:
    return load(flags or {}, {**ENV, **env})


def parsed(*argv: str) -> dict[str, Any]:
    return vars(app._parser().parse_args(app._with_command(argv)))


def test_defaults() -> None:
    found = config()
    assert (found.metrics, found.probes) == (Address("", 8080), Address("", 8081))
    assert found.leader_elect
    assert (found.set_workers, found.hibernation_workers) == (4, 4)
    assert (found.log_level, found.log_format) == ("info", "text")
    assert (found.tag_collection_timeout, found.resync_interval) == (600.0, 300.0)
    assert found.lease_namespace == "cocoon-system"
    assert found.watch_namespace is None


@pytest.mark.scenario("S245", "S317")
@pytest.mark.parametrize("text", [None, ""])
def test_without_a_registry_it_does_not_start(text: str | None) -> None:
    with pytest.raises(ConfigError, match=r"^OCI_REGISTRY must be set: write "):
        load({}, {} if text is None else {"OCI_REGISTRY": text})


def test_a_malformed_registry_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="must not have a scheme"):
        load({}, {"OCI_REGISTRY": "https://registry.example.com"})


@pytest.mark.scenario("S318")
@pytest.mark.parametrize(("text", "value"), [("", 4), ("8", 8), ("many", 4), ("4.5", 4), ("1_000", 4), ("+2", 2)])
def test_an_integer_variable_that_is_none_reads_as_the_default(text: str, value: int) -> None:
    assert config(COCOONSET_CONCURRENCY=text).set_workers == value


@pytest.mark.scenario("S319")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("0", False),
        ("F", False),
        ("T", True),
        ("yes", True),
        ("", True),
        ("no", True),
    ],
)
def test_a_boolean_variable_that_is_none_reads_as_the_default(text: str, value: bool) -> None:
    assert config(LEADER_ELECT=text).leader_elect is value


@pytest.mark.scenario("S319")
def test_an_empty_text_variable_is_unset() -> None:
    assert config(METRICS_ADDR="").metrics == Address("", 8080)
    assert config(METRICS_ADDR="127.0.0.1:9").metrics == Address("127.0.0.1", 9)


@pytest.mark.scenario("S320")
@pytest.mark.parametrize("count", ["0", "-1"])
def test_less_than_one_worker_is_refused(count: str) -> None:
    with pytest.raises(ConfigError, match=f"^cocoonset concurrency must be at least 1, got {count}$"):
        config(COCOONSET_CONCURRENCY=count)
    with pytest.raises(ConfigError, match=f"^hibernation concurrency must be at least 1, got {count}$"):
        config({"hibernation_workers": count})


@pytest.mark.scenario("S329")
def test_a_log_level_that_is_none_is_refused() -> None:
    assert config(OPERATOR_LOG_LEVEL="WARN").log_level == "warn"
    with pytest.raises(ConfigError, match="OPERATOR_LOG_LEVEL=loud: use one of debug, info"):
        config(OPERATOR_LOG_LEVEL="loud")


@pytest.mark.scenario("S330")
def test_a_flag_beats_its_variable() -> None:
    flags = parsed("run", "--metrics-bind-address=:9001", "--leader-elect", "--kubeconfig", "/x")
    found = config(flags, METRICS_ADDR=":9000", LEADER_ELECT="false", KUBECONFIG="/y")
    assert found.metrics == Address("", 9001)
    assert found.leader_elect
    assert found.kubeconfig == "/x"


def test_the_arguments_of_the_go_builds_manifest_are_understood() -> None:
    flags = parsed("--metrics-bind-address=:8080", "--health-probe-bind-address=:8082", "-leader-elect=false")
    found = config(flags)
    assert flags["command"] == "run"
    assert found.probes == Address("", 8082)
    assert not found.leader_elect


@pytest.mark.parametrize("argv", [("--no-such-flag",), ("run", "extra"), ("run", "--metrics", ":1"), ("unknown",)])
def test_unknown_arguments_are_refused(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        app.run(argv, ENV)
    assert caught.value.code == 2
    assert "usage: cocoon-operator" in capsys.readouterr().err


def test_help_names_every_flag_and_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        app.run(["run", "--help"], {})
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for setting in configuration._SETTINGS.values():
        assert setting.env in text
        assert setting.flag in text
        assert f"default {setting.default or 'none'}" in " ".join(text.split())
    for names in configuration.ELSEWHERE:
        assert names in text


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("metrics", ""),
        ("metrics", "8080"),
        ("metrics", "a:b"),
        ("metrics", "::1:80"),
        ("probes", ":70000"),
        ("leader_elect", "maybe"),
        ("set_workers", "x"),
    ],
)
def test_a_flag_that_cannot_be_read_is_refused(flag: str, text: str) -> None:
    name = configuration._SETTINGS[flag].flag
    with pytest.raises(ConfigError, match=f"^{name}={text}: write"):
        config({flag: text})


def test_a_server_can_be_switched_off_and_listen_on_ipv6() -> None:
    assert config({"metrics": "0"}).metrics is None
    assert config({"metrics": "[::1]:80"}).metrics == Address("::1", 80)
    assert str(Address("::1", 80)) == "[::1]:80"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("10m", 600), ("1h30m", 5400), ("1.5s", 1.5), ("250ms", 0.25), (".5m", 30), ("1h0m1s", 3601)],
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "-1m", "1d", "1m30", "\uff11m"])
def test_what_is_no_duration_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)
    if text:
        with pytest.raises(ConfigError, match="TAG_COLLECTION_TIMEOUT"):
            config(TAG_COLLECTION_TIMEOUT=text)


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["version"], {}) == 0
    assert capsys.readouterr().out.strip() == version()


def test_a_refusal_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([], {}) == 1
    text = capsys.readouterr().err
    assert text.startswith("cocoon-operator: OCI_REGISTRY must be set: write ")
    assert text.count("\n") == 1


def test_the_lease_lasts_as_long_as_the_go_operators_by_default() -> None:
    found = config()
    assert (found.lease_duration, found.renew_deadline, found.retry_period) == (15.0, 10.0, 2.0)


def test_the_lease_can_be_made_shorter() -> None:
    found = config({"lease_duration": "6s"}, LEADER_ELECT_RENEW_DEADLINE="4s", LEADER_ELECT_RETRY_PERIOD="500ms")
    assert (found.lease_duration, found.renew_deadline, found.retry_period) == (6.0, 4.0, 0.5)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"LEADER_ELECT_LEASE_DURATION": "10s"}, "LEADER_ELECT_LEASE_DURATION must be at least 1s more"),
        ({"LEADER_ELECT_RENEW_DEADLINE": "2s"}, "LEADER_ELECT_RETRY_PERIOD must be more than 0"),
        ({"LEADER_ELECT_RETRY_PERIOD": "0"}, "LEADER_ELECT_RETRY_PERIOD must be more than 0"),
        ({"LEADER_ELECT_RETRY_PERIOD": "soon"}, "^LEADER_ELECT_RETRY_PERIOD=soon: 'soon' is no duration"),
    ],
)
def test_i9_a_lease_that_two_could_hold_is_refused(env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**env)


def test_a_malformed_duration_is_blamed_on_the_flag_that_has_it() -> None:
    with pytest.raises(ConfigError, match=r"^--leader-elect-retry-period=soon: 'soon' is no duration"):
        config({"retry_period": "soon"})


@pytest.mark.scenario("S318", "S319")
def test_a_variable_that_is_ignored_is_told() -> None:
    assert config(COCOONSET_CONCURRENCY="8", LEADER_ELECT="false").ignored == ()
    assert config(COCOONSET_CONCURRENCY="many", LEADER_ELECT="maybe").ignored == (
        "LEADER_ELECT=maybe: write true or false; ignored, it is true now",
        "COCOONSET_CONCURRENCY=many: write a number; ignored, it is 4 now",
    )


@pytest.mark.parametrize("name", ["WATCH_NAMESPACE", "POD_NAMESPACE"])
@pytest.mark.parametrize("text", ["Team-A", "team_a", "-a", "a-", "a.b", "a" * 64, "a b"])
def test_what_can_be_no_namespace_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}={text}: .* is no namespace"):
        config(**{name: text})


def test_a_namespace_is_taken() -> None:
    assert config(WATCH_NAMESPACE="team-a").watch_namespace == "team-a"
    assert config(POD_NAMESPACE="7" * 63).lease_namespace == "7" * 63


@pytest.mark.parametrize(
    "text",
    [
        "collector",
        "grpc://collector:4317",
        "http://",
        "http://a:b",
        "https://me:hunter2@collector",
        "http://c?key=hunter2",
    ],
)
def test_a_collector_that_is_none_is_refused_and_a_login_in_it_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT: write http://host:port") as caught:
        config(OTEL_EXPORTER_OTLP_ENDPOINT=text)
    assert "hunter2" not in str(caught.value)


def test_a_collector_is_taken_and_none_is_the_default() -> None:
    assert config().trace_endpoint == ""
    assert config(OTEL_EXPORTER_OTLP_ENDPOINT="https://c.example:4318").trace_endpoint == "https://c.example:4318"


def test_a_client_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    identity = issue_client_identity(tmp_path, "operator")
    certificate, key = str(identity.certificate), str(identity.key)
    found = config(REGISTRY_CLIENT_CERT=certificate, REGISTRY_CLIENT_KEY=key)
    assert (found.registry_client_cert, found.registry_client_key) == (certificate, key)
    assert (config().registry_client_cert, config().registry_client_key) == ("", "")
    with pytest.raises(ConfigError, match=r"^REGISTRY_CLIENT_KEY must be set too: "):
        config(REGISTRY_CLIENT_CERT=certificate)
    with pytest.raises(ConfigError, match=r"^REGISTRY_CLIENT_CERT must be set too: "):
        config(REGISTRY_CLIENT_KEY=key)


def test_a_client_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    identity = issue_client_identity(tmp_path / "ours", "operator")
    other = issue_client_identity(tmp_path / "other", "other")
    usable = {"REGISTRY_CLIENT_CERT": str(identity.certificate), "REGISTRY_CLIENT_KEY": str(identity.key)}
    for name in usable:
        nowhere = str(tmp_path / "nowhere.pem")
        with pytest.raises(
            ConfigError, match=f"^{name}={nowhere}: write the path of a file that can be read \\(No such"
        ):
            config(**{**usable, name: nowhere})
        with pytest.raises(ConfigError, match=rf"^{name}={tmp_path}: .* \(Is a directory\)$"):
            config(**{**usable, name: str(tmp_path)})
    with pytest.raises(
        ConfigError, match=r"^REGISTRY_CLIENT_CERT, REGISTRY_CLIENT_KEY: .* are not a certificate and its"
    ):
        config(**{**usable, "REGISTRY_CLIENT_KEY": str(other.key)})


def test_a_registry_with_a_login_is_refused_and_the_login_not_repeated() -> None:
    with pytest.raises(ConfigError, match="credentials") as caught:
        load({}, {"OCI_REGISTRY": "me:hunter2@registry.example.com"})
    assert "hunter2" not in str(caught.value)


def test_what_is_in_effect_is_shown_whole_and_reads_back_as_itself() -> None:
    flags: dict[str, str | None] = {"metrics": "0", "leader_elect": "false"}
    found = config(flags, WATCH_NAMESPACE="team-a", RESYNC_INTERVAL="90s", PROBE_ADDR="[::1]:1", KUBECONFIG="/k")
    shown = effective(found)
    assert list(shown) == [*(each.env for each in configuration._SETTINGS.values()), "OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert shown["OCI_REGISTRY"] == "registry.example.com/vms"
    assert (shown["RESYNC_INTERVAL"], shown["TAG_COLLECTION_TIMEOUT"], shown["PROBE_ADDR"]) == ("90s", "10m", "[::1]:1")
    written = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in shown.items()}
    assert load({}, {**written, "METRICS_ADDR": written["METRICS_ADDR"] or "0"}) == found


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.0, 59.0, 60.0, 90.0, 600.0, 3600.0, 5400.0, 90061.5])
def test_a_duration_that_is_shown_reads_back_as_itself(seconds: float) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


def rows_of(page: str) -> list[tuple[str, ...]]:
    """The rows of the page's tables, without code marks and without heads."""
    text = (checkout.ROOT / "docs" / page).read_text("utf-8")
    rows = [
        tuple(cell.strip().replace("`", "") for cell in row[1:-1].split(" | "))
        for row in text.splitlines()
        if row[:1] == "|"
    ]
    return [row for row in rows if not row[0].startswith("---")]


def test_the_page_about_settings_says_what_the_code_does() -> None:
    rows = rows_of("configuration.md")
    for setting in configuration._SETTINGS.values():
        assert (setting.env, setting.flag or "\u2013", setting.default or "\u2013", setting.help) in rows
    for names, meaning in configuration.ELSEWHERE.items():
        assert (names, meaning) in rows
    assert len(rows) == 2 + len(configuration._SETTINGS) + len(configuration.ELSEWHERE)
