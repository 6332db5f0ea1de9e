"""Adam over a batch of clients, each with its own moments and its own count of steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from fedgkd.clients import Tensors


@dataclass(frozen=True)
class Adam:
    """Kingma & Ba 2015 with L2 weight decay, as in ``torch.optim.Adam``."""

    lr: float
    weight_decay: float

    def start(self, params: Tensors) -> Tensors:
        """Moments and step counts before the first step."""
        first = next(iter(params.values()))
        state = {"adam.steps": torch.zeros(len(first), device=first.device)}
        for name, tensor in params.items():
            state[f"adam.first.{name}"] = torch.zeros_like(tensor)
            state[f"adam.second.{name}"] = torch.zeros_like(tensor)
        return state

    @torch.no_grad()
    def step(self, params: Tensors, grads: Tensors, state: Tensors) -> None:
        """One step in place. One fused pass if all clients are at the same step, else one per client."""
        steps = state["adam.steps"]
        together = bool((steps == steps[0]).all())
        rows: list[int | slice] = [slice(None)] if together else list(range(len(steps)))
        views = [(name, row) for name in params for row in rows]
        # The fused kernel counts the steps itself, once per tensor it is given.
        counts = [steps[0].clone() if together else steps[row].clone() for _, row in views]
        adam(
            [params[name][row] for name, row in views],
            # The fused kernel reads a gradient as if it were contiguous.
            [grads[name].contiguous()[row] for name, row in views],
            [state[f"adam.first.{name}"][row] for name, row in views],
            [state[f"adam.second.{name}"][row] for name, row in views],
            [],
            counts,
            foreach=False,
            capturable=False,
            differentiable=False,
            fused=True,
            has_complex=False,
            grad_scale=None,
            found_inf=None,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )
        steps += 1

    @staticmethod
    def reset(state: Tensors, rows: Tensor) -> None:
        """Forget the moments of some clients."""
        for name, tensor in state.items():
            if name.startswith("adam."):
                tensor[rows] = 0
