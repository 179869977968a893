"""Layers, containers and their tools with unusual and wrong options, beside PyTorch's."""

import pytest

short_programs = pytest.importorskip("short_programs", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

LAYERS = """
    nn.Bilinear(0, 3, 4)
    nn.Unflatten(1, 2)
    nn.Hardtanh(1, 0)
    repr(nn.Hardtanh(min_value=-1.0, max_value=3.0))
    nn.Softmax2d()(T.ones(2, 3))
    nn.Dropout(1.5)
    repr(nn.Upsample(2))
    repr(nn.Upsample(scale_factor=(2, 3), mode="bilinear"))
    nn.Upsample(scale_factor=(2, 3))(T.ones(1, 1, 2, 2))
    nn.FractionalMaxPool2d(2)
    nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5)
    nn.FractionalMaxPool2d(2, output_ratio=1.5)
    nn.FractionalMaxPool3d(0, output_size=2)
    nn.TripletMarginLoss(margin=0)
    nn.TripletMarginWithDistanceLoss(margin=-1)
    nn.TripletMarginWithDistanceLoss(reduction="foo")
    nn.MultiMarginLoss(p=3)
    nn.MultiMarginLoss(weight=T.ones(2, 2))
    nn.MultiMarginLoss(weight=2.0)
    nn.GroupNorm(3, 4)
    nn.InstanceNorm1d(3, affine=True)(T.ones(2, 4, 5))
    nn.InstanceNorm1d(3)(T.arange(40.0).reshape(2, 4, 5))
    nn.Embedding(5, 3, padding_idx=5)
    nn.EmbeddingBag.from_pretrained(T.ones(3, 2)).reset_parameters()
    nn.init.kaiming_normal_(T.zeros(0, 2))
    nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5, 2])
    nn.AdaptiveLogSoftmaxWithLoss(4, 10, [2, 5]).reset_parameters()
    nn.Conv1d(2, 4, 3, padding="same", stride=2)
    nn.Conv1d(2, 4, 3, groups=3)
    repr(nn.Conv2d(2, 4, 3, groups=2, bias=False, dilation=2, padding=1))
    repr(nn.Conv1d(2, 4, 3, padding="same", padding_mode="circular"))
    repr(nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1))
    repr(nn.LSTM(3, 4, 2, False, True, 0.3, True, 2))
    repr(nn.RNNCell(3, 4, bias=False, nonlinearity="relu"))
    repr(nn.GRUCell(3, 4))
    repr(nn.RNNBase("LSTM", 3, 4))
    nn.RNN(3, 4, bias=1)
    nn.LSTM(3, 4, proj_size=4)
    c = nn.Conv1d(1, 2, 1); _ = utils.parametrizations.weight_norm(c, "bias"); repr(c)
    nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 1)(T.ones(3, 1, 4), T.ones(2, 2)).shape
"""

MODULES = """
    m.register_parameter("r", nn.Parameter(T.ones(1)) * 2)
    m.register_buffer("a", T.ones(1))
    m.register_buffer(1, T.ones(1))
    m.buf = 1
    m.get_submodule("none.x")
    m.get_submodule("p")
    m.get_parameter("q")
    m.get_buffer("a.weight")
    m.set_submodule("a", 1)
    m.set_submodule("", nn.ReLU())
    m.set_submodule("p", nn.ReLU())
    m.set_submodule("new", nn.ReLU(), strict=True)
    m.train(1)
    m.to(T.int32)
    m.load_state_dict(1)
    m.load_state_dict({**m.state_dict(), "p": 1.0})
    m.load_state_dict({**m.state_dict(), "a.weight.x": T.zeros(3)})
    m.load_state_dict({**m.state_dict(), "p": T.zeros(3, dtype=T.float64)}, assign=True); m.p
    _ = m.register_forward_pre_hook(lambda m, i, k: 1, with_kwargs=True); m(T.ones(1, 2))
    x = T.ones(1, 2, requires_grad=True); _ = m.register_full_backward_hook(lambda m, i, o: 1); \
m(x).sum().backward()
    repr(nn.UninitializedParameter())
    p = nn.Parameter(T.ones(2)); c = copy.deepcopy([p, p]); c[0] is c[1]
    nn.Parameter(T.ones(2, dtype=T.int64))
"""

CONTAINERS = """
    s[3]
    s["0"]
    s.insert(9, nn.ReLU())
    s.insert(0, 1)
    s + 1
    s * 0
    s * 1.5
    del s[0:2]; repr(s)
    l.insert(0, nn.GELU()); repr(l)
    del l[9]
    l.extend(1)
    d.update(1)
    d.pop("z")
    d.pop("a"); repr(d)
    d.clear(); len(d)
    pl += [T.ones(1)]; len(pl)
    pl[5] = T.zeros(1)
    pl.extend(1)
    pd[1]
    pd.pop("a"); repr(pd)
    pd.clear(); pd.popitem()
    pd.update([1])
    pd.update([("a",)])
    pd.update(1)
    repr(pd | {"q": T.ones(1)})
    pd.setdefault("z", T.ones(2)).shape
    pd("x")
"""

TOOLS = """
    P.register_parametrization(m, "weight", Shape())
    P.register_parametrization(m, "zz", Double())
    _ = P.register_parametrization(m, "weight", Halves()); m.weight = 1
    _ = P.register_parametrization(m, "weight", Halves()); m.weight = T.ones(3, 3, dtype=T.float64)
    P.register_parametrization(m, "weight", Wrong())
    P.register_parametrization(m, "weight", One())
    _ = P.register_parametrization(m, "weight", Double()); m.weight = T.ones(3, 3)
    _ = P.register_parametrization(m, "weight", Halves()); \
P.remove_parametrizations(m, "weight", False)
    P.remove_parametrizations(m, "weight")
    P.ParametrizationList([], m.weight)
    m.register_buffer("b", T.ones(3, 3)); _ = P.register_parametrization(m, "b", Halves()); \
_ = P.remove_parametrizations(m, "b"); [name for name, _ in m.named_buffers()]
    k = nn.Linear(3, 3); P.transfer_parametrizations_and_params(m, k) is k
    k = nn.Module(); _ = P.register_parametrization(m, "weight", Double()); \
P.transfer_parametrizations_and_params(m, k).weight
    prune.PruningContainer(1)
    prune.l1_unstructured(m, "weight", -1)
    prune.l1_unstructured(m, "weight", 30)
    prune.ln_structured(m, "bias", 0.4, 2, 0)
    prune.ln_structured(m, "weight", 0.4, 2, 5)
    prune.custom_from_mask(m, "weight", T.eye(2))
    prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=4, n=2)
    prune.L1Unstructured(1).apply_mask(m)
    prune.L1Unstructured(1).remove(m)
    utils.rnn.pad_sequence(T.ones(2, 3))
    utils.rnn.pad_sequence([])
    utils.rnn.pad_sequence([T.ones(2, 3), T.ones(2, 2)])
    utils.rnn.pad_sequence([t([1.0, 2.0]), t([3.0])], padding_side="foo")
    packed = utils.rnn.pack_sequence([t([1.0, 2.0]), t([3.0])]); packed.cpu() is packed
    utils.rnn.pack_sequence([t([1, 2]), t([3])]).float().data
    utils.rnn.pack_sequence([t([1.0, 2.0]), t([3.0])]).is_cuda
    utils.clip_grad_value_(m.parameters(), "a")
    utils.vector_to_parameters(1, m.parameters())
"""

_MODULE = """
class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.register_buffer("buf", T.ones(2))
        self.p = nn.Parameter(T.ones(3))
        self.register_parameter("q", None)
        self.register_module("none", None)
    def forward(self, x, k=1):
        return self.a(x) * k
m = Module()
"""
_CONTAINERS = """
s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
l = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Sigmoid()])
d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
pl = nn.ParameterList([T.ones(1), T.ones(2), 5])
pd = nn.ParameterDict({"a": T.ones(1), "b": 5})
"""
_TOOLS = """
class Double(nn.Module):
    def forward(self, x):
        return x * 2
class Halves(nn.Module):
    def forward(self, a, b=0):
        return a + b
    def right_inverse(self, x):
        return x / 2, x / 2
class Shape(nn.Module):
    def forward(self, x):
        return x[:2]
class Wrong(Halves):
    def right_inverse(self, x):
        return x, 3
class One(nn.Module):
    def forward(self, x):
        return 1
m = nn.Linear(3, 3)
with T.no_grad():
    for p in m.parameters():
        p.fill_(0.5)
"""


@pytest.mark.parametrize(
    ("programs", "before"),
    [(LAYERS, ""), (MODULES, _MODULE), (CONTAINERS, _CONTAINERS), (TOOLS, _TOOLS)],
    ids=["layers", "modules", "containers", "tools"],
)
def test_what_unusual_options_do(programs, before):
    assert not short_programs.differences(programs, before)
