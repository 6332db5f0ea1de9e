from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedgkd.clients import GraphBatch, Structure
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.models import MaskedNetwork, Network
from fedgkd.models.masked import MASK
from tests.graphs import random_graph


def keep(h: torch.Tensor, structure: Structure) -> torch.Tensor:
    """Dropout that drops nothing: the model is being trained."""
    return h


def test_the_start_is_that_of_the_plain_network() -> None:
    network = Network("gcn", 6, 8, 2, 3)
    model = MaskedNetwork.of(network)
    plain, masked = network.initial(5, 2), model.initial(5, 2)
    for name, tensor in plain.items():
        assert tensor.equal(masked[name])
    assert all(tensor.eq(1.0).all() for name, tensor in masked.items() if name.startswith(MASK))
    batch = GraphBatch([random_graph(9, seed=1), random_graph(7, seed=2)])
    torch.testing.assert_close(model(masked, batch), network(plain, batch))


@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat", "gin"])
def test_every_weight_matrix_has_a_mask_of_its_shape_and_nothing_else_has(backbone: str) -> None:
    model = MaskedNetwork(backbone, 6, 8, 2, 3)
    masks = {name.removeprefix(MASK): p.shape for name, p in model.parameters.items() if name.startswith(MASK)}
    plain = model.network.parameters
    assert masks == {name: p.shape for name, p in plain.items() if "weight" in name}
    assert all("bias" in name or "attention" in name for name in plain.keys() - masks.keys())


def test_weights_are_multiplied_and_closed_entries_are_dropped_only_in_use() -> None:
    model = MaskedNetwork("gcn", 2, 1, 1, 1)
    params = {
        "convs.0.weight": torch.tensor([[[4.0], [1000.0]]]),
        "convs.0.bias": torch.tensor([[[7.0]]]),
        "readout.weight": torch.tensor([[[-2.0]]]),
        "readout.bias": torch.tensor([[[3.0]]]),
        f"{MASK}convs.0.weight": torch.tensor([[[0.5], [-0.0009]]]),
        f"{MASK}readout.weight": torch.tensor([[[-0.0011]]]),
    }
    trained = model.effective(params, pruned=False)
    assert trained["convs.0.weight"].flatten().tolist() == pytest.approx([2.0, -0.9])
    used = model.effective(params, pruned=True)
    assert used["convs.0.weight"].flatten().tolist() == [2.0, 0.0]
    assert used["readout.weight"].item() == pytest.approx(0.0022)
    assert (used["convs.0.bias"].item(), used["readout.bias"].item()) == (7.0, 3.0)
    assert used.keys() == model.network.parameters.keys()


def test_dropout_tells_training_from_use() -> None:
    model = MaskedNetwork("gcn", 6, 4, 2, 3)
    params = model.initial(0, 1)
    params[f"{MASK}readout.weight"].fill_(5e-4)
    batch = GraphBatch([random_graph(8)])
    assert model(params, batch)[0].eq(params["readout.bias"][0]).all()
    assert not torch.allclose(model(params, batch, keep)[0], params["readout.bias"][0].expand(8, 3), atol=1e-6)


def test_a_closed_mask_can_open_again() -> None:
    """Training sees the mask itself, not the pruned one, so its gradient is W times the weight's."""
    model = MaskedNetwork("gcn", 6, 4, 2, 3)
    params = {name: tensor.requires_grad_() for name, tensor in model.initial(0, 1).items()}
    with torch.no_grad():
        params[f"{MASK}readout.weight"].fill_(1e-4)
    logits = model(params, GraphBatch([random_graph(8)]), keep)
    weight, mask = params["readout.weight"], params[f"{MASK}readout.weight"]
    by_weight, by_mask = torch.autograd.grad(logits.square().sum(), [weight, mask])
    torch.testing.assert_close(by_mask * mask, by_weight * weight)
    assert by_mask.abs().sum() > 0


def test_a_model_file_holds_the_masks(tmp_path: Path) -> None:
    model = MaskedNetwork("sage", 6, 4, 2, 3, threshold=0.01)
    params = model.initial(0, 1)
    params[f"{MASK}readout.weight"][0, 0] = 0.3
    graph = random_graph(8)
    before = PersonalModel(model, params)
    before.save(tmp_path / "model.safetensors")
    after = PersonalModel.load(tmp_path / "model.safetensors")
    assert after.model == model
    assert (after.probabilities(graph) == before.probabilities(graph)).all()
