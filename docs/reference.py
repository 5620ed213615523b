"""The reference: signatures and docstrings of what is public, as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

import assay
from assay.core.cards import import_object

#: what people call directly, beside the classes of the methods
_PUBLIC = (
    "assay.engine.api:compare",
    "assay.engine.comparison:Comparison",
    "assay.engine.certify:certify",
    "assay.engine.certify:CertifiedTable",
    "assay.conformal.bincp:BinCP",
    "assay.conformal.rscp:RSCP",
    "assay.conformal.rscp:RSCPPlus",
    "assay.conformal.cas:CAS",
    "assay.conformal.binary_certificate:BinaryCertificate",
    "assay.conformal.smoothed_scores:SmoothedScores",
    "assay.conformal.partitioned:PartitionedClassifier",
    "assay.conformal.reliability:Certificate",
    "assay.conformal.poisoning_certificates:worst_case_vote_scores",
    "assay.claims.api:verify",
    "assay.data.builtin:datasets",
    "assay.conformal.set_fairness:set_fairness_report",
    "assay.conformal.disparate_impact:DisparateImpact",
    "assay.core.levels:conformal_rank",
    "assay.core.levels:smallest_n",
    "assay.core.quantiles:conformal_quantile",
    "assay.core.quantiles:weighted_quantile",
    "assay.core.quantiles:conformal_pvalue",
)


def reference_page() -> str:
    """Signatures and docstrings of what is public beside the methods."""
    parts = ["# Reference", "Everything here is imported on first use; `import assay` loads nothing heavy. "
             "The classes of the methods are on [their own pages](methods/index.md)."]  # fmt: skip
    for path in _PUBLIC:
        name = path.partition(":")[2]
        exported = name in assay.__all__
        where = f"assay.{name}" if exported else path.replace(":", ".")
        parts += [f"## {where}", reference(path)]
    return "\n\n".join(parts) + "\n"


def reference(path: str) -> str:
    """Signature, docstring and public methods of a class or function."""
    thing = import_object(path)
    name = path.partition(":")[2]
    parts = [f"```python\n{_signature(name, thing)}\n```", _docstring(thing)]
    if inspect.isclass(thing):
        for method_name, method in _public_methods(thing):
            parts += [f"### {name}.{method_name}", f"```python\n{_signature(method_name, method)}\n```"]
            parts.append(_docstring(method))
    return "\n\n".join(part for part in parts if part)


def _public_methods(cls: type) -> list[tuple[str, Any]]:
    """Methods documented in this package, in the order of their definition, nearest class first."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("assay."):
            for name, value in vars(base).items():
                if not name.startswith("_") and inspect.isfunction(value) and value.__doc__:
                    found.setdefault(name, value)
    return list(found.items())


def _signature(name: str, thing: Any) -> str:
    signature = inspect.signature(thing)
    plain = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    text = f"{name}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"
    if len(text) <= 90:
        return text
    star = next((i for i, p in enumerate(plain) if p.kind is p.KEYWORD_ONLY), None)
    arguments = [str(p) for p in plain]
    if star is not None:
        arguments.insert(star, "*")
    return f"{name}(\n    " + ",\n    ".join(arguments) + ",\n)"


_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_LISTS = ("Parameters", "Attributes", "Returns", "Raises", "Yields")


def _docstring(thing: Any) -> str:
    """A docstring in the style of numpy as Markdown: sections in bold, parameters as a list."""
    doc = inspect.getdoc(thing) or ""
    pieces = _SECTION.split(doc)
    out = [_inline(pieces[0].strip())]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        out.append(f"**{title}**")
        out.append(_items(body) if title in _LISTS else _inline(body.strip()))
    return "\n\n".join(part for part in out if part)


def _items(body: str) -> str:
    items: list[str] = []
    for line in body.strip("\n").splitlines():
        if line.startswith(" ") or not line.strip():
            items.append(_inline(line.strip()))
        else:
            name, colon, kind = line.partition(" : ")
            items.append(f"- `{name.strip()}`" + (f" ({_inline(kind.strip())})" if colon else "") + ":")
    text = "\n".join("    " + line if line and not line.startswith("- ") else line for line in items)
    # an item without a description needs no colon
    return re.sub(r":(?=\n- |\Z)", "", text)


def _inline(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"(?<![`\w])\*(?=\w)", r"\\*", text)
