"""An average of trained tensors over the epochs of a run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class EpochAverage:
    """States of parameters after each epoch, weighted by a Gaussian over the run (PromptSRC).

    `mean` and `std` are shares of the run, whose end is 1: its length is only known once it has
    ended. The states are on the parameters' device.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], mean: float, std: float) -> None:
        self.parameters = parameters
        self.mean, self.std = mean, std
        self._states: list[tuple[float, list[Tensor]]] = []
        self._epochs = 0.0

    def during(self, batches: Iterable[T], per_epoch: int) -> Iterator[T]:
        """The batches of a run; the request for an epoch's first one ends the epoch before."""
        for number, batch in enumerate(batches):
            if number > 0 and number % per_epoch == 0:
                self._keep()
            self._epochs = (number + 1) / per_epoch
            yield batch

    def state(self) -> dict[str, Tensor]:
        """The epochs, float64 (states,), and for each place of a parameter its states."""
        ends = torch.tensor([end for end, _ in self._states], dtype=torch.float64)
        places = zip(*(values for _, values in self._states), strict=True)
        return {"ends": ends, **{str(n): torch.stack(values) for n, values in enumerate(places)}}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Takes up what `state` gave, in the place of what is here."""
        device = self.parameters[0].device
        places = [state[str(number)].to(device) for number in range(len(state) - 1)]
        self._states = [
            (end, [place[row] for place in places])
            for row, end in enumerate(state["ends"].tolist())
        ]

    @torch.no_grad()
    def take(self) -> None:
        """Ends the run, perhaps within an epoch, and puts the average in the parameters' place."""
        self._keep()
        ends = torch.tensor([end for end, _ in self._states], dtype=torch.float64)
        off = (ends / ends[-1] - self.mean) / self.std
        # In logarithms, since the weights of a run that ends far from the mean would underflow.
        weights = (-off.square() / 2).softmax(dim=0).tolist()
        for place, parameter in enumerate(self.parameters):
            average = torch.zeros_like(parameter)
            for weight, (_, state) in zip(weights, self._states, strict=True):
                average += weight * state[place]
            parameter.copy_(average)

    def _keep(self) -> None:
        self._states.append((self._epochs, [p.detach().clone() for p in self.parameters]))
