"""Names that PyTorch's programs use, and modules that are for more than one process there."""

import copy
import importlib
import pkgutil

import numpy as np
import pytest
from module_parity import assert_close, check, layers

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

#: Old names, experiments, and hooks on assignments.
ABSENT = {
    "Container", "CrossMapLRN2d", "LazyModuleMixin", "LinearCrossEntropyLoss", "NLLLoss2d",
    "LinearCrossEntropyOptions", "register_module_buffer_registration_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
}  # fmt: skip


def test_files_of_pytorchs_modules_can_be_imported():
    for _, name, _ in pkgutil.iter_modules(torch.nn.modules.__path__):
        theirs = importlib.import_module(f"torch.nn.modules.{name}")
        names = {*(getattr(theirs, "__all__", None) or ())} - ABSENT
        if names:
            ours = importlib.import_module(f"asyncgrad.nn.modules.{name}")
            assert names <= {*vars(ours)}
            for found in names & {*ag.nn.__all__}:
                assert getattr(ours, found) is getattr(ag.nn, found)
                assert getattr(ag.nn.modules, found) is getattr(ag.nn, found)


def test_base_classes_tell_modules_apart():
    from asyncgrad.nn.modules import batchnorm, conv, dropout, loss, rnn, utils

    assert isinstance(ag.nn.BatchNorm2d(1), batchnorm._BatchNorm)
    assert not isinstance(ag.nn.InstanceNorm2d(1), batchnorm._BatchNorm)
    assert isinstance(ag.nn.InstanceNorm2d(1), batchnorm._NormBase)
    assert isinstance(ag.nn.ConvTranspose1d(1, 1, 1), conv._ConvNd)
    assert isinstance(ag.nn.ConvTranspose1d(1, 1, 1), conv._ConvTransposeNd)
    assert isinstance(ag.nn.AlphaDropout(), dropout._DropoutNd)
    for name in ("BCELoss", "CrossEntropyLoss", "MultiMarginLoss", "NLLLoss"):
        assert issubclass(getattr(ag.nn, name), loss._WeightedLoss)
    assert isinstance(ag.nn.LSTM(1, 1), rnn.RNNBase)
    assert ag.nn.RNNBase is rnn.RNNBase
    assert utils._pair(3) == (3, 3)
    assert issubclass(ag.optim.lr_scheduler.StepLR, ag.optim.lr_scheduler._LRScheduler)


def test_functions_are_found_by_the_names_of_pytorchs_files():
    for file, name in (
        ("nn.utils.clip_grad", "clip_grad_norm_"), ("nn.utils.clip_grad", "clip_grad_value_"),
        ("utils.data.dataloader", "DataLoader"), ("utils.data.dataloader", "default_collate"),
        ("utils.data.distributed", "DistributedSampler"),
        ("nn.parameter", "UninitializedParameter"), ("optim.optimizer", "Optimizer"),
    ):  # fmt: skip
        for library in ("torch", "asyncgrad"):
            package = importlib.import_module(f"{library}.{file.rpartition('.')[0]}")
            found = importlib.import_module(f"{library}.{file}")
            assert getattr(found, name) is getattr(package, name)


@pytest.mark.parametrize("name", ["neg", "abs"])
def test_errors_name_a_method_that_is_an_operator_too_by_its_name(name):
    """They called it `Tensor.__neg__()`."""
    with pytest.raises(TypeError, match=rf"^Tensor\.{name}\(\) takes"):
        getattr(ag.ones(1), name)(1, 2)


def test_a_program_imports_from_dlpack_from_its_file():
    from asyncgrad.utils.dlpack import from_dlpack

    given = np.ones(2)
    from_dlpack(given).mul_(2)
    assert given.tolist() == [2, 2]


def test_handles_of_all_hooks_are_of_one_class():
    from asyncgrad.utils.hooks import RemovableHandle

    handles = [
        ag.ones(1, requires_grad=True).register_hook(print),
        ag.nn.Linear(1, 1).register_forward_hook(print),
    ]
    assert all(isinstance(handle, RemovableHandle) for handle in handles)
    assert handles[0].id != handles[1].id


def test_layers_of_users_call_what_pytorchs_have():
    """Weights that are standardised, and statistics that are their own."""
    x, w = np.arange(32.0).reshape(1, 2, 4, 4), np.arange(36.0).reshape(2, 2, 3, 3)
    results = []
    for library in (torch, ag):

        class Doubled(library.nn.Conv2d):
            def forward(self, input):
                return self._conv_forward(input, self.weight * 2, None)

        class Centred(library.nn.BatchNorm2d):
            def forward(self, input):
                self._check_input_dim(input)
                return input - input.mean((0, 2, 3), keepdim=True)

        layer = Doubled(2, 2, 3, padding=1, padding_mode="circular").double()
        with library.no_grad():
            layer.weight.copy_(library.tensor(w))
        results.append(Centred(2)(layer(library.tensor(x))).detach().numpy())
        with pytest.raises(ValueError, match="expected 4D input"):
            Centred(2)(library.ones(2, 2))
    np.testing.assert_allclose(*results)


@pytest.mark.parametrize("persistent", [True, False])
def test_buffers_are_registered_by_assignment(persistent):
    names = []
    for library in (ag, torch):
        module = library.nn.Linear(1, 1)
        module.scale = library.nn.Buffer(library.ones(2), persistent=persistent)
        assert module.scale.tolist() == [1.0, 1.0]
        assert isinstance(module.scale, library.nn.Buffer)
        with pytest.raises(TypeError, match="cannot assign"):
            module.scale = 1.0
        twin = copy.deepcopy(module).double()
        names.append([[*m.state_dict()] for m in (module, twin)])
        names[-1].append([name for name, _ in twin.named_buffers()])
        module.weight = None
        module.weight = library.nn.Parameter(library.ones(1, 1))
        del module.bias
        module.bias = library.nn.Buffer()
        names[-1] += [[*module.state_dict()], [n for n, _ in module.named_parameters()]]
    assert names[0] == names[1]
    source = ag.ones(2)
    buffer = ag.nn.Buffer(source)
    source += 1
    assert buffer.tolist() == [2.0, 2.0]
    assert buffer._version == 1
    with pytest.raises(TypeError, match="a Tensor is needed"):
        ag.nn.Buffer(1.0)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (4, 3, 2, 2)])
def test_synchronised_norms_are_those_of_one_process(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    dim = max(1, len(shape) - 2)
    check(lambda nn: nn.SyncBatchNorm(3), x, train=False)
    mine, other = layers(lambda nn: nn.Sequential(getattr(nn, f"BatchNorm{dim}d")(3), nn.ReLU()))
    converted = ag.nn.SyncBatchNorm.convert_sync_batchnorm(mine)
    assert repr(converted) == repr(torch.nn.SyncBatchNorm.convert_sync_batchnorm(other))
    assert [*map(id, converted.parameters())] == [*map(id, mine.parameters())]
    assert_close(converted(ag.tensor(x)), other(torch.tensor(x)))
    assert_close(converted[0].running_var, other[0].running_var)


def test_what_needs_other_processes_is_refused():
    with pytest.raises(ValueError, match="no process group"):
        ag.nn.SyncBatchNorm(3, process_group=object())
    with pytest.raises(ValueError, match="at least 2D input"):
        ag.nn.SyncBatchNorm(3)(ag.ones(3))
    with pytest.raises(ValueError, match="not shared out"):
        ag.nn.DataParallel(ag.nn.Identity(), device_ids=[0, 1])


def test_the_module_of_parallel_modules_can_be_imported():
    """Programs import it for names that they use on several devices only."""
    parallel = importlib.import_module("asyncgrad.nn.parallel")
    assert parallel is ag.nn.parallel
    assert parallel.DataParallel is ag.nn.DataParallel
    with pytest.raises(AttributeError, match=r"is in asyncgrad\.distributed\.nn\.parallel"):
        assert parallel.DistributedDataParallel


def test_a_module_that_is_parallel_over_one_device_is_the_module():
    mine, other = layers(lambda nn: nn.DataParallel(nn.Linear(2, 2)))
    x = np.ones((3, 2))
    assert_close(mine(ag.tensor(x)), other(torch.tensor(x)))
    states = [library_module.state_dict() for library_module in (mine, other)]
    assert [*states[0]] == [*states[1]] == ["module.weight", "module.bias"]
    for nn, state in ((ag.nn, states[0]), (torch.nn, states[1])):
        nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert [*states[0]] == [*states[1]] == ["weight", "bias"]
    assert {*states[0]._metadata} == {*states[1]._metadata}
    mine.module.load_state_dict(states[0])
