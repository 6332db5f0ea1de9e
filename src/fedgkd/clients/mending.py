"""New nodes hung on the nodes of a batch of graphs, each by one edge."""

from __future__ import annotations

import torch
from torch import Tensor


class NewNodes:
    """``counts`` new nodes at every node of a batch: ``(clients, nodes)`` whole numbers of at least 0.

    They are numbered by client, node and place among the node's own (its slot), and padded to one number per client.

    Attributes:
        owner: Position in the flattened batch of the node that each hangs on: ``(clients, new nodes)``. Padding points
            to the client's own first node, so that nothing, not even a NaN, passes between clients.
        slot: Its place among the new nodes of that node: ``(clients, new nodes)``; 0 for padding.
        real: Positions in the flattened new nodes of those that are not padding.
    """

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts
        clients, nodes = counts.shape
        per_client = counts.sum(dim=1)
        # A power of two, so that a client with one node more does not change the shape that all others work in.
        width = 1 << max(0, int(per_client.max()) - 1).bit_length()
        owner = torch.repeat_interleave(counts.flatten())
        client = owner // nodes
        number = torch.arange(len(owner), device=counts.device)
        self.real = client * width + number - _before(per_client)[client]
        self.owner = torch.arange(clients, device=counts.device).mul(nodes).repeat_interleave(width)
        self.owner[self.real] = owner
        self.slot = torch.zeros_like(self.owner)
        self.slot[self.real] = number - _before(counts.flatten())[owner]
        self.owner, self.slot = self.owner.view(clients, width), self.slot.view(clients, width)

    @property
    def width(self) -> int:
        """How many a client has, with its padding."""
        return self.owner.shape[1]

    def of_owner(self, h: Tensor) -> Tensor:
        """Everybody's own copy of what its owner has: from ``(clients, nodes, k)`` to ``(clients, new nodes, k)``."""
        return _rows(h, self.owner)

    def to_owner(self, h: Tensor) -> Tensor:
        """The sum over every node's new ones: from ``(clients, new nodes, k)`` to ``(clients, nodes, k)``."""
        clients, nodes = self.counts.shape
        total = h.new_zeros(clients * nodes, h.shape[-1])
        owner = self.owner.flatten()[self.real]
        return total.index_add(0, owner, h.flatten(0, 1).index_select(0, self.real)).view(clients, nodes, -1)

    def only(self, owners: Tensor) -> SomeNewNodes:
        """Those of some nodes: ``(clients, nodes)`` true or false."""
        return SomeNewNodes(self, owners)


class SomeNewNodes(NewNodes):
    """Those among all new nodes that hang on some of the nodes."""

    def __init__(self, everyone: NewNodes, owners: Tensor) -> None:
        super().__init__(everyone.counts * owners)
        wanted = owners.flatten()[everyone.owner.flatten()[everyone.real]]
        clients = torch.arange(len(self.counts), device=owners.device)
        self._place = clients.mul(everyone.width).repeat_interleave(self.width)
        self._place[self.real] = everyone.real[wanted]

    def of_everyone(self, h: Tensor) -> Tensor:
        """Their rows of what all new nodes have."""
        return _rows(h, self._place.view_as(self.owner))


def _rows(h: Tensor, position: Tensor) -> Tensor:
    """Rows of the flattened batch; unlike indexing, ``index_select`` is fast on the way back."""
    return h.flatten(0, 1).index_select(0, position.flatten()).view(*position.shape, -1)


def _before(counts: Tensor) -> Tensor:
    """The sum of all counts before each."""
    return counts.cumsum(0) - counts
