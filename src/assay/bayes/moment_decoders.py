"""Rules for the GPT-2 and Llama models of the package transformers, which is not imported for them."""

from __future__ import annotations

from typing import Any

from assay.bayes.moment_attention import (
    Projection,
    add,
    attended,
    attention_weights,
    projection_of,
)
from assay.bayes.moment_rules import Moments, Scope, register_rule, rms_norm
from assay.core.models import import_torch

torch = import_torch("propagation of variances")

_GPT2 = "transformers.models.gpt2.modeling_gpt2"
_LLAMA = "transformers.models.llama.modeling_llama"


def _gpt2_model(tokens: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    mean, variance = scope.run("wte", tokens, variance)
    places = torch.arange(tokens.shape[-1], device=tokens.device)
    position, more = scope.run("wpe", places, None)
    mean, variance = mean + position, add(variance, more)
    for name, _ in module.h.named_children():
        mean, variance = scope.run(f"h.{name}", mean, variance)
    return scope.run("ln_f", mean, variance)


def _gpt2_block(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if hasattr(module, "crossattention"):
        raise scope.refuse("cross-attention has no rule")
    for norm, part in (("ln_1", "attn"), ("ln_2", "mlp")):
        inner = scope.run(part, *scope.run(norm, mean, variance))
        mean, variance = mean + inner[0], add(variance, inner[1])
    return mean, variance


def _gpt2_attention(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    width = module.embed_dim
    whole = projection_of(scope, "c_attn", transposed=True)
    query, key = (
        torch.nn.functional.linear(mean, part.weight, part.bias)
        .unflatten(-1, (module.num_heads, -1))
        .transpose(1, 2)
        for part in (whole.rows(0, width), whole.rows(width, 2 * width))
    )
    weights = attention_weights(query, key, scale=module.scaling, causal=True)
    out: Projection = projection_of(scope, "c_proj", transposed=True)
    return attended(mean, variance, weights, whole.rows(2 * width, 3 * width), out, scope)


def _gpt2_mlp(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    for name in ("c_fc", "act", "c_proj"):
        mean, variance = scope.run(name, mean, variance)
    return mean, variance


def _llama_model(tokens: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    mean, variance = scope.run("embed_tokens", tokens, variance)
    places = torch.arange(tokens.shape[-1], device=tokens.device)[None]
    turns = module.rotary_emb(mean, position_ids=places)
    for name, _ in module.layers.named_children():
        mean, variance = scope.run(f"layers.{name}", mean, variance, turns=turns)
    return scope.run("norm", mean, variance)


def _llama_layer(mean: Any, variance: Any, module: Any, scope: Scope, *, turns: Any) -> Moments:
    inner = scope.run("self_attn", *scope.run("input_layernorm", mean, variance), turns=turns)
    mean, variance = mean + inner[0], add(variance, inner[1])
    inner = scope.run("mlp", *scope.run("post_attention_layernorm", mean, variance))
    return mean + inner[0], add(variance, inner[1])


def _turned(x: Any, turns: Any) -> Any:
    """Rotary positions: each pair of entries (i, i + size / 2) turned by its place's angle."""
    cos, sin = (part[:, None] for part in turns)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _llama_attention(mean: Any, variance: Any, module: Any, scope: Scope, *, turns: Any) -> Moments:
    query, key = (
        _turned(layer(mean).unflatten(-1, (-1, module.head_dim)).transpose(1, 2), turns)
        for layer in (module.q_proj, module.k_proj)
    )
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    weights = attention_weights(query, key, scale=module.scaling, causal=True)
    value, out = projection_of(scope, "v_proj"), projection_of(scope, "o_proj")
    return attended(mean, variance, weights, value, out, scope)


def _llama_mlp(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    gate = scope.run("act_fn", *scope.run("gate_proj", mean, variance))
    up = scope.run("up_proj", mean, variance)
    return scope.run("down_proj", *product(gate, up))


def product(first: Moments, second: Moments) -> Moments:
    """Moments of the entrywise product of independent entries."""
    (m, v), (n, w) = first, second
    spread = None if v is None else v * n.square()
    if w is not None:
        spread = add(spread, w * (m.square() if v is None else m.square() + v))
    return m * n, spread


def _llama_norm(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    return rms_norm(mean, variance, module, scope, module.variance_epsilon)


def _language_model(body: str) -> Any:
    def rule(tokens: Any, variance: Any, module: Any, scope: Scope) -> Moments:
        return scope.run("lm_head", *scope.run(body, tokens, variance))

    return rule


register_rule(f"{_GPT2}:GPT2Model", _gpt2_model, standalone=False)
register_rule(f"{_GPT2}:GPT2Block", _gpt2_block, standalone=False)
register_rule(f"{_GPT2}:GPT2Attention", _gpt2_attention, standalone=False)
register_rule(f"{_GPT2}:GPT2MLP", _gpt2_mlp)
register_rule(f"{_GPT2}:GPT2LMHeadModel", _language_model("transformer"), standalone=False)
register_rule(f"{_LLAMA}:LlamaModel", _llama_model, standalone=False)
register_rule(f"{_LLAMA}:LlamaDecoderLayer", _llama_layer, standalone=False)
register_rule(f"{_LLAMA}:LlamaAttention", _llama_attention, standalone=False)
register_rule(f"{_LLAMA}:LlamaMLP", _llama_mlp)
register_rule(f"{_LLAMA}:LlamaRMSNorm", _llama_norm)
register_rule(f"{_LLAMA}:LlamaForCausalLM", _language_model("model"), standalone=False)
