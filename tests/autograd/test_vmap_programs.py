"""Programs that map a function over a batch, the same in PyTorch and here."""

# ruff: noqa: B023  run within loops

import functools
from collections import OrderedDict, namedtuple

from plain_parity import attempted, numbers, plainly


@plainly
def test_api_errors(T, log):
    vmap = T.func.vmap
    o = T.ones(3)
    x = numbers(T, 2)
    y = numbers(T, 3)
    attempted(log, "got type <class 'float'>", vmap(lambda x: 3.14), o)
    attempted(log, "got type <class 'int'>", vmap(lambda x: (x, 3)), o)
    m = "Expected all tensors to have the same size in the mapped dimension"
    attempted(log, m, vmap(T.mul), x, y)
    attempted(log, m, vmap(lambda z: z[0] + z[1], in_dims=((0, 0),)), (x, y))
    attempted(
        log, m, vmap(lambda z: z["x"] + z["y"], in_dims=({"x": 0, "y": 0},)), {"x": x, "y": y}
    )
    attempted(log, "got no inputs", vmap(lambda: T.ones(3)))
    attempted(log, "got no inputs", vmap(lambda x: T.ones(3)))
    attempted(log, "at least one Tensor", vmap(lambda x: T.ones(3), (None,)), 1)
    log(vmap(lambda x: T.tensor(3.14))(o))
    m = "must be an int, None or a python collection of ints"
    t = numbers(T, 2, 3)
    attempted(log, m, lambda: vmap(lambda x: x, out_dims="lol")(t))
    attempted(log, m, lambda: vmap(lambda x: x, out_dims=("lol",))(t))
    x = numbers(T, 2, 3, 5)
    for f, od in (
        (lambda x: x, (0, 0)),
        (lambda x: (x, x, x), (0, 0, 0, 0)),
        (lambda x: (x, x), (0,)),
        (lambda x: (x, x, x), (0, 0)),
    ):
        attempted(log, "not compatible", vmap(f, out_dims=od), x)
    attempted(log, "Dimension out of range", vmap(lambda x: x, out_dims=3), x)
    attempted(log, "Dimension out of range", vmap(lambda x: x, out_dims=-4), x)
    attempted(log, r"item\(\) on a Tensor", vmap(lambda x: x.item()), y)
    attempted(log, "data-dependent control flow", vmap(lambda x: x if x else 0), y)
    a, b = numbers(T, 3), numbers(T, 3)
    m = r"expected `in_dims` to be int or a \(potentially nested\) tuple"
    attempted(log, m, vmap(T.mul, [0, 0]), a, b)
    attempted(log, m, vmap(T.mul, {0}), a, b)
    attempted(log, m, vmap(T.mul, "lol"), a, b)
    attempted(log, m, vmap(lambda z: z[0] + z[1], in_dims=[0, 0]), [a, b])
    m = r"in_dims is not compatible with the structure of `inputs`"
    attempted(log, m, vmap(T.mul, (0,)), a, b)
    attempted(log, m, vmap(T.mul, (0, 0, 0)), a, b)
    attempted(log, m, vmap(lambda z: z[0] + z[1], in_dims=([0],)), [a, b])
    attempted(log, m, vmap(lambda z: z[0] + z[1], in_dims=((0, 0),)), [a, b])
    m = "Got in_dim=0 for an input but the input is of type"
    z = numbers(T, 2, 3)
    attempted(log, m, vmap(T.sum), z, 0)
    attempted(log, m, vmap(T.sum, (0, 0)), z, 0)
    attempted(log, m, vmap(lambda z: z[0] + z[1], in_dims=([0, 0],)), [z, 1])
    log(vmap(T.sum, (0, None))(z, 0))
    m = r"Got in_dim=-?\w for some input, but that input is a Tensor of dimensionality \w"

    def sq(x):
        return x * x

    attempted(log, m, vmap(sq), numbers(T))
    attempted(log, m, vmap(sq, in_dims=(0,)), numbers(T))
    attempted(log, m, vmap(sq, in_dims=(-3,)), z)
    attempted(log, m, vmap(sq, in_dims=(2,)), z)
    attempted(log, m, vmap(lambda z: z[0] + z[1], in_dims=([3, 0],)), [z, z])
    attempted(log, "", lambda: vmap(sq, chunk_size=0)(z))
    attempted(log, "", lambda: vmap(sq, chunk_size=-1)(z))
    attempted(
        log,
        "can not return a BatchedTensor when out_dim is None",
        vmap(lambda x: x, out_dims=None),
        z,
    )
    attempted(log, "", vmap(lambda x: x.tolist()), z)
    attempted(log, "", vmap(lambda x: float(x)), y)
    attempted(log, "", vmap(lambda x: int(x)), y)
    attempted(log, "", vmap(lambda x: x.numpy()), y)


@plainly
def test_api_out(T, log):
    vmap = T.func.vmap
    x = numbers(T, 2, 3, 5)
    y = numbers(T, 2, 3, 5, seed=1)
    for od in (0, 1, 2, -1, -2, (1,)):
        r = vmap(lambda x: x, out_dims=od)(x)
        log(r, r.data_ptr() == x.data_ptr())
        log(vmap(lambda x: x * 2, out_dims=od)(x))
    log(vmap(lambda x, y: (x, x * y, x * y * y), out_dims=1)(x, y))
    log(vmap(lambda x, y: (x, x, x, x * y), out_dims=(-1, 0, 1, 2))(x, y))
    log(
        vmap(lambda y: vmap(lambda x: x, out_dims=1)(y))(x),
        vmap(lambda y: vmap(lambda x: x, out_dims=1)(y), out_dims=1)(x),
        vmap(lambda y: vmap(lambda x: x, out_dims=-1)(y), out_dims=-1)(x),
    )
    z = numbers(T, 2, 3)
    log(vmap(lambda x: (x, "hello"), out_dims=(0, None))(z))

    def f(x):
        x.add_(1)
        return None, "hello"

    log(vmap(f, out_dims=(None, None))(z), z)

    def f(x):
        x.add_(1)
        return "hello"

    log(vmap(f, out_dims=None)(z), z)
    log(vmap(lambda x: T.arange(3))(z), vmap(lambda x: T.arange(3), out_dims=None)(z))

    def f(x):
        return (x.sin(), (x.sin(), x.sin()), [x.sin(), (x.sin(), x.sin())])

    log(vmap(f)(z))
    r = vmap(lambda t: OrderedDict([("s", t.sin()), ("c", t.cos())]))(z)
    log(type(r).__name__, list(r), r["s"], r["c"])

    def f(x):
        return (x.sin(), (x.sin(), x.sin()))

    log(vmap(f, out_dims=(0, (0, 1)))(z), vmap(f, out_dims=1)(z), vmap(f, out_dims=(0, 1))(z))
    for r in (
        vmap(lambda x: (x, x))(z),
        vmap(lambda x: [x, x])(z),
        vmap(lambda x: [x])(z),
        vmap(lambda x: (x,))(z),
        vmap(lambda x: {"a": x})(z),
    ):
        log(isinstance(r, list), isinstance(r, tuple), r)
    P = namedtuple("P", "a b")
    r = vmap(lambda x: P(x, x + 1))(z)
    log(type(r).__name__, r.a, r.b)
    r = vmap(lambda p: p.a * p.b)(P(z, z))
    log(r)
    log(vmap(lambda x: x.max(0))(z))
    r = vmap(lambda x: x.max(0))(z)
    log(hasattr(r, "values"))


@plainly
def test_api_in(T, log):
    vmap = T.func.vmap
    x = numbers(T, 2, 3, 5)
    z = numbers(T, 2, 3)
    w = numbers(T, 3, 2)
    r = vmap(lambda x: x, (1,))(x)
    log(r, r.data_ptr() == x.data_ptr())
    log(
        vmap(T.mul, (0, 1))(z, w),
        vmap(T.mul, (1, 0))(z, w),
        vmap(T.mul, (0, None))(z, z),
        vmap(T.mul, (0, None))(z, 2),
    )
    a = numbers(T, 5, 2, 3)
    b = numbers(T, 3, 5, 2)
    log(vmap(vmap(vmap(T.mul), (1, 0)), (1, 2))(a, b))
    log(vmap(T.mul, (-1, -1))(z, z))
    for i, o in ((1, 1), (2, 1)):
        r = vmap(lambda x: x, in_dims=i, out_dims=o)(x)
        log(r, r.data_ptr() == x.data_ptr())
        log(vmap(lambda x: x * 2, in_dims=i, out_dims=o)(x))
    log(vmap(vmap(lambda x: x * 2, 1, 1), 1, 1)(x))

    def f(z):
        return z[0] + z[1]

    log(
        vmap(f)((z, z)),
        vmap(f, in_dims=(0,))((z, z)),
        vmap(f, in_dims=((0, 0),))((z, z)),
        vmap(f)([z, z]),
        vmap(f, in_dims=([0, 0],))([z, z]),
    )

    def g(z):
        return z["x"] + z["y"]

    d = {"x": z, "y": z}
    log(
        vmap(g)(d),
        vmap(g, in_dims=({"x": 0, "y": 0},))(d),
        vmap(g, in_dims=({"x": 0, "y": None},))({"x": z, "y": z[0]}),
    )
    log(
        vmap(lambda z: z["x"][0] + z["x"][1][0] + z["y"][0] + z["y"][1])(
            {"x": [z, (z,)], "y": [z, z]}
        )
    )
    y = numbers(T, 5, 3)
    log(vmap(lambda x: vmap(lambda y: x * y)(y))(z))
    u = numbers(T, 7, 3)
    log(vmap(lambda x: vmap(lambda y: vmap(lambda w: x * y * w)(u))(y))(z))
    log(vmap(lambda x: vmap(lambda y: x)(numbers(T, 5)))(numbers(T, 3)))
    log(vmap(functools.partial(T.mul, numbers(T, 3)))(z))
    log(vmap(lambda x, k=2: x * k)(z), vmap(lambda x, *, k: x * k)(z, k=z))
    log(
        vmap(
            vmap(lambda x, y: x + T.dot(y, T.ones(2, dtype=T.float64)), in_dims=(0, None)),
            in_dims=(None, 0),
        )(numbers(T, 7, 5), numbers(T, 3, 2))
    )
    xx = numbers(T, 3, leaf=True)
    yy = numbers(T, 3, seed=3)
    log(
        vmap(lambda v: T.autograd.grad([xx * yy], [xx], grad_outputs=[v])[0])(
            T.eye(3, dtype=T.float64)
        )
    )

    def shapes(x):
        log(tuple(x.shape), x.ndim, x.size(0), x.numel(), x.dim(), str(x.dtype)[-7:], len(x))
        return x

    vmap(shapes)(z)
    vmap(shapes)(z.clone().requires_grad_())

    def it(x):
        s = 0
        for r in x:
            s = s + r * r
        a, b, c = x
        return s + a * b * c

    log(vmap(it)(z))


@plainly
def test_inplace(T, log):
    vmap = T.func.vmap
    o = numbers(T, 2, 5).abs() / 10
    for op in (
        T.Tensor.acos_,
        T.Tensor.sin_,
        lambda x: x.mul_(2),
        lambda x: x.add_(x),
        lambda x: x.zero_(),
        lambda x: x.fill_(3.0),
    ):
        x = o.clone()
        r = vmap(op)(x)
        log(r is x, r, x)
        x = o.clone()
        r = vmap(op, out_dims=(1,))(x)
        log(r._base is x, r, x)
        x = numbers(T, 2, 3, 5).abs() / 10
        r = vmap(vmap(op))(x)
        log(r is x, r)
    x = numbers(T, 7, 11, 5)
    y = numbers(T, 5, 7, 11, seed=2)
    vmap(T.Tensor.atan2_, (2, 0))(x, y)
    log(x)
    x = numbers(T, 7, 11, 5)
    y = numbers(T, 5, 7, 11, seed=2)
    vmap(vmap(T.Tensor.atan2_), (2, 0))(x, y)
    log(x)
    x = numbers(T, 2, 7)
    vmap(T.Tensor.mul_, (0, None))(x, numbers(T, 7))
    log(x)
    attempted(
        log, "is not possible", vmap(T.Tensor.mul_, (None, 0)), numbers(T, 7), numbers(T, 2, 7)
    )
    attempted(
        log,
        "is not possible",
        vmap(vmap(T.Tensor.mul_, in_dims=(0, None)), in_dims=(None, 0)),
        numbers(T, 3, 7),
        numbers(T, 2, 7),
    )
    x = numbers(T, 2, 3)

    def f(x):
        x[0] = x[1] * 2
        x[1:] += 1
        return x.sum()

    log(vmap(f)(x), x)

    def f(x):
        y = T.zeros_like(x)
        y.copy_(x)
        y += 1
        return y

    log(vmap(f)(x))

    def f(x):
        y = x.new_zeros(3)
        y[:] = x
        return y

    log(vmap(f)(x))

    def f(x):
        y = x.new_empty(3)
        y.copy_(x)
        return y.sum()

    log(vmap(f)(x))
    log(vmap(T.func.grad(f))(x))

    def f(x):
        y = T.zeros(3, dtype=T.float64)
        y[:] = x
        return y

    attempted(log, "", vmap(f), x)

    def loss(w, x, t):
        x = x.mm(w)
        y = x.squeeze_(0)
        return (y - t).sum()

    w = numbers(T, 16, 2)
    log(vmap(functools.partial(T.func.grad(loss), w))(numbers(T, 4, 1, 16), numbers(T, 4, 2)))


@plainly
def test_chunk(T, log):
    vmap = T.func.vmap
    x = numbers(T, 5, 3)
    y = numbers(T, 4, 5)
    for c in (1, 2, 3, 5, 100):
        log(
            vmap(lambda x, y: (x.sum() * y, y), in_dims=(0, 1), out_dims=(1, 0), chunk_size=c)(x, y)
        )
        log(c)
    log(vmap(lambda x: x * 2)(T.zeros(0, 3)))


@plainly
def test_random(T, log):
    vmap = T.func.vmap
    x = numbers(T, 4, 3)
    for f in (
        lambda x: x + T.randn(3),
        lambda x: T.rand(3),
        lambda x: x + T.rand_like(x),
        lambda x: T.nn.functional.dropout(x, 0.5, True),
        lambda x: T.bernoulli(x.abs().clamp(0, 1)),
        lambda x: T.randint(0, 10000, (3,)),
        lambda x: T.randperm(30),
        lambda x: x.clone().normal_(),
        lambda x: x.clone().uniform_(),
        lambda x: T.normal(x, 1.0),
        lambda x: T.multinomial(x.abs(), 2),
        lambda x: T.randn_like(x),
        lambda x: T.randint_like(x, 10000),
        lambda x: x.clone().exponential_(),
        lambda x: T.normal(0.0, 1.0, (3,)),
        lambda x: x.clone().bernoulli_(0.5),
    ):
        attempted(log, "called random operation while in randomness error mode", vmap(f), x)
        log(tuple(vmap(f, randomness="different")(x).shape))
    for f in (
        lambda x: T.randn(3),
        lambda x: T.rand(3),
        lambda x: T.randint(0, 10000, (3,)),
        lambda x: T.randn_like(x),
        lambda x: T.randperm(30),
    ):
        T.manual_seed(0)
        o = vmap(f, randomness="same")(x)
        log(bool((o[0] == o[1]).all()))
        T.manual_seed(0)
        o = vmap(f, randomness="different")(x)
        log(bool((o[0] == o[1]).all()))
    log(vmap(lambda x: x + T.rand(3) * 0, randomness="different", in_dims=1)(numbers(T, 3, 4)))

    def f(x):
        return vmap(lambda y: T.randn(()))(x)

    attempted(log, "", vmap(f, randomness="different"), x)
    log(
        tuple(
            vmap(
                lambda x: vmap(lambda y: T.randn(()), randomness="same")(x), randomness="different"
            )(x).shape
        )
    )


@plainly
def test_module(T, log):
    vmap = T.func.vmap
    F = T.func
    m = T.nn.Linear(3, 3, bias=False)
    x = T.ones(2, 3)
    log(bool(((vmap(m)(x) - m(x)).abs() < 1e-6).all()))

    class Id(T.autograd.Function):
        @staticmethod
        def forward(x, y):
            pass

        @staticmethod
        def setup_context(ctx, i, o):
            pass

        @staticmethod
        def vmap(info, in_dims, x, y):
            log(
                in_dims,
                isinstance(in_dims, tuple),
                isinstance(in_dims[1], list),
                info.batch_size,
                info.randomness,
            )
            return (x, y), in_dims

    x = numbers(T, 2)
    log(vmap(Id.apply)(x, [x, x]))

    class Z(T.autograd.Function):
        @staticmethod
        def forward(i):
            return T.zeros(i.shape)

        @staticmethod
        def setup_context(ctx, i, o):
            pass

    for ret in (
        lambda r: (r, None),
        lambda r: ((r, r), None),
        lambda r: r,
        lambda r: (r, r, 0, 0),
        lambda r: (r, (None,)),
        lambda r: ([r], (None,)),
        lambda r: ((r, r), (None, None)),
        lambda r: ([r, r], [None, None]),
        lambda r: ({"a": r}, {"a": None}),
        lambda r: ((r, r), (None,)),
    ):
        Z.vmap = staticmethod(lambda info, d, i: ret(T.zeros(i.shape[1:])))
        attempted(log, "to have two returns|returned an incompatible", vmap(Z.apply), T.ones(2, 3))

    class G(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(i):
            return i * 2

        @staticmethod
        def setup_context(ctx, i, o):
            ctx.save_for_backward(i[0])

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, t):
            return t * 2

    x = numbers(T, 2, 3)
    log(vmap(G.apply)(x))
    log(vmap(F.grad(lambda x: G.apply(x).sum()))(x))
    log(F.jacrev(G.apply)(x[0]))
    log(F.jacfwd(G.apply)(x[0]))
    log(vmap(F.jacrev(G.apply))(x))
    G.vmap = staticmethod(lambda i, d, x: (x, 0))
    attempted(log, "generate_vmap_rule=True and", vmap(G.apply), x)

    class P(G):
        vmap = T.autograd.Function.vmap

        @staticmethod
        def forward(i):
            return i * 2, 5, None, i.sum()

        @staticmethod
        def backward(ctx, g, *others):
            return g * ctx.saved_tensors[0]

    log(vmap(P.apply, out_dims=(0, None, None, 0))(x))
    log(vmap(F.grad(lambda x: P.apply(x)[0].sum()))(x))

    class N(T.autograd.Function):
        @staticmethod
        def forward(i):
            return i * 2

        @staticmethod
        def setup_context(ctx, i, o):
            pass

    attempted(log, "does not have vmap support", vmap(N.apply), x)

    class Skip(T.autograd.Function):
        @staticmethod
        def forward(i):
            return i

        @staticmethod
        def setup_context(ctx, i, o):
            pass

        @staticmethod
        def vmap(info, d, i):
            raise RuntimeError("called")

    def f(x):
        Skip.apply(T.tensor(1.0))
        return x * 1

    log(vmap(f)(x))


@plainly
def test_modulestate(T, log):
    F = T.func

    def mk():
        return [T.nn.Linear(2, 2) for _ in range(3)]

    attempted(log, "stack_module_state:.* Expected at least one model", F.stack_module_state, [])
    m = mk()
    m[1].eval()
    attempted(log, "stack_module_state:.* same training/eval mode.", F.stack_module_state, m)
    m = mk()
    m[1] = T.nn.Conv2d(3, 3, (3, 3))
    attempted(log, "stack_module_state:.* models to be of the same class", F.stack_module_state, m)
    m = mk()
    m[0].weight.requires_grad_(False)
    attempted(log, "same .requires_grad", F.stack_module_state, m)
    p, b = F.stack_module_state(mk())
    log({k: (tuple(v.shape), v.requires_grad, v.is_leaf) for k, v in p.items()}, b)
    m = T.nn.Linear(3, 3)
    x = T.ones(4, 3)
    d = {k: v.detach() * 0 for k, v in m.named_parameters()}
    log(
        F.functional_call(m, d, x),
        F.functional_call(m, d, (x,)),
        F.functional_call(m, ({"weight": d["weight"]}, {"bias": d["bias"]}), (x,)),
        F.functional_call(m, d, (), {"input": x}),
    )
    attempted(log, "", F.functional_call, m, {"foo": x}, (x,), strict=True)
    attempted(log, "", F.functional_call, m, ({"weight": x}, {"weight": x}), (x,))
    attempted(log, "", F.functional_call, m, [d], (x,))
    attempted(log, "", F.functional_call, m, "abc", (x,))

    class Tied(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = T.nn.Linear(1, 1)
            self.l2 = T.nn.Linear(1, 1)
            self.l2.weight = self.l1.weight
            self.register_buffer("buf", T.ones(1))
            self.l1.register_buffer("tied", self.buf)

        def forward(self, x):
            return self.l1(x) + self.l2(x) * 10 + self.buf + self.l1.tied * 100

    t = Tied()
    T.zeros(1, 1)
    p = dict(t.named_parameters())
    o = {k: T.zeros_like(v) for k, v in p.items()}
    o["l1.weight"] = T.full((1, 1), 2.0)
    xx = T.ones(1, 1)
    for tie in (True, False):
        log(
            F.functional_call(
                t,
                {**dict(o.items()), "buf": T.full((1,), 3.0)},
                (xx,),
                tie_weights=tie,
            )
        ) if tie else None
        attempted(
            log,
            "",
            F.functional_call,
            t,
            {
                "l1.weight": T.zeros(1, 1),
                "l2.weight": T.ones(1, 1),
                "l1.bias": T.zeros(1),
                "l2.bias": T.zeros(1),
            },
            (xx,),
            tie_weights=tie,
        )
    w = t.l1.weight
    log(t.l1.weight is w, t.l2.weight is w)
    attempted(
        log,
        "",
        F.functional_call,
        t,
        {"l1.weight": T.zeros(1, 1), "l2.weight": T.ones(1, 1)},
        (xx,),
    )
    log({n: n in dict(t.named_parameters()) for n in ("l1.weight", "l2.weight")})
    log(F.functional_call(t, {}, (xx,)).shape == (1, 1))
    g = F.grad(lambda p: F.functional_call(m, p, (x,)).sum())(dict(m.named_parameters()))
    log(list(g), g["bias"])
    bn = T.nn.BatchNorm1d(3)
    buf = {k: v.clone() for k, v in bn.named_buffers()}
    F.functional_call(bn, buf, (T.arange(12.0).reshape(4, 3),))
    log(buf, bn.running_mean)


@plainly
def test_repr(T, log):
    s = []
    T.func.vmap(lambda x: s.append(repr(x)) or x)(T.ones(4, 2))
    log(s[0].startswith("BatchedTensor(lvl=1, bdim=0, value="))
    T.func.vmap(T.func.vmap(lambda x: s.append(repr(x)) or x))(T.ones(4, 2))
    log(s[1].startswith("BatchedTensor(lvl=2, bdim=0, value="), s[1].count("BatchedTensor("))
    T.func.grad(lambda x: s.append(repr(x)) or x.sum())(T.ones(4, 2))
    log("ensor(" in s[2])
    T.func.vmap(lambda x: s.append(str(x)) or x)(T.ones(4, 2))
    T.func.vmap(lambda x: s.append(f"{x}") or x)(T.ones(4, 2))
    log(hasattr(T.func, "debug_unwrap"))
    if hasattr(T.func, "debug_unwrap"):
        x = T.ones(2, 3)
        st = []
        T.func.vmap(T.func.vmap(lambda y: st.append(T.func.debug_unwrap(y)) or y))(x)
        log(st[0] is x)
    log(hasattr(T, "vmap"))
