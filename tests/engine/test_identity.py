"""The identity of a trial changes with everything that its numbers depend on, and with nothing else."""

import functools
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
import trivial_methods
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge

from assay.core.errors import MethodError
from assay.engine import identity as identity_module
from assay.engine.describe import Describer
from assay.engine.identity import Identities
from assay.engine.plan import Limits, MethodSpec, Question
from assay.engine.sources import closure, is_local

BASE = Question(
    table=trivial_methods.table(),
    task=trivial_methods.TASK,
    alpha=Fraction(1, 10),
    methods=(),
    model=None,
    seeds=(0,),
)
SPLIT = MethodSpec("split", "assay.conformal.split:SplitConformalRegressor", {}, "split")


def of(method=SPLIT, seed=0, **changes):
    question = replace(BASE, **changes)
    return Identities(question, trivial_methods.TinyTask()).of(method, seed)


def test_everything_that_matters_changes_it():
    other_table = replace(BASE.table, fingerprint="another")
    variants = [
        of(),
        of(seed=1),
        of(alpha=Fraction(1, 20)),
        of(table=other_table),
        of(table=replace(BASE.table, targets=("a",))),
        of(table=replace(BASE.table, targets=("a", "b"))),
        of(table=replace(BASE.table, targets=("a, b",))),
        of(table=replace(BASE.table, time="a")),
        of(table=replace(BASE.table, group="a")),
        of(options={"horizon": 2}),
        of(options={"horizon": 3}),
        of(replace(SPLIT, params={"symmetric": False})),
        of(replace(SPLIT, skip="needs something")),
        of(replace(SPLIT, target="assay.conformal.interval_base:IntervalRegressor")),
        of(task="interval"),
        of(model=Ridge()),
        of(model=Ridge(alpha=2.0)),
        of(model="sklearn.linear_model:Ridge"),
        of(model=RandomForestRegressor(10)),
        of(model=RandomForestRegressor(11)),
    ]
    assert len(set(variants)) == len(variants)
    assert all(len(text) == 64 for text in variants)


def test_what_does_not_matter_leaves_it():
    assert of() == of(replace(SPLIT, name="another name"))
    assert of() == of(limits=Limits(3.0, 10), command="assay ...", why_task="because")
    assert of() == of(table=replace(BASE.table, name="x", source="y", notes=("z",)))
    assert of(model=Ridge()) == of(model=Ridge())


def test_versions_matter(monkeypatch):
    before = of()
    monkeypatch.setattr(identity_module, "_version", lambda name: "0.0")
    assert of() != before


def test_torch_counts_only_where_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "uses_torch.py").write_text("import torch\nclass M: pass\n")
    (tmp_path / "no_torch.py").write_text("import numpy\nclass M: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with_torch, without = MethodSpec("a", "uses_torch:M"), MethodSpec("b", "no_torch:M")
    before = of(with_torch), of(without)
    found = identity_module._version
    monkeypatch.setattr(identity_module, "_version", lambda name: "9" if name == "torch" else found(name))
    assert of(with_torch) != before[0]
    assert of(without) == before[1]


def test_a_users_sources_are_followed(tmp_path, monkeypatch):
    package = tmp_path / "own_package"
    (package / "deep").mkdir(parents=True)
    files = {
        package / "__init__.py": "",
        package / "method.py": "from . import helper\nfrom .deep.inner import f\nclass M: pass\n",
        package
        / "helper.py": "def g():\n    import own_neighbour\n    importlib.import_module('own_late')\n",
        package / "deep" / "__init__.py": "",
        package / "deep" / "inner.py": "from assay.conformal import SplitConformalRegressor\nf = 1\n",
        tmp_path / "own_neighbour.py": "x = 1\n",
        tmp_path / "own_late.py": "x = 1\n",
        package / "unrelated.py": "",
    }
    for path, text in files.items():
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = closure(["own_package.method"])
    for name in ("own_package.helper", "own_package.deep.inner", "own_neighbour", "assay.conformal.split",
                 "assay.conformal.interval_base", "assay.core.levels"):  # fmt: skip
        assert name in found.modules
    assert "own_package.unrelated" not in found.modules
    assert not [name for name in found.modules if name.startswith(("numpy", "sklearn", "assay.engine"))]
    assert {"numpy", "sklearn"} <= found.externals
    method = MethodSpec("m", "own_package.method:M")
    for path, text in files.items():
        before = of(method)
        path.write_text(text + "# edited\n")
        assert (of(method) != before) == (path.name != "unrelated.py"), path


def test_the_source_of_an_object_inside_a_card_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "own_inner.py"
    spec = replace(SPLIT, params={"tracker": {"class": "own_inner:Inner", "lr": 0.1}})
    seen = []
    for text in ("class Inner: pass\n", "class Inner: rate = 1\n"):
        module.write_text(text)
        seen.append(of(spec))
    assert seen[0] != seen[1]


def test_an_import_of_a_whole_family_counts_all_its_methods(tmp_path, monkeypatch):
    (tmp_path / "whole.py").write_text("from assay import conformal\n")
    (tmp_path / "dotted.py").write_text("import assay.conformal as c\n")
    (tmp_path / "one.py").write_text("import assay.conformal.interval_base\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "assay.conformal.split" in closure(["whole"]).modules
    assert "assay.conformal.split" in closure(["dotted"]).modules
    assert "assay.conformal.split" not in closure(["one"]).modules


def test_installed_modules_count_by_version():
    assert not is_local("sklearn.ensemble")
    assert not is_local("json")
    assert is_local("assay.core.levels")
    found = closure(["sklearn.ensemble"])
    assert found.modules == ("sklearn.ensemble",)
    assert "sklearn" in found.externals


def text_of(value):
    return Describer().text(value)


def test_fitted_state_counts():
    X, y = [[0.0], [1.0]], [0.0, 1.0]
    assert text_of(FrozenEstimator(LinearRegression().fit(X, y))) != text_of(
        FrozenEstimator(LinearRegression().fit(X, [0.0, 2.0]))
    )
    assert text_of(RandomForestRegressor(3, random_state=0).fit(X, y)) == text_of(
        RandomForestRegressor(3, random_state=0).fit(X, y)
    )


def test_classes_made_in_a_function_differ_by_what_they_close_over():
    def make(factor, default=1):
        class Local:
            def fit(self, X, y, k=default):
                return factor * helper(X)

        return Local

    def helper(X):
        return X

    assert text_of(make(2)) == text_of(make(2))
    assert text_of(make(2)) != text_of(make(3))
    assert text_of(make(2)) != text_of(make(2, default=5))
    assert text_of(make(2)()) != text_of(make(3)())


def test_wrapped_callables_differ_by_what_they_wrap(tmp_path, monkeypatch):
    def make(n):
        def f(x):
            return x + n

        class Local:
            cached = functools.cached_property(f)

        return functools.lru_cache(f), functools.partial(f), Local, [n].count

    for one, same, other in zip(make(1), make(1), make(2), strict=True):
        assert text_of(one) == text_of(same)
        assert text_of(one) != text_of(other)
    assert text_of(sum) != text_of(max)
    (tmp_path / "own_cache.py").write_text("import functools\n@functools.cache\ndef f(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    describer = Describer()
    describer.text({"f": __import__("own_cache").f})
    assert "own_cache" in describer.modules


def test_tensors_of_any_type_count():
    torch = pytest.importorskip("torch")
    assert text_of(torch.ones(2, dtype=torch.bfloat16)) == text_of(torch.ones(2, dtype=torch.bfloat16))
    assert text_of(torch.ones(2, dtype=torch.bfloat16)) != text_of(torch.zeros(2, dtype=torch.bfloat16))
    assert text_of(torch.ones(2, 1)) != text_of(torch.ones(1, 2))
    assert text_of(torch.tensor(1.5)) == text_of(torch.tensor(1.5, requires_grad=True).detach())


def test_objects_that_cannot_be_told_apart_are_refused():
    with pytest.raises(MethodError, match="cannot be pickled"):
        text_of({"lock": __import__("threading").Lock()})


SCRIPT = """
import sys
from fractions import Fraction
sys.path.insert(0, {folder!r})
import trivial_methods
from assay.engine.identity import Identities
from assay.engine.plan import MethodSpec, Question

SHIFT = {shift}

def helper(values):
    return sum(values) + SHIFT

class Mine(trivial_methods.Mean):
    names = {{"one", "two", "three", "four"}}

    def fit(self, X, y):
        self.mean_ = helper(y)
        return super().fit(X, y)

question = Question(trivial_methods.table(), trivial_methods.TASK, Fraction(1, 10), (), None, (0,))
ids = Identities(question, trivial_methods.TinyTask())
print(ids.of(MethodSpec("mine", Mine), 0), ids.of(MethodSpec("object", Mine(2.0)), 0))
"""


def test_a_scripts_own_class_is_the_same_in_the_next_process_and_follows_its_helpers(tmp_path):
    folder = str(trivial_methods.__file__).rpartition("/")[0]

    def run(shift):
        path = tmp_path / "script.py"
        path.write_text(SCRIPT.format(folder=folder, shift=shift))
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
        return done.stdout.split()

    first, again, changed = run(1), run(1), run(2)
    assert first == again
    text = SCRIPT.format(folder=folder, shift=1)  # a notebook's __main__ has no file either
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split() == first
    assert not set(first) & set(changed)


def test_sources_are_read_once_a_question(monkeypatch):
    identities = Identities(BASE, trivial_methods.TinyTask())
    methods = [replace(SPLIT, name=f"m{i}") for i in range(10)]
    for method in methods:
        identities.of(method, 0)
    monkeypatch.setattr(identity_module, "closure", None)
    found = {identities.of(method, seed) for method in methods for seed in range(20)}
    assert len(found) == 20
