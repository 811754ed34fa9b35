"""Encoder and decoder: reading one text, writing another."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.encoder_decoder import ENCODER_DECODER_PICTURES
from weft.theory.written.encoder_decoder import (
    cross_attention_head,
    decoder_input,
    decoder_layer,
    ended_target,
    keys_seen,
    mean_surprise,
    next_token_shares,
    read_and_write,
    source_weights,
)

ENCODER_DECODER_CHAPTER = Chapter(
    "encoder-decoder",
    (
        GuideEntry(
            "encoder-decoder",
            r"""
M = \operatorname{Enc}_L\left(\cdots \operatorname{Enc}_1(X)\right), \qquad
H^{(l)} = \operatorname{Dec}_l\left(H^{(l-1)}, M\right), \quad H^{(0)} = Y
""",
            (
                SourceLines("weft.model.network:Network.forward", "if target is not None"),
                SourceLines("weft.model.network:Network.encode", "return self.encoder"),
                SourceLines("weft.model.network:Network.decode", "return self.decoder"),
                SourceLines("weft.model.stack:Stack.forward", "for layer, block in"),
            ),
            (read_and_write,),
            "encoder-decoder-parts",
            rows=(31,),
        ),
        GuideEntry(
            "keys-seen",
            r"""
S_i^{\mathrm{enc}} = \lbrace 1, \dots, n \rbrace, \qquad
S_i^{\mathrm{dec}} = \lbrace j : j \le i \rbrace, \qquad
S_i^{\mathrm{cross}} = \lbrace 1, \dots, n \rbrace
""",
            (
                SourceLines("weft.model.families.transformer:Transformer.architecture", "encoder =", "decoder ="),
                SourceLines("weft.model.stack:Stack._view", "return View"),
            ),
            (keys_seen,),
            "encoder-decoder-views",
            rows=(31,),
        ),
        GuideEntry(
            "cross-attention",
            r"""
z_i = \sum_{j=1}^{n} \frac{\exp(q_i \cdot k_j / \sqrt{D})}{\sum_{m=1}^{n} \exp(q_i \cdot k_m / \sqrt{D})}\, v_j,
\qquad q_i = W_Q\, y_i, \quad k_j = W_K\, m_j, \quad v_j = W_V\, m_j
""",
            (
                SourceLines("weft.model.attention:CrossAttention.forward", "q = self.query"),
                SourceLines("weft.model.attention:CrossAttention.forward", "k, v = self.keys_and_values"),
                SourceLines("weft.model.attention:CrossAttention.forward", "out = attend(", "return self.out(out"),
                SourceLines("weft.model.attention:CrossAttention.keys_and_values", "k, v =", "return k, v"),
            ),
            (source_weights, cross_attention_head),
            "encoder-decoder-map",
            rows=(31,),
            equivalent={"-1 → 1 #2": "the tensor has two dimensions, so the last is number 1"},
        ),
        GuideEntry(
            "decoder-layer",
            r"""
u = \operatorname{Norm}\left(y + \operatorname{Self}(y)\right), \qquad
r = \operatorname{Norm}\left(u + \operatorname{Cross}(u, M)\right), \qquad
y' = \operatorname{Norm}\left(r + \operatorname{FFN}(r)\right)
""",
            (
                SourceLines(
                    "weft.model.block:Block.forward",
                    "x = self._wrap(x, self.attention_norm",
                    "x = self._wrap(x, self.feedforward",
                ),
            ),
            (decoder_layer,),
            "encoder-decoder-parts",
            rows=(31,),
        ),
        GuideEntry(
            "next-token-shares",
            r"""
P(y_t = v \mid y_1, \dots, y_{t-1}, x) =
\frac{\exp(s\, e_v \cdot h_t + b_v)}{\sum_{u=1}^{V} \exp(s\, e_u \cdot h_t + b_u)}
""",
            (
                SourceLines("weft.model.network:Network.__init__", "for head in self.heads.values()"),
                SourceLines("weft.model.heads:Head.prepare", "if self.spec.scale is not None"),
                SourceLines("weft.model.heads:Head.forward", "x = self.prepare", "return x if"),
            ),
            (next_token_shares,),
            "encoder-decoder-shares",
            rows=(31,),
        ),
        GuideEntry(
            "shifted-target",
            r"""
d_1 = s, \qquad d_t = y_{t-1} \quad (t = 2, \dots, N), \qquad y_N = e
""",
            (
                SourceLines("weft.tasks.rewrite:Rewrite.inputs", "ids, right ="),
                SourceLines("weft.tasks.rewrite:Rewrite.inputs", "targets = TextTargets("),
                SourceLines("weft.objectives.span_corruption:SpanCorruption.batch", "decoder =", "wanted ="),
            ),
            (ended_target, decoder_input),
            "encoder-decoder-shift",
            rows=(29,),
        ),
        GuideEntry(
            "teacher-forcing",
            r"""
L = -\frac{1}{N} \sum_{t=1}^{N} \log P(y_t \mid y_1, \dots, y_{t-1}, x)
""",
            (
                SourceLines("weft.objectives.objective:scaled_loss", "hidden = network"),
                SourceLines("weft.objectives.objective:scaled_loss", "scale ="),
                SourceLines("weft.objectives.objective:scaled_loss", "head = network.head", "loss = loss + vocabulary"),
            ),
            (mean_surprise,),
            "encoder-decoder-shift",
            rows=(29,),
            equivalent={
                "loss + vocabulary_loss(head, prepared, batch.targets, scale=scale, smoothing=smoothing) → "
                "vocabulary_loss(head, prepared, batch.targets, scale=scale, smoothing=smoothing)": (
                    "an encoder–decoder has one head, and the sum begins at 0"
                )
            },
        ),
    ),
    ENCODER_DECODER_PICTURES,
)
