"""A world whose every call is judged, and can be made to fail."""

from __future__ import annotations

from cocoon_operator.api.answers import Unknown, WriteAnswer
from cocoon_operator.api.errors import KubeError, UnavailableError
from tests.model.judge import Judge
from tests.model.world import World


class Crash(BaseException):
    """The operator's process ends here."""


class JudgedWorld(World):
    """A world whose calls are judged, and which can break any of them."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self.fault: tuple[int, str] | None = None
        self.calls = 0
        self.lose_drop_answers = False
        super().__init__()
        self.hook = self._on_call
        self.judge = Judge(self)
        drop = self.registry.drop

        async def judged_drop(vm_name: str, tag: str) -> WriteAnswer:
            self._break("before", "drop")
            assert self.judge is not None
            if not self.registry.down:
                self.judge.judge_drop(vm_name, tag)
            answer = await drop(vm_name, tag)
            self._break("after", "drop")
            return Unknown("answer lost") if self.lose_drop_answers else answer

        self.registry.drop = judged_drop  # type: ignore[method-assign]

    def _on_call(self, moment: str, call: str) -> None:
        self._break(moment, call)
        assert self.judge is not None
        self.judge.watch_calls(moment, call)

    def _break(self, moment: str, call: str) -> None:
        if moment == "before":
            self.calls += 1
        if self.fault is None or self.calls != self.fault[0]:
            return
        kind = self.fault[1]
        if kind == f"crash {moment}":
            self.fault = None
            raise Crash
        if kind == f"lost {moment}" and not call.startswith(("drop", "get", "list")):
            self.fault = None
            # The engine reads live whatever it wrote without an answer.
            self.observe()
            raise UnavailableError("no answer")

    async def one_run(self) -> None:
        try:
            await self.reconcile()
        except Crash:
            self.start_operator()
        except KubeError:
            return
