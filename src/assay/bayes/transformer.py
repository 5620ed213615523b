"""Small pre-norm transformers: for images cut into patches, and for sequences of tokens."""

from __future__ import annotations

from typing import Any

from assay.core.errors import MethodError
from assay.core.models import import_torch

torch = import_torch("a transformer")
nn, functional = torch.nn, torch.nn.functional


class SelfAttention(nn.Module):  # type: ignore[misc, name-defined]
    """Multi-head attention of (n, T, width) over its T places; ``causal``: over those before and itself.

    Query, key, value and output are Linear layers of their own, so that a posterior can name the value.
    """

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise MethodError(f"width {width} is no multiple of {heads} heads")
        self.heads = heads
        self.causal = causal
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x: Any) -> Any:
        """(n, T, width) to (n, heads, T, width / heads)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, x: Any) -> Any:
        """(n, T, width) to the same."""
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(-3, -2).flatten(-2))


class FeedForward(nn.Sequential):  # type: ignore[misc, name-defined]
    """Linear, GELU, Linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class TransformerBlock(nn.Module):  # type: ignore[misc, name-defined]
    """``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``."""

    def __init__(self, width: int, heads: int, hidden: int | None = None, causal: bool = False) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal)
        self.feed_forward = FeedForward(width, 4 * width if hidden is None else hidden)

    def forward(self, x: Any) -> Any:
        """(n, T, width) to the same."""
        x = x + self.attention(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


class PatchEmbedding(nn.Module):  # type: ignore[misc, name-defined]
    """Images (n, channels, size, size), or flat rows of the same, to (n, 1 + patches, width).

    The first place is the class token; positions are learned.
    """

    def __init__(self, size: int, patch: int, channels: int, width: int) -> None:
        super().__init__()
        if size % patch:
            raise MethodError(f"an image of {size} x {size} is not cut into patches of {patch} x {patch}")
        self.shape = (channels, size, size)
        self.project = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))

    def join(self, patches: Any) -> Any:
        """(n, width, a, b) of patches to (n, 1 + a b, width) behind the token."""
        places = patches.flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(places), -1, -1), places], 1)

    def forward(self, x: Any) -> Any:
        """Embedded places."""
        return self.join(self.project(x.reshape(-1, *self.shape))) + self.position


class FirstPlace(nn.Module):  # type: ignore[misc, name-defined]
    """(n, T, width) to (n, width): the class token."""

    def forward(self, x: Any) -> Any:
        """The first place."""
        return x[:, 0]


class TokenEmbedding(nn.Module):  # type: ignore[misc, name-defined]
    """Tokens (n, T) to (n, T, width): token plus learned position."""

    def __init__(self, vocabulary: int, places: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(places, width)

    def forward(self, tokens: Any) -> Any:
        """Embedded places."""
        return self.token(tokens) + self.position(torch.arange(tokens.shape[-1], device=tokens.device))


class VisionTransformer(nn.Sequential):  # type: ignore[misc, name-defined]
    """Images to logits (n, classes): patches, pre-norm blocks, norm, class token, Linear.

    Parameters
    ----------
    size, patch, channels : int
        Edge of the square image and of its patches, in pixels.
    classes : int
    width, depth, heads : int, default 64, 4, 4
    """

    def __init__(
        self,
        size: int,
        patch: int,
        classes: int,
        *,
        channels: int = 1,
        width: int = 64,
        depth: int = 4,
        heads: int = 4,
    ) -> None:
        blocks = [TransformerBlock(width, heads) for _ in range(depth)]
        ends = (nn.LayerNorm(width), FirstPlace(), nn.Linear(width, classes))
        super().__init__(PatchEmbedding(size, patch, channels, width), *blocks, *ends)


class CausalTransformer(nn.Sequential):  # type: ignore[misc, name-defined]
    """Tokens (n, T) to logits (n, T, vocabulary) of the next token at each place.

    Parameters
    ----------
    vocabulary, places : int
        Kinds of tokens, and the longest sequence.
    width, depth, heads : int, default 64, 2, 4
    """

    def __init__(
        self, vocabulary: int, places: int, *, width: int = 64, depth: int = 2, heads: int = 4
    ) -> None:
        blocks = [TransformerBlock(width, heads, causal=True) for _ in range(depth)]
        ends = (nn.LayerNorm(width), nn.Linear(width, vocabulary))
        super().__init__(TokenEmbedding(vocabulary, places, width), *blocks, *ends)
