"""Images of several requests at once through the model, without making the first one wait long."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

Waiting = tuple[np.ndarray, "asyncio.Future[np.ndarray]"]


class Batcher:
    """Gathers prepared images until a batch is full or its first image has waited long enough.

    While a batch is computed the next one fills, so that batches grow with the load by themselves.
    """

    def __init__(
        self,
        run: Callable[[np.ndarray], np.ndarray],
        size: int,
        delay: float,
        note: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`run` makes features (batch, f) of pixels (batch, 3, side, side); it is called from one
        thread. `delay` is in seconds; `note` is told the size of every batch."""
        self._run = run
        self._size = size
        self._delay = delay
        self._note = note
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Images that are in no batch yet."""
        return self._queue.qsize()

    def start(self) -> None:
        """Begins to work, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Ends the work; what waits is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            self._queue.get_nowait()[1].cancel()
        self._thread.shutdown()

    async def features(self, pixels: np.ndarray) -> np.ndarray:
        """Features (f,) of one prepared image (3, side, side)."""
        future: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((pixels, future))
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = _wanted(await self._gather(loop))
            if not batch:
                continue
            self._note(len(batch))
            pixels = np.stack([pixels for pixels, _ in batch])
            found = await loop.run_in_executor(self._thread, self._each, pixels)
            for (_, future), result in zip(batch, found, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _each(self, pixels: np.ndarray) -> Sequence[np.ndarray | Exception]:
        """The features of each image, or why it has none: an image that the model cannot take must
        not take the others of its batch with it."""
        try:
            return list(self._run(pixels))
        except Exception as error:
            if len(pixels) == 1:
                return [error]
            return [found for one in pixels for found in self._each(one[None])]

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> list[Waiting]:
        batch = [await self._queue.get()]
        end = loop.time() + self._delay
        while len(batch := _wanted(batch)) < self._size:
            try:
                batch.append(self._queue.get_nowait())
                continue
            except asyncio.QueueEmpty:
                left = end - loop.time()
            if left <= 0:
                break
            try:
                batch.append(await asyncio.wait_for(self._queue.get(), left))
            except TimeoutError:
                break
        return batch


def _wanted(batch: list[Waiting]) -> list[Waiting]:
    """Those whose requests were not given up: others take no place and are not computed."""
    return [(pixels, future) for pixels, future in batch if not future.done()]
