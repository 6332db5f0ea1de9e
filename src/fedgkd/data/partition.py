"""One graph becomes a federation: every client gets a part of the nodes and the edges among them.

===================  =============================================================================================
setting              what a client holds
===================  =============================================================================================
``non-overlapping``  one of n METIS parts; edges between parts are lost
``overlapping``      half the nodes of one of n/5 METIS parts, drawn five times, so that clients share nodes
``louvain``          one or more Louvain communities, merged to n clients of even size; where there are fewer
                     communities than clients, METIS halves the largest until there are enough
``shards``           five of 5n METIS parts, dealt at random: several neighbourhoods far apart, so that the clients'
                     data is more alike than with one part each
===================  =============================================================================================

The seed decides everything. METIS's own seed changes nothing, so the nodes are shuffled by ours before it sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.data.splits import DEFAULT_RATIOS, Ratios, random_split
from fedgkd.errors import SettingError, quoted
from fedgkd.randomness import stream

Nodes = NDArray[np.int64]

DRAWS_PER_PART = 5
SHARDS_PER_CLIENT = 5


def partition(
    graph: Graph,
    clients: int,
    setting: str = "non-overlapping",
    seed: int = 0,
    *,
    ratios: Ratios = DEFAULT_RATIOS,
    dataset: str | None = None,
) -> Federation:
    """Split the nodes into train, validation and test (where the graph has no masks), then divide the graph.

    Args:
        graph: The whole graph.
        clients: Number of clients; in the overlapping setting a multiple of 5.
        setting: A key of :data:`SETTINGS`.
        seed: Decides the split and the parts.
        ratios: Shares of training, validation and test nodes.
        dataset: What to call the data; the graph's name by default.

    Raises:
        SettingError: If the setting is unknown or the number of clients does not fit.
        DataError: If a client gets no training node.
    """
    check_clients(clients, setting)
    if not 1 <= clients <= graph.num_nodes:
        raise SettingError(f"{clients} clients are not possible: {graph.name} has {graph.num_nodes} nodes")
    whole = random_split(graph, seed, ratios)
    parts = [np.sort(part) for part in SETTINGS[setting](whole, clients, seed)]
    return Federation(
        graphs=tuple(whole.subgraph(part, name=f"client-{i}") for i, part in enumerate(parts)),
        dataset=graph.name if dataset is None else dataset,
        setting=setting,
        seed=seed,
        node_ids=tuple(parts),
        whole=whole,
    )


def partition_members(
    members: Mapping[str, Graph],
    clients: int,
    setting: str = "non-overlapping",
    seed: int = 0,
    *,
    ratios: Ratios = DEFAULT_RATIOS,
    dataset: str,
    groups: Sequence[str] | None = None,
) -> Federation:
    """Divide every graph of a natural federation among as many clients; a dataset of one graph is its only member.

    Args:
        members: The graphs by name. The other arguments are those of :func:`partition`.
        groups: Which task each member has; by default each member that is divided is a group of its own.
    """
    check_clients(clients, setting, len(members))
    if len(members) == 1:
        (graph,) = members.values()
        return partition(graph, clients, setting, seed, ratios=ratios, dataset=dataset)
    each = clients // len(members)
    divided = {name: partition(graph, each, setting, seed, ratios=ratios) for name, graph in members.items()}
    if groups is None and each > 1:
        groups = tuple(members)
    return Federation(
        graphs=tuple(graph for federation in divided.values() for graph in federation.graphs),
        dataset=dataset,
        setting=setting,
        seed=seed,
        names=tuple(name if each == 1 else f"{name}-{k}" for name in members for k in range(each)),
        groups=None if groups is None else tuple(group for group in groups for _ in range(each)),
    )


def check_clients(clients: int, setting: str, members: int = 1) -> None:
    """Raise if the setting is unknown, or no dataset of so many graphs could be divided so among that many clients."""
    if setting not in SETTINGS:
        raise SettingError(f"unknown partition setting {quoted(setting)}; choose from {', '.join(SETTINGS)}")
    if clients % members:
        raise SettingError(
            f"the dataset has {members} graphs, so the number of clients must be a multiple of {members}, not {clients}"
        )
    if setting == "overlapping" and (clients // members) % DRAWS_PER_PART:
        raise SettingError(
            f"the overlapping setting needs a number of clients that is a multiple of 5, not {clients // members}"
            + (" for each graph" if members > 1 else "")
        )


def _non_overlapping(graph: Graph, clients: int, seed: int) -> list[Nodes]:
    return _metis(graph.simple_adjacency(), clients, stream(seed, "metis"))


def _overlapping(graph: Graph, clients: int, seed: int) -> list[Nodes]:
    draw = stream(seed, "overlap")
    return [
        draw.choice(part, max(1, len(part) // 2), replace=False)
        for part in _metis(graph.simple_adjacency(), clients // DRAWS_PER_PART, stream(seed, "metis"))
        for _ in range(DRAWS_PER_PART)
    ]


def _louvain(graph: Graph, clients: int, seed: int) -> list[Nodes]:
    import networkx as nx

    random, adjacency = stream(seed, "louvain"), graph.simple_adjacency()
    network = nx.from_scipy_sparse_array(adjacency)
    found = nx.community.louvain_communities(network, seed=int(random.integers(2**31)))
    communities = [np.array(sorted(community), np.int64) for community in found]
    while len(communities) < clients:
        largest = communities.pop(int(np.argmax([len(community) for community in communities])))
        halves = _metis(adjacency[largest][:, largest], 2, random)
        communities += [largest[half] for half in halves]
    return _merge(communities, clients)


def _shards(graph: Graph, clients: int, seed: int) -> list[Nodes]:
    pieces = min(SHARDS_PER_CLIENT * clients, graph.num_nodes)
    shards = _metis(graph.simple_adjacency(), pieces, stream(seed, "metis"))
    dealt = np.array_split(stream(seed, "shards").permutation(pieces), clients)
    return [np.concatenate([shards[shard] for shard in mine]) for mine in dealt]


SETTINGS: dict[str, Callable[[Graph, int, int], list[Nodes]]] = {
    "non-overlapping": _non_overlapping,
    "overlapping": _overlapping,
    "louvain": _louvain,
    "shards": _shards,
}


def _metis(adjacency: sp.csr_array, parts: int, random: np.random.Generator) -> list[Nodes]:
    """METIS k-way into ``parts`` parts, none of them empty."""
    import pymetis

    order = random.permutation(adjacency.shape[0])
    shuffled = adjacency[order][:, order]
    shuffled.sort_indices()
    result = pymetis.part_graph(parts, pymetis.CSRAdjacency(shuffled.indptr, shuffled.indices), recursive=False)
    part_of = np.empty(len(order), np.int64)
    part_of[order] = result.vertex_part
    for empty in np.setdiff1d(np.arange(parts), part_of):  # METIS leaves some on tiny or edgeless graphs
        largest = np.bincount(part_of).argmax()
        part_of[np.flatnonzero(part_of == largest)[-1]] = empty
    return [np.flatnonzero(part_of == part) for part in range(parts)]


def _merge(communities: Sequence[Nodes], clients: int) -> list[Nodes]:
    """Each community, the largest first, goes to the client with the fewest nodes so far."""
    held: list[list[Nodes]] = [[] for _ in range(clients)]
    sizes = np.zeros(clients, np.int64)
    for community in sorted(communities, key=len, reverse=True):
        smallest = int(sizes.argmin())
        held[smallest].append(community)
        sizes[smallest] += len(community)
    return [np.concatenate(mine) for mine in held]
