from __future__ import annotations

import torch

from fedgkd.clients.mending import NewNodes

COUNTS = torch.tensor([[2, 0, 1], [0, 0, 1]])


def test_new_nodes_are_numbered_by_client_node_and_slot() -> None:
    new = NewNodes(COUNTS)
    # Nodes 0..2 are the first client's, 3..5 the second's; the widest client has three, padded to four.
    assert new.owner.tolist() == [[0, 0, 2, 0], [5, 3, 3, 3]]
    assert new.slot.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    assert new.real.tolist() == [0, 1, 2, 4]


def test_what_owners_give_and_get() -> None:
    new = NewNodes(COUNTS)
    h = torch.arange(6.0).view(2, 3, 1)
    assert new.of_owner(h).squeeze(-1).tolist() == [[0, 0, 2, 0], [5, 3, 3, 3]]
    made = torch.tensor([[1.0, 10, 100, 7], [1000, 7, 7, 7]]).unsqueeze(-1)
    assert new.to_owner(made).squeeze(-1).tolist() == [[11, 0, 100], [0, 0, 1000]]


def test_no_new_nodes_at_all() -> None:
    new = NewNodes(torch.zeros(2, 3, dtype=torch.int64))
    assert new.owner.shape == (2, 1)
    assert len(new.real) == 0
    assert not new.to_owner(torch.ones(2, 1, 4)).any()


def test_the_shape_does_not_depend_on_every_single_node() -> None:
    shapes = {NewNodes(torch.tensor([[n, 0]])).owner.shape for n in (5, 6, 7, 8)}
    assert shapes == {(1, 8)}


def test_those_of_some_owners() -> None:
    everyone = NewNodes(torch.tensor([[2, 1, 1], [0, 2, 1]]))
    some = everyone.only(torch.tensor([[False, True, True], [True, False, True]]))
    assert some.counts.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert some.owner.flatten()[some.real].tolist() == [1, 2, 5]
    h = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, torch.nan]]).unsqueeze(-1)
    assert some.of_everyone(h).flatten()[some.real].tolist() == [3, 4, 7]
    # Padding has what its own client's first has, so that nothing passes between clients.
    assert some.of_everyone(h).squeeze(-1).tolist() == [[3, 4], [7, 5]]


def test_padding_passes_nothing_between_clients() -> None:
    """A client whose states are lost leaves gradients of the others as they were."""
    new = NewNodes(COUNTS)
    h = torch.ones(2, 3, 1, requires_grad=True)
    weight = torch.tensor([[[torch.nan]], [[2.0]]])
    (grad,) = torch.autograd.grad(new.to_owner(new.of_owner(h) @ weight).sum(), h)
    assert grad[0].isnan().any()
    assert grad[1].flatten().tolist() == [0.0, 0.0, 2.0]
