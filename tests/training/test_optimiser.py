"""Adam over a batch of clients against ``torch.optim.Adam`` for each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedgkd.clients import Tensors
from fedgkd.training import Adam

CLIENTS = 3
SHAPES = {"w": (4, 2), "b": (1, 2)}


def draw(generator: torch.Generator) -> Tensors:
    return {name: torch.randn(CLIENTS, *shape, generator=generator) for name, shape in SHAPES.items()}


def reference(start: Tensors, grads: list[Tensors], client: int, lr: float, weight_decay: float) -> Tensors:
    """One client alone, by PyTorch's own optimiser."""
    leaves: Tensors = {name: tensor[client].clone().requires_grad_() for name, tensor in start.items()}
    optimiser = torch.optim.Adam(list(leaves.values()), lr=lr, weight_decay=weight_decay)
    for grad in grads:
        for name, leaf in leaves.items():
            leaf.grad = grad[name][client].clone()
        optimiser.step()
    return leaves


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_equals_torch_adam(weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = draw(generator)
    grads = [draw(generator) for _ in range(6)]
    params = {name: tensor.clone() for name, tensor in start.items()}
    adam = Adam(lr=0.05, weight_decay=weight_decay)
    state = adam.start(params)
    for grad in grads:
        adam.step(params, grad, state)
    for client in range(CLIENTS):
        for name, expected in reference(start, grads, client, 0.05, weight_decay).items():
            torch.testing.assert_close(params[name][client], expected.detach())
    assert state["adam.steps"].tolist() == [6.0] * CLIENTS


def test_weight_decay_matters() -> None:
    params = {"w": torch.ones(1, 1)}
    for decay in (0.0, 0.1):
        moved = {"w": params["w"].clone()}
        adam = Adam(lr=0.05, weight_decay=decay)
        adam.step(moved, {"w": torch.zeros(1, 1)}, adam.start(moved))
        assert (moved["w"].item() < 1.0) == bool(decay)


def test_clients_at_different_counts_of_steps() -> None:
    """Client 1 was absent for two steps: bias correction goes by its own count."""
    generator = torch.Generator().manual_seed(1)
    start = draw(generator)
    grads = [draw(generator) for _ in range(5)]
    params = {name: tensor.clone() for name, tensor in start.items()}
    adam = Adam(lr=0.05, weight_decay=1e-3)
    state = adam.start(params)
    present = [[0, 1, 2], [0, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    for rows, grad in zip(present, grads, strict=True):
        step_rows(adam, rows, params, grad, state)
    assert state["adam.steps"].tolist() == [5.0, 3.0, 5.0]
    for client in range(CLIENTS):
        seen = [grad for rows, grad in zip(present, grads, strict=True) if client in rows]
        for name, expected in reference(start, seen, client, 0.05, 1e-3).items():
            torch.testing.assert_close(params[name][client], expected.detach())


def step_rows(adam: Adam, rows: list[int], params: Tensors, grads: Tensors, state: Tensors) -> None:
    """A step of some clients, as :meth:`ClientBatch.select` and ``update`` make it."""
    some_params, some_grads, some_state = ({k: t[rows] for k, t in whole.items()} for whole in (params, grads, state))
    adam.step(some_params, some_grads, some_state)
    for whole, some in ((params, some_params), (state, some_state)):
        for name, tensor in some.items():
            whole[name][rows] = tensor


def test_the_step_is_in_place_and_leaves_gradients_as_they_are() -> None:
    params, grads = {"w": torch.ones(2, 3)}, {"w": torch.full((2, 3), 0.5)}
    same: Tensor = params["w"]
    adam = Adam(lr=0.1, weight_decay=0.1)
    adam.step(params, grads, adam.start(params))
    assert params["w"] is same
    assert grads["w"].tolist() == [[0.5] * 3] * 2
    torch.testing.assert_close(same, torch.full((2, 3), 0.9))


def test_gradients_may_lie_in_memory_in_any_order() -> None:
    """PyTorch's fused kernel reads the memory of a transposed gradient as if it were not transposed."""
    transposed = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    assert not transposed.is_contiguous()
    params = {"w": torch.zeros(2, 3, 4)}
    adam = Adam(lr=0.1, weight_decay=0.0)
    adam.step(params, {"w": transposed}, adam.start(params))
    torch.testing.assert_close(params["w"], -0.1 * transposed.sign())


def test_reset_forgets_the_moments_of_some_clients() -> None:
    adam = Adam(lr=0.1, weight_decay=0.0)
    params = {"w": torch.ones(2, 1)}
    state = adam.start(params) | {"model.w": params["w"]}
    adam.step(params, {"w": torch.ones(2, 1)}, state)
    kept = {name: tensor[0].clone() for name, tensor in state.items()}
    Adam.reset(state, torch.tensor([False, True]))
    for name, tensor in state.items():
        assert tensor[0].equal(kept[name])
        assert tensor[1].any() == (name == "model.w")
