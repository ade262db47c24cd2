"""``cocoon-operator``: start, refuse to start with one sentence, stop gracefully."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import kopf
import structlog

from cocoon_operator import handlers, kopf_settings, logs
from cocoon_operator.config import Config, ConfigError, add_flags, effective, load
from cocoon_operator.engine.ending import end
from cocoon_operator.health import AddressInUseError, Health, Servers
from cocoon_operator.heartbeat import Heartbeat
from cocoon_operator.metrics import Metrics
from cocoon_operator.runtime import Runtime
from cocoon_operator.startup import StartError
from cocoon_operator.version import version

log = structlog.get_logger(__name__)

_GO_STYLE: Final = re.compile(r"-(?=[a-z][a-z-]{2,})")
_KOPF_PATIENCE: Final = 5.0


def main() -> NoReturn:
    """Run the command line. Exit code 0 after a graceful stop, 1 when it could not start or go on, 2 for bad usage."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run with these arguments and this environment; return the exit code."""
    flags = vars(_parser().parse_args(_with_command(argv)))
    if flags.pop("command") == "version":
        print(version())  # noqa: T201 - the answer of a command
        return 0
    try:
        config = load(flags, env)
        logs.configure(config.log_level, config.log_format)
        _run_loop(Process(config, env).run)
    except (ConfigError, StartError, AddressInUseError) as error:
        print(f"cocoon-operator: {error}", file=sys.stderr)  # noqa: T201 - logging may not be set up
        return 1
    except StoppedError as error:
        log.error("stopped", reason=str(error))  # noqa: TRY400 - the reason is enough
        return 1
    return 0


class StoppedError(Exception):
    """The operator stopped for another reason than being asked to."""


class Process:
    """One life of the operator in a cluster."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._config = config
        self._env = env
        self._metrics = Metrics(version())
        self._heartbeat = Heartbeat(self._metrics.lagged)
        self._health = Health(silence=self._heartbeat.silence)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until asked to stop. Raises :class:`StartError`, :class:`AddressInUseError` or :class:`StoppedError`."""
        self._catch_signals()
        log.info("starting", version=version(), **effective(self._config))
        for sentence in self._config.ignored:
            log.warning("a setting was ignored", setting=sentence)
        servers = Servers()
        beating = asyncio.create_task(self._heartbeat.run(), name="heartbeat")
        try:
            await servers.metrics(self._config.metrics, self._metrics.text)
            await servers.probes(self._config.probes, self._health)
            opening = asyncio.create_task(Runtime.open(self._config, self._env, self._metrics))
            if not await self._unless_stopped(opening):
                return
            await self._serve(opening.result())
        finally:
            beating.cancel()
            await servers.close()

    async def _unless_stopped(self, work: asyncio.Task[Any]) -> bool:
        """Wait for the work, or for the signal, which cancels it. Return whether the work was done."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not work.done():
            await end([work])
            return False
        work.result()
        return True

    async def _serve(self, runtime: Runtime) -> None:
        self._health.unready = runtime.engine.unready
        watching = KopfWatch(runtime, self._catch_signals)
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            ends: set[asyncio.Future[Any]] = {watching.task, stopping, runtime.engine.ended}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            reason = _reason(watching.task, runtime.engine.ended)
        finally:
            # Work ends first: what Kopf finds running when it ends, it cancels.
            self._health.unready = lambda: ["stopping"]
            stopping.cancel()
            await runtime.engine.stop()
            await watching.stop()
            await runtime.close_clients()
        if reason:
            raise StoppedError(reason)
        log.info("stopped")

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)


class KopfWatch:
    """Kopf embedded: it watches, and nothing else. ``task`` ends, with an error, when Kopf does."""

    def __init__(self, runtime: Runtime, catch_signals: Callable[[], None]) -> None:
        self._runtime = runtime
        self._catch_signals = catch_signals
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="kopf")

    async def stop(self) -> None:
        """Let Kopf end, at most five seconds."""
        self._stop.set()
        await asyncio.wait({self.task}, timeout=_KOPF_PATIENCE)
        await end([self.task])

    async def _run(self) -> None:
        registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        kopf_settings.configure(settings)
        handlers.register(registry, lambda: self._runtime)
        namespace = self._runtime.config.watch_namespace
        ready = asyncio.Event()
        ours = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            clusterwide=namespace is None,
            namespaces=[namespace] if namespace else [],
            standalone=True,
            stop_flag=self._stop,
            ready_flag=ready,
        )
        # Kopf takes the signals for itself, but would cancel our work before it could end.
        self._catch_signals()
        announcing = asyncio.create_task(_when(ready.wait, self._runtime.engine.watching))
        try:
            await kopf.run_tasks(tasks, ignored=ours | {announcing})
        finally:
            announcing.cancel()


async def _when(happened: Callable[[], Awaitable[Any]], then: Callable[[], None]) -> None:
    await happened()
    then()


def _reason(kopf_task: asyncio.Task[None], engine: asyncio.Future[None]) -> str:
    """Return why the operator stops although nobody asked it to."""
    if engine.done() and (error := engine.exception()) is not None:
        return str(error)
    if not kopf_task.done():
        return ""
    failure = None if kopf_task.cancelled() else kopf_task.exception()
    return f"the watch of CocoonSets ended: {failure or 'without a reason'}"


def _run_loop(work: Callable[[], Any]) -> None:
    """Run on uvloop where there is one."""
    try:
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cocoon-operator",
        description="Suspends, wakes, migrates and rebuilds MicroVM-backed agent pods of CocoonSets.",
        epilog="Without a command it runs. 'cocoon-operator run --help' lists every flag and variable.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_flags(commands.add_parser("run", help="run the operator", allow_abbrev=False))
    commands.add_parser("version", help="print the version")
    return parser


def _with_command(argv: Sequence[str]) -> list[str]:
    """Read the arguments of the Go build too: no command means ``run``, and one dash is as good as two."""
    words = [_GO_STYLE.sub("--", word, count=1) if _GO_STYLE.match(word) else word for word in argv]
    if not words or (words[0].startswith("-") and words[0] not in {"-h", "--help"}):
        return ["run", *words]
    return words
