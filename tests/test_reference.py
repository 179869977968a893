"""The reference, which is written by tools: the page of derivatives, and the pages of names."""

import re
from types import ModuleType

import pytest
from reference_examples import api_pages, run_examples, tool

import asyncgrad as ag

make_reference = tool("make_reference")


def test_the_page_is_current():
    current = make_reference.PAGE.read_text(encoding="utf-8") == make_reference.page()
    assert current, "docs/reference.md is out of date: run `make generated`"


@pytest.fixture(scope="module")
def entries():
    return [entry for page in api_pages.entries().values() for entry in page]


def test_every_public_name_stands_on_a_page_of_the_reference(entries):
    """With its signature, if it can be called."""
    named = {name for entry in entries for name in entry.names}
    pages = api_pages.pages()
    for module in api_pages.public_names.modules():
        for name in module.__all__:
            value = getattr(module, name, None)
            path = f"{module.__name__}.{name}".replace("asyncgrad", "ag", 1)
            assert value is None or isinstance(value, ModuleType) or path in named, path
    for name in ("nn.Linear", "optim.Adam", "offload", "serving.Batcher"):
        assert any(f"```python\nag.{name}(" in page for page in pages.values()), name


def test_every_public_name_has_an_example():
    """In its docstring, or in a file of `tools/examples`."""
    lacking = api_pages.lacking()
    assert not lacking, (
        f"write `## {lacking[0]}` and an example into a file of {api_pages.EXAMPLES}"
    )


def test_examples_are_of_names_whose_docstring_has_none(entries):
    """And of names that there are."""
    without = {
        name
        for entry in entries
        for name, value in (
            *((name, entry.value) for name in entry.names),
            *api_pages.members_of(entry),
        )
        if not api_pages.own_example(value)
    }
    assert api_pages.read_examples().keys() <= without


@pytest.mark.usefixtures("table_as_it_was")
@pytest.mark.parametrize("page", [page for page, _, _ in api_pages.PAGES if page != "distributed"])
def test_examples_print_what_they_say(page):
    """`distributed/test_dask.py` has the page that is missing."""
    run_examples(page)


def test_every_entry_stands_on_the_page_once():
    page = make_reference.page()
    rows = re.findall(r"^\| `(\w+)` \|", page[page.index("## The table") :], re.MULTILINE)
    names = [entry.name for chapter in make_reference.registry.CHAPTERS for entry in chapter.OPS]
    assert rows == names


def test_chapters_that_share_a_title_lose_no_function():
    """A second function of one name would take the place of the first."""
    found = {id(f) for rows in make_reference.functions().values() for _, f in rows.values()}
    for chapter in make_reference.CHAPTERS:
        for name in {*chapter.__all__, *chapter.METHODS}:
            assert id(getattr(chapter, name)) in found, name


def _tensors(result):
    if isinstance(result, ag.Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors(part)


def test_what_has_no_derivative_on_the_page_gives_none():
    """Tried with arguments that most of them take."""
    x = ag.rand(3, 3, requires_grad=True)
    tried = 0
    for rows in make_reference.functions().values():
        for name, (_, function) in rows.items():
            if make_reference.derivative(name, function)[0] != "none":
                continue
            for arguments in ((x,), (x, 1), (x, x), ([x, x],), (x, (3, 3))):
                try:
                    results = [y for y in _tensors(function(*arguments)) if y.grad_fn is not None]
                except Exception:  # It takes other arguments.
                    continue
                tried += 1
                for result in results:
                    with pytest.raises(RuntimeError, match=r"not differentiable|derivative"):
                        ag.grad(result.sum(), x)
    assert tried > 50


def test_differences_are_of_functions_that_there_are():
    named = {name for rows in make_reference.functions().values() for name in rows}
    assert set(make_reference.DIFFERENCES) <= named
    assert set(make_reference.NAMED) <= named


@pytest.mark.torch
def test_what_has_a_derivative_in_pytorch_has_one_on_the_page():
    """And the other way round."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import oracle
    import recorded_calls

    pages = make_reference.functions()
    known = {name: f for rows in pages.values() for name, (_, f) in rows.items()}
    compared = 0
    for name in recorded_calls.DIFFERENTIABLE:
        short = name.rpartition(".")[2]
        if short not in known:
            continue
        theirs = any(
            op.supports_autograd and any(d.is_floating_point for d in op.supported_dtypes("cpu"))
            for op in oracle.infos(name)
        )
        ours, _ = make_reference.derivative(short, known[short])
        assert (ours != "none") == theirs, name
        compared += 1
    assert compared > 140
