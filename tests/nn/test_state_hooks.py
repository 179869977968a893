"""Hooks around state dicts, and what else modules do beside computing, as with PyTorch."""

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def _net(m):
    return m.nn.Sequential(m.nn.Linear(2, 3), m.nn.Sequential(m.nn.Linear(3, 1)))


def _log_of_hooks(m):
    """What hooks are given while the state of a tree is saved and loaded."""
    log = []
    net = _net(m)
    for name, part in (("all", net), ("inner", net[1]), ("linear", net[1][0])):
        part.register_state_dict_pre_hook(
            lambda module, prefix, keep_vars, name=name: log.append(("pre", name, prefix))
        )
        part.register_state_dict_post_hook(
            lambda module, state, prefix, metadata, name=name: log.append(
                ("post", name, prefix, [*state], metadata["version"])
            )
        )
        part.register_load_state_dict_pre_hook(
            lambda module, state, prefix, metadata, strict, *lists, name=name: log.append(
                ("load", name, prefix, sorted(state), strict, lists)
            )
        )
        part.register_load_state_dict_post_hook(
            lambda module, keys, name=name: log.append(
                ("loaded", name, keys.missing_keys, keys.unexpected_keys)
            )
        )
    net.load_state_dict(net.state_dict())
    return log


def test_hooks_are_called_in_pytorchs_order_with_its_arguments():
    assert _log_of_hooks(ag) == _log_of_hooks(torch)


def test_what_a_hook_renames_is_found_by_the_modules_below():
    for m in (ag, torch):
        net = _net(m)
        old = {key.replace("1.0.", "head."): value for key, value in net.state_dict().items()}

        def rename(module, state, prefix, *rest):
            for key in [key for key in state if key.startswith("head.")]:
                state[key.replace("head.", "1.0.")] = state.pop(key)

        with pytest.raises(RuntimeError, match="Unexpected key"):
            net.load_state_dict(old)
        handle = net.register_load_state_dict_pre_hook(rename)
        assert net.load_state_dict(old).missing_keys == []
        handle.remove()
        net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
        net.register_load_state_dict_post_hook(lambda module, keys: keys.unexpected_keys.clear())
        assert str(net.load_state_dict(old)) == "<All keys matched successfully>"


def test_hooks_after_saving_and_loading_return_nothing():
    for m in (ag, torch):
        net = _net(m)
        state = net.state_dict()
        net.register_state_dict_post_hook(lambda *given: {})
        with pytest.raises(RuntimeError, match="must return None"):
            net.state_dict()
        net.register_load_state_dict_post_hook(lambda *given: 1)
        with pytest.raises(AssertionError, match="not expected to return"):
            net.load_state_dict(state)


def test_metadata_tells_of_assignment_only_where_it_is_asked_for():
    for m in (ag, torch):
        net, seen = m.nn.Linear(1, 1), []
        net.register_load_state_dict_pre_hook(lambda *given, seen=seen: seen.append(given[3]))
        for assign in (False, True):
            net.load_state_dict(net.state_dict(), assign=assign)
        assert seen == [{"version": 1}, {"version": 1, "assign_to_params_buffers": True}]


def test_keys_that_differ_are_printed_as_in_pytorch():
    printed = [str(m.nn.Linear(1, 1).load_state_dict({}, strict=False)) for m in (ag, torch)]
    assert printed[0] == printed[1]


def test_a_child_saves_its_state_its_own_way():
    for m in (ag, torch):

        class Named(m.nn.Linear):
            def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
                destination[prefix + "mine"] = 1
                return destination

        assert [*m.nn.Sequential(Named(1, 1)).state_dict()] == ["0.mine"]


def test_modules_are_put_at_paths():
    for m in (ag, torch):
        net = _net(m)
        new = m.nn.Linear(3, 2)
        net.set_submodule("1.0", new)
        assert net[1][0] is new
        with pytest.raises(AttributeError):
            net.set_submodule("1.7", new, strict=True)
        with pytest.raises(AttributeError):
            net.set_submodule("8.7", new)
        with pytest.raises(AttributeError):
            net.set_submodule("0.weight", new)
        with pytest.raises(ValueError, match="target name"):
            net.set_submodule("", new)


def test_empty_parameters_keep_what_is_known_of_them():
    for m in (ag, torch):
        net = _net(m)
        weight = net[0].weight
        assert net.to_empty(device="cpu") is net
        assert net[0].weight is weight
        assert tuple(weight.shape) == (3, 2)
        assert weight.requires_grad
        assert net.share_memory() is net
        if m is ag:
            assert net.compile() is None


def test_bfloat16_converts_floating_tensors():
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    net = ag.nn.BatchNorm1d(2).bfloat16()
    assert net.running_mean.dtype == net.weight.dtype == ag.bfloat16
    assert net.num_batches_tracked.dtype == ag.int64


def test_optimizers_call_hooks_round_their_state():
    logs = []
    for m in (ag, torch):
        log = []
        optimizer = m.optim.SGD([m.nn.Parameter(m.ones(2))], lr=0.5)
        optimizer.register_state_dict_pre_hook(lambda own, log=log: log.append("save"))
        optimizer.register_state_dict_post_hook(lambda own, state: {**state, "more": 1})
        optimizer.register_state_dict_post_hook(
            lambda own, state, log=log: log.append(sorted(state)), prepend=True
        )
        optimizer.register_load_state_dict_pre_hook(
            lambda own, state, log=log: log.append(sorted(state))
        )
        optimizer.register_load_state_dict_post_hook(lambda own, log=log: log.append("loaded"))
        state = optimizer.state_dict()
        assert state["more"] == 1
        optimizer.load_state_dict(state)
        logs.append(log)
    assert logs[0] == logs[1] == ["save", ["param_groups", "state"],
                                  ["more", "param_groups", "state"], "loaded"]  # fmt: skip


def test_names_of_parameters_are_given_for_all_or_none():
    for m in (ag, torch):
        a, b = (m.nn.Parameter(m.ones(2)) for _ in range(2))
        with pytest.raises(ValueError, match="names are missing"):
            m.optim.SGD([("a", a), b], lr=0.5)
        optimizer = m.optim.SGD([("a", a)], lr=0.5)
        with pytest.raises(ValueError, match="without names to the optimizer"):
            optimizer.add_param_group({"params": [b]})
        optimizer = m.optim.SGD([a], lr=0.5)
        with pytest.raises(ValueError, match="with names to the optimizer"):
            optimizer.add_param_group({"params": [("b", b)]})
        assert len(optimizer.param_groups) == 1
        with pytest.raises(ValueError, match="lr must be 1-element"):
            m.optim.Adam([a], lr=m.ones(2))
