"""Minimising a mean loss over rows in batches, with early stopping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.errors import MethodError

_GRADIENT_NORM = 5.0
MIN_ROWS_TO_VALIDATE = 20


@dataclass(frozen=True)
class Training:
    """How long and how fast to train; ``patience`` None trains ``max_epochs`` on all rows."""

    max_epochs: int
    batch_size: int
    learning_rate: float
    patience: int | None
    validation_fraction: float
    device: str = "cpu"
    dropout: float = 0.0
    progress: Callable[[int, int, float], None] | None = None

    def check(self, hidden: Sequence[int]) -> None:
        """Refuse what cannot be trained."""
        if any(int(value) < 1 for value in (self.max_epochs, self.batch_size, *hidden)):
            raise MethodError(
                "max_epochs, batch_size and the hidden widths must be at least 1, got "
                f"{self.max_epochs}, {self.batch_size}, {tuple(hidden)}"
            )
        if not 0 < self.validation_fraction < 1:
            raise MethodError(f"validation_fraction must lie in (0, 1), got {self.validation_fraction!r}")
        if not self.learning_rate > 0:
            raise MethodError(f"learning_rate must be positive, got {self.learning_rate!r}")
        if not 0 <= self.dropout < 1:
            raise MethodError(f"dropout must lie in [0, 1), got {self.dropout!r}")


def random_parts(torch: Any, n: int, how: Training, generator: Any) -> tuple[Any, Any]:
    """(validation rows, training rows) of n: no validation below 20 rows or without ``patience``."""
    order = torch.randperm(n, generator=generator)
    held = 0
    if how.patience is not None and n >= MIN_ROWS_TO_VALIDATE:
        held = max(1, round(how.validation_fraction * n))
    return order[:held], order[held:]


def minimise(
    torch: Any,
    parameters: list[Any],
    loss: Callable[[Any, bool], Any],
    n: int,
    steps: Any,
    how: Training,
    generator: Any,
    parts: tuple[Any, Any] | None = None,
) -> tuple[list[Any], int, float]:
    """Minimise a mean loss over n rows in shuffled batches.

    Parameters
    ----------
    parameters : tensors, changed in place; those that require no gradient are kept and put back alike
    loss : (row indices, whether for training) -> mean loss of these rows
    steps : torch optimiser of the parameters
    generator : torch generator of validation rows and batches
    parts : (validation rows, training rows), optional
        Index tensors; drawn by :func:`random_parts` if not given. No validation rows, no early stopping.

    Returns
    -------
    the kept parameters (detached), epochs trained, and their loss: on validation rows where there
    are some (``patience`` given and at least 20 rows), else on the training rows.
    """
    validation, train = random_parts(torch, n, how, generator) if parts is None else parts
    validation, held = validation.to(how.device), len(validation)
    epochs = int(how.max_epochs)
    # without validation the last weights are kept: a falling rate lets them settle
    schedule = None if held else torch.optim.lr_scheduler.CosineAnnealingLR(steps, epochs)
    best, best_loss, best_epoch, epoch = None, np.inf, 0, 0
    for epoch in range(1, epochs + 1):
        total = 0.0
        shuffled = train[torch.randperm(len(train), generator=generator)].to(how.device)
        for rows in torch.split(shuffled, int(how.batch_size)):
            steps.zero_grad(set_to_none=True)
            batch_loss = loss(rows, True)
            batch_loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, _GRADIENT_NORM)
            steps.step()
            total += float(batch_loss.detach()) * len(rows)
        if schedule is not None:
            schedule.step()
        current = total / len(train)
        if held:
            with torch.no_grad():
                current = float(loss(validation, False))
        if not np.isfinite(current):
            raise MethodError(
                f"training diverged: the loss is {current} in epoch {epoch}; try a learning_rate below "
                f"{how.learning_rate:g}"
            )
        if how.progress is not None:
            how.progress(epoch, epochs, current)
        if not held or current < best_loss:
            best = [p.detach().clone() for p in parameters] if held else None
            best_loss, best_epoch = current, epoch
        elif how.patience is not None and epoch - best_epoch >= how.patience:
            break
    return best or [p.detach() for p in parameters], epoch, float(best_loss)
