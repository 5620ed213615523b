"""Which checks apply to a method, and running them."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.core.cards import Card, all_cards, get_card
from assay.core.errors import MethodError
from assay.testing.laws import LAWS, CheckFunction, LawBroken, NotApplicable, checks_of
from assay.testing.subject import Contract, Subject

Status = Literal["passed", "failed", "excepted", "skipped"]


class Excepted(Exception):
    """A check fails as the card says that it must: counted, with the reason."""


@dataclass(frozen=True)
class Check:
    """One check of one method: calling it raises unless the method keeps the law.

    ``NotApplicable`` says that there is nothing to test, ``Excepted`` that the card makes an
    exception which is still needed. Anything else is a failure.
    """

    name: str
    law: str
    contract: Contract
    subject: Subject
    function: CheckFunction
    reason: str | None = None

    def __call__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                warnings.simplefilter("ignore", FutureWarning)
                self.function(self.contract, self.subject)
        except (NotApplicable, MemoryError):
            raise
        except Exception as error:
            if self.reason is None:
                raise
            raise Excepted(f"{self.reason} ({error})") from error


@dataclass(frozen=True)
class CheckResult:
    """What came of one check; ``detail`` is the reason or the error."""

    method: str
    name: str
    law: str
    status: Status
    detail: str = ""


def contracts() -> tuple[list[tuple[Contract, list[Any]]], list[Any]]:
    """([(contract, modules with its checks)], modules with checks for all); files named ``*_laws``."""
    from assay import testing

    own: list[tuple[Contract, list[Any]]] = []
    shared: list[Any] = []
    for info in pkgutil.iter_modules(testing.__path__):
        if info.name.endswith("_laws"):
            module = importlib.import_module(f"{testing.__name__}.{info.name}")
            found = getattr(module, "CONTRACTS", ())
            own.extend((contract, [module]) for contract in found)
            if not found:
                shared.append(module)
    return own, shared


def conformance_checks(
    method: Any,
    task: str | None = None,
    *,
    exceptions: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> list[Check]:
    """All checks that apply to a method.

    Parameters
    ----------
    method : str, Card, class or unfitted object
        A string is the id of a card. A class is made with its defaults, an object is cloned.
    task : str, optional
        Only the contract of this kind of task ("interval", "label-set", ...); found out from the
        method's methods if not given.
    exceptions : mapping, optional
        Name of a law or of a check -> why this method cannot keep it; the card's if not given.
    params : mapping, optional
        Constructor arguments, such as cheap settings for tests.

    Returns
    -------
    list of Check
        Each has ``name``, ``law`` and is called without arguments.

    Raises
    ------
    MethodError
        The method meets no contract, or the exceptions name laws that do not exist.
    MissingDependency
        The card needs an extra that is not installed.
    """
    if isinstance(method, str):
        method = get_card(method)
    subject = Subject(method, exceptions=exceptions, params=params)
    if task is None and subject.card is not None:
        task = subject.card.task
    own, shared = contracts()
    tasks = sorted({contract.task for contract, _ in own})
    checks: list[Check] = []
    met = [(c, modules) for c, modules in own if task in (None, c.task) and c.applies(subject)]
    if not met:
        wanted = f"the task {task!r}" if task else f"any of the tasks {tasks}"
        raise MethodError(
            f"{subject.name} does not meet the contract of {wanted}; its methods must be "
            + " or ".join(
                sorted({f"{c.predict} ({c.task})" for c, _ in own if task in (None, c.task)} or tasks)
            )
        )
    for contract, modules in met:
        for module in [*(shared if contract.shared else ()), *modules]:
            for name, slug, verbs, function in checks_of(module, contract.form):
                if subject.has(*verbs):
                    full = f"{name}[{contract.form}]" if contract.form else name
                    reason = _reason(subject, full, slug)
                    checks.append(Check(full, slug, contract, subject, function, reason))
    return [*checks, *_needed_exceptions(subject, checks)]


def _reason(subject: Subject, name: str, slug: str) -> str | None:
    """The exception that covers a check: by its full name, its name without the form, or its law."""
    for key in (name, name.partition("[")[0], slug):
        if key in subject.exceptions:
            return subject.exceptions[key]
    return None


def _needed_exceptions(subject: Subject, checks: list[Check]) -> Iterator[Check]:
    """One check an exception: it fails where every check that the exception covers passes."""
    for key in subject.exceptions:
        covered = [c for c in checks if key in (c.name, c.name.partition("[")[0], c.law)]
        if key not in LAWS and not covered:
            raise MethodError(
                f"{subject.name} makes an exception for {key!r}, which is no law and none of its checks"
            )

        def still_needed(contract: Any, subject: Any, key: str = key, covered: list[Check] = covered) -> None:
            outcomes = [result.status for result in _results(covered)]
            if "passed" in outcomes and "excepted" not in outcomes:
                raise LawBroken(
                    f"{subject.name} makes an exception for {key}, and keeps it: remove the exception"
                )

        if covered:
            yield Check(
                f"{covered[0].law}/exception-is-needed[{key}]",
                covered[0].law,
                covered[0].contract,
                subject,
                still_needed,
            )


def _results(checks: list[Check]) -> Iterator[CheckResult]:
    for check in checks:
        status: Status = "passed"
        detail = ""
        try:
            check()
        except NotApplicable as error:
            status, detail = "skipped", str(error)
        except Excepted as error:
            status, detail = "excepted", str(error)
        except Exception as error:
            status, detail = "failed", f"{type(error).__name__}: {error}"
        yield CheckResult(check.subject.name, check.name, check.law, status, detail)


def check_method(
    method: Any,
    task: str | None = None,
    *,
    exceptions: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    on_fail: Literal["raise", "report"] = "raise",
) -> list[CheckResult]:
    """Run every check that applies to a method.

    Parameters
    ----------
    method, task, exceptions, params
        As in :func:`conformance_checks`.
    on_fail : "raise" or "report"
        "raise" runs all checks and then raises one LawBroken that lists every failure.

    Returns
    -------
    list of CheckResult
        In the order of the checks; exceptions and skipped checks carry their reasons.

    Raises
    ------
    LawBroken
        (an AssertionError) At least one check failed.
    """
    results = list(_results(conformance_checks(method, task, exceptions=exceptions, params=params)))
    failed = [result for result in results if result.status == "failed"]
    if failed and on_fail == "raise":
        lines = "\n".join(f"  {result.name}: {result.detail}" for result in failed)
        raise LawBroken(f"{failed[0].method} fails {len(failed)} of {len(results)} checks:\n{lines}")
    return results


def parametrize_with_cards(task: str | None = None, *, cards: Any = None) -> Any:
    """A pytest decorator: one test for each check of each card; the test takes ``check`` and calls it.

    A method whose extras are not installed is one skipped test with the line that installs them;
    an exception of a card is an expected failure with its reason.

    Parameters
    ----------
    task : str, optional
        Only cards of this kind of task.
    cards : sequence of cards, ids, classes or objects, optional
        What to test; every installed card if not given.

    Examples
    --------
    >>> @parametrize_with_cards(cards=["split"])
    ... def test_laws(check):
    ...     check()
    """
    import pytest

    methods = all_cards().values() if cards is None else cards
    params = []
    for method in methods:
        card = get_card(method) if isinstance(method, str) else method
        if isinstance(card, Card) and task not in (None, card.task):
            continue
        if isinstance(card, Card) and card.missing:
            reason = f"{card.id} needs: pip install 'assay[{','.join(card.missing)}]'"
            params.append(pytest.param(None, id=card.id, marks=pytest.mark.skip(reason=reason)))
            continue
        for check in conformance_checks(card, None if isinstance(card, Card) else task):
            marks = (
                []
                if check.reason is None
                else [pytest.mark.xfail(raises=Excepted, reason=check.reason, strict=False)]
            )
            params.append(pytest.param(check, id=f"{check.subject.name}-{check.name}", marks=marks))
    return pytest.mark.parametrize("check", params)
