"""Import the programs that write the reference, and run its examples."""

import contextvars
import doctest
import importlib.util
import sys
import textwrap
from pathlib import Path

import asyncgrad as ag

ROOT = Path(__file__).parent.parent.parent


def tool(name):
    """Import a program of `tools` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


api_pages = tool("api_pages")
EXAMPLES = api_pages.examples()


def run_examples(page):
    """Compare what the examples of a page print; those that show no output only have to run."""
    failed = []
    for entry in api_pages.entries()[page]:
        module = sys.modules[getattr(entry.value, "__module__", "asyncgrad")]
        for name in (entry.names[0], *(name for name, _ in api_pages.members_of(entry))):
            code = EXAMPLES.get(name, "")
            scope = {**vars(module), "ag": ag}
            # In a context of its own, an example can't change modes for the next one.
            context = contextvars.copy_context()
            if ">>>" in code:
                test = doctest.DocTestParser().get_doctest(code, scope, name, None, None)
                context.run(doctest.DocTestRunner().run, test, out=failed.append)
            elif code not in EXAMPLES:  # It may also be the name of another example.
                context.run(exec, textwrap.dedent(code), scope)
    assert not failed, "".join(failed)
