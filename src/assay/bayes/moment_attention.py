"""Rules for attention and transformer blocks: attention weights from the means, values with variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from assay.bayes.moment_rules import Moments, Scope, propagate, register_rule
from assay.bayes.transformer import (
    FirstPlace,
    PatchEmbedding,
    SelfAttention,
    TokenEmbedding,
    TransformerBlock,
)
from assay.core.models import import_torch

torch = import_torch("propagation of variances")
nn, functional = torch.nn, torch.nn.functional


@dataclass(frozen=True)
class Projection:
    """A linear layer of an attention: mean (out, in), bias, and their variances, None where fixed."""

    weight: Any
    bias: Any
    weight_variance: Any
    bias_variance: Any

    def rows(self, start: int, stop: int) -> Projection:
        """Some of its outputs."""
        parts = (self.weight, self.bias, self.weight_variance, self.bias_variance)
        return Projection(*(None if part is None else part[start:stop] for part in parts))


def projection_of(scope: Scope, name: str, *, transposed: bool = False) -> Projection:
    """The projection held by the child ``name``; ``transposed`` where it keeps (in, out)."""
    child = scope.child(name)
    weight, variance = child.module.weight, child.variance("weight")
    if transposed:
        weight, variance = weight.T, None if variance is None else variance.T
    return Projection(weight, child.module.bias, variance, child.variance("bias"))


def attention_weights(query: Any, key: Any, *, scale: float, causal: bool) -> Any:
    """(n, heads, T, T) softmax of scaled products of (n, heads, T, size)."""
    logits = (query * scale) @ key.transpose(-2, -1)
    if causal:
        size = logits.shape[-1]
        later = torch.ones(size, size, dtype=torch.bool, device=logits.device).triu(1)
        logits = logits.masked_fill(later, -math.inf)
    return logits.softmax(-1)


def attended(
    mean: Any, variance: Any, weights: Any, value: Projection, out: Projection, scope: Scope
) -> Moments:
    """Moments of ``P sum_s A_ts V x_s`` over all heads, the weights A given.

    With places and inputs independent, the variance of output k is
    ``sum_h sum_s A_hts^2 [(P_h V_h)_k^2 v_s + P_hk^2 (var(V_h) (v_s + m_s^2) + var(b_h))]``: the full
    covariance of each head's value without forming it. Heads that share a value are told apart by their
    part of P only. Where P is random its own variance is added.

    Parameters
    ----------
    mean, variance : (n, T, d) and the same or None
    weights : (n, heads, T, T)
    value : to (groups * size, d), heads = groups * a whole number
    out : to (d_out, heads * size)
    """
    heads = weights.shape[1]
    size = out.weight.shape[1] // heads
    repeat = heads * size // value.weight.shape[0]
    values = functional.linear(mean, value.weight, value.bias).unflatten(-1, (-1, size)).transpose(1, 2)
    mixed = (weights @ values.repeat_interleave(repeat, 1)).transpose(1, 2).flatten(-2)
    result = functional.linear(mixed, out.weight, out.bias)
    own = None
    if value.weight_variance is not None:
        second = mean.square() if variance is None else mean.square() + variance
        own = functional.linear(second, value.weight_variance, value.bias_variance)
    elif value.bias_variance is not None:
        own = value.bias_variance.expand(*mean.shape[:-1], -1)
    if own is None and variance is None and out.weight_variance is None:
        spread = None
    else:
        spread = _attended_variance(mean, variance, own, weights.square(), value, out, scope, (repeat, size))
    if out.weight_variance is not None:
        spread = spread + functional.linear(mixed.square(), out.weight_variance)
    if out.bias_variance is not None:
        spread = out.bias_variance.expand_as(result) if spread is None else spread + out.bias_variance
    return result, spread


def _attended_variance(
    mean: Any, variance: Any, own: Any, squares: Any, value: Projection, out: Projection, scope: Scope,
    layout: tuple[int, int],
) -> Any:  # fmt: skip
    n, heads, places, _ = squares.shape
    repeat, size = layout
    spread = mean.new_zeros(n, places, out.weight.shape[0])
    if variance is not None:
        through = scope.keep("value through output", lambda: _through(value, out, heads, repeat, size))
        # all heads in one product: (T, heads T) times (heads T, d)
        each = functional.linear(variance, through).unflatten(-1, (heads, -1)).transpose(1, 2)
        rows = squares.transpose(1, 2).reshape(n, places, -1)
        spread = rows @ each.reshape(n, -1, each.shape[-1])
    of_heads = None
    if own is not None:
        of_heads = own.unflatten(-1, (-1, size)).transpose(1, 2).repeat_interleave(repeat, 1)
        of_heads = (squares @ of_heads).transpose(1, 2).flatten(-2)
        square = scope.keep("squared output", lambda: out.weight.detach().square())
        spread = spread + functional.linear(of_heads, square)
    if out.weight_variance is not None:
        # P itself is random: its variance meets that of each entry of the mixed values
        if variance is not None:
            direct = functional.linear(variance, value.weight.square()).unflatten(-1, (-1, size))
            direct = (squares @ direct.transpose(1, 2).repeat_interleave(repeat, 1)).transpose(1, 2)
            of_heads = direct.flatten(-2) + (0 if of_heads is None else of_heads)
        if of_heads is not None:
            spread = spread + functional.linear(of_heads, out.weight_variance)
    return spread


def _through(value: Projection, out: Projection, heads: int, repeat: int, size: int) -> Any:
    """(heads d_out, d) squares of P_h V_h."""
    of_heads = value.weight.detach().unflatten(0, (-1, size)).repeat_interleave(repeat, 0)
    parts = out.weight.detach().unflatten(1, (heads, size)).transpose(0, 1)
    return (parts @ of_heads).square().flatten(0, 1)


def add(first: Any, second: Any) -> Any:
    """Sum of two variances, either None."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _self_attention(mean: Any, variance: Any, module: SelfAttention, scope: Scope) -> Moments:
    size = module.query.out_features // module.heads
    query, key = module.split(module.query(mean)), module.split(module.key(mean))
    weights = attention_weights(query, key, scale=size**-0.5, causal=module.causal)
    value, out = projection_of(scope, "value"), projection_of(scope, "out")
    return attended(mean, variance, weights, value, out, scope)


def _torch_attention(mean: Any, variance: Any, module: Any, scope: Scope, *, causal: bool = False) -> Moments:
    """Self-attention of ``torch.nn.MultiheadAttention`` with one width and batches first."""
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        raise scope.refuse("keys or values of their own width, bias_kv and add_zero_attn have no rule")
    if not module.batch_first:
        raise scope.refuse("it takes (T, n, d); make it with batch_first=True")
    width = module.embed_dim
    names = ("in_proj_weight", "in_proj_bias")
    whole = Projection(*(getattr(module, name) for name in names), *(scope.variance(name) for name in names))
    query, key = (
        functional.linear(mean, part.weight, part.bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for part in (whole.rows(0, width), whole.rows(width, 2 * width))
    )
    weights = attention_weights(query, key, scale=module.head_dim**-0.5, causal=causal)
    value, out = whole.rows(2 * width, 3 * width), projection_of(scope, "out_proj")
    return attended(mean, variance, weights, value, out, scope)


def _block(mean: Any, variance: Any, module: TransformerBlock, scope: Scope) -> Moments:
    for norm, part in (("norm_1", "attention"), ("norm_2", "feed_forward")):
        inner = scope.run(part, *scope.run(norm, mean, variance))
        mean, variance = mean + inner[0], add(variance, inner[1])
    return mean, variance


def _torch_layer(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    """``torch.nn.TransformerEncoderLayer``, norms before or after, without masks."""

    def attention(m: Any, v: Any) -> Moments:
        return scope.run("self_attn", m, v)

    def feed_forward(m: Any, v: Any) -> Moments:
        m, v = scope.run("linear1", m, v)
        # the activation may be a function: GELU and ReLU are known by what they are
        known = {functional.relu: nn.ReLU(), functional.gelu: nn.GELU()}
        act = module.activation if isinstance(module.activation, nn.Module) else known.get(module.activation)
        if act is None:
            raise scope.refuse(f"its activation {module.activation!r} has no rule")
        m, v = propagate(scope.keep("activation", lambda: scope.free(act)), m, v)
        return scope.run("linear2", m, v)

    for norm, part in (("norm1", attention), ("norm2", feed_forward)):
        if module.norm_first:
            inner = part(*scope.run(norm, mean, variance))
            mean, variance = mean + inner[0], add(variance, inner[1])
        else:
            inner = part(mean, variance)
            mean, variance = scope.run(norm, mean + inner[0], add(variance, inner[1]))
    return mean, variance


def _torch_encoder(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    for name, _ in module.layers.named_children():
        mean, variance = scope.run(f"layers.{name}", mean, variance)
    return (mean, variance) if module.norm is None else scope.run("norm", mean, variance)


def _patches(mean: Any, variance: Any, module: PatchEmbedding, scope: Scope) -> Moments:
    shape = (-1, *module.shape)
    rows = None if variance is None else variance.reshape(shape)
    patches, spread = scope.run("project", mean.reshape(shape), rows)
    out = module.join(patches) + module.position
    total = None
    if spread is not None:
        places = spread.flatten(2).transpose(1, 2)
        total = torch.cat([torch.zeros_like(places[:, :1]), places], 1)
    if (token := scope.variance("token")) is not None:
        total = torch.zeros_like(out) if total is None else total
        total[:, :1] += token
    if (position := scope.variance("position")) is not None:
        total = position.expand_as(out) if total is None else total + position
    return out, total


def _tokens(tokens: Any, variance: Any, module: TokenEmbedding, scope: Scope) -> Moments:
    mean, spread = scope.run("token", tokens, variance)
    places = torch.arange(tokens.shape[-1], device=tokens.device)
    position, more = scope.run("position", places, None)
    total = add(spread, more)
    return mean + position, None if total is None else total.expand_as(mean)


def _first_place(mean: Any, variance: Any, module: FirstPlace, scope: Scope) -> Moments:
    return mean[:, 0], None if variance is None else variance[:, 0]


register_rule(SelfAttention, _self_attention)
register_rule(nn.MultiheadAttention, _torch_attention, standalone=False)
register_rule(TransformerBlock, _block)
register_rule(nn.TransformerEncoderLayer, _torch_layer)
register_rule(nn.TransformerEncoder, _torch_encoder)
register_rule(PatchEmbedding, _patches)
register_rule(TokenEmbedding, _tokens)
register_rule(FirstPlace, _first_place)
