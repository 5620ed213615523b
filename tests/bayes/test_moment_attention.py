"""Attention and transformer blocks: the formula by loops, sampling, torch's and transformers' own models."""

import math

import pytest

from assay.core.errors import MethodError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from assay.bayes.moment_attention import Projection, attended  # noqa: E402
from assay.bayes.moment_decoders import product  # noqa: E402
from assay.bayes.moment_rules import Scope  # noqa: E402
from assay.bayes.posterior import GaussianPosterior  # noqa: E402
from assay.bayes.streamlined import streamline  # noqa: E402
from assay.bayes.transformer import (  # noqa: E402
    CausalTransformer,
    SelfAttention,
    TransformerBlock,
    VisionTransformer,
)


def constant(module, value, keep=lambda name: True):
    return GaussianPosterior(
        {name: torch.full_like(p, value).double() for name, p in module.named_parameters() if keep(name)}
    )


@pytest.mark.parametrize(("heads", "groups"), [(2, 2), (4, 2)])
def test_variance_of_attention_with_full_covariances_of_values(heads, groups):
    """The covariance of each head's value formed at each place, as in the paper; heads may share a value."""
    torch.manual_seed(0)
    size, places, d = 3, 5, 6
    V = nn.Linear(d, groups * size).double()
    P = nn.Linear(heads * size, 4).double()
    var_v = torch.rand(groups * size, d).double()
    mean, spread = torch.randn(1, places, d).double(), torch.rand(1, places, d).double()
    A = torch.randn(1, heads, places, places).double().softmax(-1)
    value = Projection(V.weight, V.bias, var_v, None)
    scope = Scope(P, GaussianPosterior({"x": torch.ones(1)}), "diag")
    with torch.no_grad():
        out, found = attended(mean, spread, A, value, Projection(P.weight, P.bias, None, None), scope)
    expected = torch.zeros(places, 4).double()
    for h in range(heads):
        g = h * groups // heads
        W, Vg = V.weight.detach()[g * size : (g + 1) * size], var_v[g * size : (g + 1) * size]
        Ph = P.weight.detach()[:, h * size : (h + 1) * size]
        for t in range(places):
            covariance = torch.zeros(size, size).double()
            for s in range(places):
                e, m = spread[0, s], mean[0, s]
                own = W @ torch.diag(e) @ W.T + torch.diag(Vg @ (e + m.square()))
                covariance += A[0, h, t, s] ** 2 * own
            expected[t] += (Ph @ covariance @ Ph.T).diagonal()
    torch.testing.assert_close(found[0], expected)
    values = (mean @ V.weight.T + V.bias).detach().unflatten(-1, (groups, size)).transpose(1, 2)
    mixed = A @ values.repeat_interleave(heads // groups, 1)
    torch.testing.assert_close(out, (mixed.transpose(1, 2).flatten(-2) @ P.weight.T + P.bias).detach())


def test_random_output_projection_by_sampling():
    torch.manual_seed(0)
    net = SelfAttention(4, 2).double()
    posterior = constant(net, 0.02, lambda name: name.startswith("out"))
    x = torch.randn(1, 3, 4).double()
    _, found = streamline(net, posterior).forward_latent(x)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.func.functional_call(net, posterior.sample(net, generator), (x,)) for _ in range(5000)]
    torch.testing.assert_close(found, torch.stack(drawn).detach().var(0), rtol=0.15, atol=0)


def test_one_place_is_a_product_of_linear_layers():
    """With one place the attention weight is 1: value, then output."""
    torch.manual_seed(0)
    net = SelfAttention(4, 1).double()
    plain = nn.Sequential(net.value, net.out)
    names = {"value.weight": "0.weight", "value.bias": "0.bias"}
    given = {name: torch.rand_like(net.get_parameter(name)) for name in names}
    x = torch.randn(3, 1, 4).double()
    _, found = streamline(net, GaussianPosterior(given)).forward_latent(x)
    posterior = GaussianPosterior({names[name]: v for name, v in given.items()})
    _, expected = streamline(plain, posterior).forward_latent(x)
    torch.testing.assert_close(found, expected)


def models():
    torch.manual_seed(0)
    layer = {"dim_feedforward": 12, "batch_first": True, "dropout": 0.1}
    first = nn.TransformerEncoderLayer(8, 2, activation="gelu", norm_first=True, **layer)
    after = nn.TransformerEncoderLayer(8, 2, **layer)
    x = torch.randn(3, 5, 8)
    return {
        "block": (TransformerBlock(8, 2), x),
        "causal block": (TransformerBlock(8, 4, causal=True), x),
        "image": (VisionTransformer(4, 2, 3, width=8, depth=2, heads=2), torch.rand(3, 16)),
        "tokens": (CausalTransformer(7, 5, width=8, depth=2, heads=2), torch.randint(0, 7, (3, 5))),
        "torch, norm first": (nn.TransformerEncoder(first, 2, enable_nested_tensor=False), x),
        "torch, norm after": (nn.TransformerEncoder(after, 2, norm=nn.LayerNorm(8)), x),
    }


@pytest.mark.parametrize("name", list(models()))
def test_means_are_those_of_the_model_and_small_posteriors_agree_with_sampling(name):
    net, x = models()[name]
    net = net.double().eval()
    x = x.double() if x.is_floating_point() else x
    certain, none = streamline(net, constant(net, 0.0)).forward_latent(x)
    with torch.no_grad():
        torch.testing.assert_close(certain, net(x), atol=1e-9, rtol=1e-9)
    assert not none.any()
    posterior = constant(net, 1e-6, lambda n: n.endswith(("out.weight", "head.weight")) or "linear2" in n)
    if not posterior.names:
        return
    mean, spread = streamline(net, posterior).forward_latent(x)
    torch.testing.assert_close(mean, certain)
    assert (spread > 0).all()


def test_one_block_by_sampling():
    """Places share their weights, which the rule ignores; within a factor of 2 on average all the same."""
    torch.manual_seed(0)
    net = TransformerBlock(8, 2).double().eval()
    posterior = constant(net, 1e-3, lambda n: "value" in n or "feed_forward" in n)
    x = torch.randn(2, 4, 8).double()
    _, found = streamline(net, posterior).forward_latent(x)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack(
        [torch.func.functional_call(net, posterior.sample(net, generator), (x,)) for _ in range(500)]
    )
    ratio = found / drawn.detach().var(0)
    assert 0.5 < float(ratio.mean()) < 2


def test_query_and_key_count_as_fixed():
    net = SelfAttention(4, 2).double()
    posterior = constant(net, 1.0, lambda n: n.startswith(("query", "key")))
    _, found = streamline(net, posterior).forward_latent(torch.randn(1, 3, 4).double())
    assert not found.any()


def test_product_of_independent_entries():
    m, v, n, w = (torch.tensor([x]) for x in (2.0, 0.5, -3.0, 0.25))
    mean, spread = product((m, v), (n, w))
    assert float(mean) == -6
    assert float(spread) == 0.5 * 9 + 0.25 * 4 + 0.5 * 0.25
    assert product((m, None), (n, None))[1] is None
    assert float(product((m, None), (n, w))[1]) == 1.0


def test_what_torch_attention_cannot():
    bad = nn.MultiheadAttention(4, 2)
    with pytest.raises(MethodError, match="batch_first=True"):
        streamline(bad, constant(bad, 0.1)).forward_latent(torch.randn(1, 3, 4))
    other = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation=torch.sin)
    with pytest.raises(MethodError, match=r"its activation .* has no rule"):
        streamline(other, constant(other, 0.1)).forward_latent(torch.randn(1, 3, 4))


def decoders():
    transformers = pytest.importorskip("transformers")
    ends = {"bos_token_id": None, "eos_token_id": None, "vocab_size": 11}
    gpt2 = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, n_positions=16, **ends)
    llama = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=16,
        intermediate_size=12, attention_bias=True, **ends,
    )  # fmt: skip
    untied = {"tie_word_embeddings": False}
    return {
        "GPT2Model": transformers.GPT2Model(gpt2),
        "LlamaModel": transformers.LlamaModel(llama),
        "GPT2LMHeadModel": transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**{**gpt2.to_dict(), **untied})
        ),
        "LlamaForCausalLM": transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**{**llama.to_dict(), **untied})
        ),
    }


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_fixed_blocks_of_a_decoder_look_back_only(attention):
    """Blocks without random weights are given no mask by their model; they run by rule all the same."""
    net = decoders()["GPT2LMHeadModel"].eval()
    net.set_attn_implementation(attention)
    tokens = torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(0))
    model = streamline(net, constant(net, 0.1, lambda n: n == "lm_head.weight"))
    with torch.no_grad():
        torch.testing.assert_close(model.forward_latent(tokens)[0], net(tokens).logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["GPT2Model", "LlamaModel", "GPT2LMHeadModel", "LlamaForCausalLM"])
def test_decoders_of_transformers(name):
    net = decoders()[name].eval()
    tokens = torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = net(tokens)
    expected = out.logits if "LM" in name else out.last_hidden_state
    certain, none = streamline(net, constant(net, 0.0)).forward_latent(tokens)
    torch.testing.assert_close(certain, expected, atol=1e-5, rtol=1e-4)
    assert not none.any()
    mean, spread = streamline(net, constant(net, 1e-3)).forward_latent(tokens)
    torch.testing.assert_close(mean, certain)
    assert spread.shape == mean.shape
    assert (spread > 0).all()
    if "LM" in name:
        posterior = GaussianPosterior.from_diag_ggn(net, tokens, 1.0, params="last_layer")
        model = streamline(net, posterior)
        # only the head is random: its rule alone, on features that are certain
        hidden = (net.transformer if "GPT2" in name else net.model)(tokens).last_hidden_state.detach()
        expected = hidden.square() @ posterior.variances["lm_head.weight"].float().T
        torch.testing.assert_close(model.forward_latent(tokens)[1], expected, rtol=1e-4, atol=1e-5)
        assert model.predict_proba(tokens).sum(-1) == pytest.approx(1.0, abs=1e-6)


def test_tied_heads_of_transformers_are_refused():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, n_positions=16, vocab_size=11, bos_token_id=None, eos_token_id=None
    )
    net = transformers.GPT2LMHeadModel(config)
    with pytest.raises(MethodError, match=r"'lm_head.weight' is tied to 'transformer.wte.weight'"):
        streamline(net, GaussianPosterior({"transformer.wte.weight": torch.ones(11, 8)}))
    streamline(net, constant(net, 0.1, lambda n: ".mlp." in n)).forward_latent(torch.tensor([[1, 2]]))


def test_heads_must_divide():
    with pytest.raises(MethodError, match="no multiple of 3 heads"):
        SelfAttention(8, 3)
    with pytest.raises(MethodError, match="not cut into patches"):
        VisionTransformer(8, 3, 10)
    assert (
        math.prod(VisionTransformer(4, 2, 3, width=8, depth=1, heads=2)(torch.rand(5, 1, 4, 4)).shape) == 15
    )
