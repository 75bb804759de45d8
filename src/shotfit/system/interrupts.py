"""Ctrl-C, pressed once: what is running ends its step, so that what is there can be kept."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C has been pressed since there is something to keep."""

    def __init__(self) -> None:
        self.armed = False
        """Whether there is something to keep; until then Ctrl-C ends things as ever."""
        self.pressed = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """What Ctrl-C does: the second time, and before there is anything to keep, what it always
        does."""
        if self.pressed or not self.armed:
            signal.default_int_handler(number, frame)
        self.pressed = True


@contextmanager
def noticed_interrupt() -> Iterator[Interrupt]:
    """Inside, the first Ctrl-C is noted and no more; only the main thread can be told of one."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
