"""All tensors of a batch reach the device in one copy, unchanged."""

import torch

from weft.model.packed import pack
from weft.model.transfer import _copied, _tensors
from weft.objectives.answers import ClassAnswers, MultiLabelAnswers
from weft.objectives.objective import Batch

CPU, META = torch.device("cpu"), torch.device("meta")
ANSWERS = {
    "one": ClassAnswers("one", torch.tensor([1, 0, 2]), weights=torch.tensor([0.5, 1.0, 2.0])),
    "many": MultiLabelAnswers("many", torch.tensor([[True, False, True]])),
}
BATCH = Batch(
    pack([[1, 2, 3], [4, 5]], [[0, 0, 1], [0, 1]]),
    torch.tensor([3, 4]),
    torch.tensor([], dtype=torch.int64),
    decoder=pack([[7]]),
    answers=ANSWERS,
    counts={"one": 3},
)


def test_the_tensors_of_one_copy_are_the_originals():
    tensors = list(_tensors(BATCH))
    assert len(tensors) == 12
    copies = _copied(tensors, CPU, non_blocking=False)
    for copy, tensor in zip(copies, tensors, strict=True):
        assert copy.dtype == tensor.dtype and torch.equal(copy, tensor)
    assert len({copy.untyped_storage().data_ptr() for copy in copies if copy.numel()}) == 1


def test_every_tensor_of_a_batch_moves_and_the_rest_stays():
    moved = BATCH.to(META)
    assert [tensor.device for tensor in _tensors(moved)] == [META] * 12
    assert [tensor.shape for tensor in _tensors(moved)] == [tensor.shape for tensor in _tensors(BATCH)]
    assert moved.packed.lengths == BATCH.packed.lengths and moved.counts == BATCH.counts
    assert moved.answers["one"].head == "one"
    assert moved.packed.longest == 3 and moved.packed.cuda_starts.device == META


def test_a_batch_that_is_there_already_is_not_copied():
    assert BATCH.to(CPU) is BATCH
