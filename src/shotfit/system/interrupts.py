"""Ctrl-C, pressed once, and SIGTERM: what is running ends its step, so that it can be kept."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(SystemExit):
    """SIGTERM: whoever sends it does not wait long, so that a checkpoint is all that is kept."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Interrupt:
    """Whether Ctrl-C has been pressed, or SIGTERM come, since there is something to keep."""

    def __init__(self) -> None:
        self.armed = False
        """Whether there is something to keep; until then both end things as ever."""
        self.pressed = False
        self.terminated = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """What Ctrl-C does: the second time, and before there is anything to keep, what it always
        does."""
        if self.pressed or not self.armed:
            signal.default_int_handler(number, frame)
        self.pressed = True

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """What SIGTERM does.

        Raises:
            Terminated: the second time, and before there is anything to keep.
        """
        if self.terminated or not self.armed:
            raise Terminated
        self.terminated = True


@contextmanager
def noticed_interrupt(*signals: signal.Signals) -> Iterator[Interrupt]:
    """Inside, the first of these signals (without any, SIGINT, which is Ctrl-C) is noted and no
    more; only the main thread can be told of one."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    handlers = {signal.SIGINT: interrupt.handle, signal.SIGTERM: interrupt.terminate}
    before = {
        number: signal.signal(number, handlers[number]) for number in signals or (signal.SIGINT,)
    }
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
