"""Adam over a batch of clients, each with its own moments and its own count of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgkd.clients import Tensors


class Moments(NamedTuple):
    """What Adam keeps of some tensors: both moments, and the number of steps so far as a tensor of its own for each."""

    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]


@dataclass(frozen=True)
class Adam:
    """Kingma & Ba 2015 with L2 weight decay, as in ``torch.optim.Adam``."""

    lr: float
    weight_decay: float

    @staticmethod
    def start(params: Tensors) -> Tensors:
        """Moments and step counts before the first step."""
        first = next(iter(params.values()))
        state = {"adam.steps": torch.zeros(len(first), device=first.device)}
        for name, tensor in params.items():
            state[f"adam.first.{name}"] = torch.zeros_like(tensor)
            state[f"adam.second.{name}"] = torch.zeros_like(tensor)
        return state

    def step(self, params: Tensors, grads: Tensors, state: Tensors) -> None:
        """One step in place. One fused pass if all clients are at the same step, else one per client."""
        steps = state["adam.steps"]
        rows = rows_in_step(steps)
        views = [(name, row) for name in params for row in rows]
        self.update(
            [params[name][row] for name, row in views],
            [grads[name].contiguous()[row] for name, row in views],
            Moments(
                [state[f"adam.first.{name}"][row] for name, row in views],
                [state[f"adam.second.{name}"][row] for name, row in views],
                [steps[row].amax().clone() for _, row in views],
            ),
        )
        steps += 1

    @torch.no_grad()
    def update(self, params: list[Tensor], grads: list[Tensor], moments: Moments) -> None:
        """One step of some tensors and their moments in place.

        All of them must be contiguous: the fused kernel reads memory as if they were.
        """
        torch._foreach_add_(moments.steps, 1.0)
        # torch.optim's own call of this kernel spends ten times as long on looking at its arguments.
        torch._fused_adam_(
            params,
            grads,
            moments.first,
            moments.second,
            [],
            moments.steps,
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    @staticmethod
    def reset(state: Tensors, rows: Tensor) -> None:
        """Forget the moments of some clients."""
        for name, tensor in state.items():
            if name.startswith("adam."):
                tensor[rows] = 0


def rows_in_step(steps: Tensor) -> list[slice]:
    """The clients that can step together: all if they are at the same step, else each alone."""
    if bool((steps == steps[0]).all()):
        return [slice(None)]
    return [slice(row, row + 1) for row in range(len(steps))]
