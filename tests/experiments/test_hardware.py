"""Devices that are there, and those that are not."""

from __future__ import annotations

import pytest
import torch

from fedgkd.errors import SettingError
from fedgkd.experiments.hardware import count_cores, find_device


def test_the_cpu_is_always_there() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert count_cores() >= 1


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "meta", "cpu0"])
def test_other_words(name: str) -> None:
    with pytest.raises(SettingError, match=f"device must be cpu, cuda or cuda:N, not '{name}'"):
        find_device(name)


def test_a_cuda_device_that_is_not_there() -> None:
    with pytest.raises(SettingError, match=r"device cuda:99 is not there: PyTorch sees \d+ CUDA devices; use cpu"):
        find_device("cuda:99")
