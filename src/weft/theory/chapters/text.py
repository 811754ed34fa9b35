"""From pages to tokens."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.text import TEXT_PICTURES
from weft.theory.written.text import (
    agreement,
    agrees_in_a_band,
    bytes_per_token,
    chance_of_a_band,
    digit_share,
    feistel,
    jaccard,
    mean_word_length,
    merged,
    minimum_hash,
    mixed_number,
    pair_counts,
    repeated_line_shares,
    shuffled_place,
    side_of,
    slots_of,
    total_variation,
)

_QUALITY = "weft.corpus.quality"
_NEAR = "weft.corpus.near_duplicates"

_MINIMA = "((_FACTORS[:, None] * numbers[None, :]).min(axis=1) >> np.uint64(32))"
_BANDS = "signatures.reshape(len(signatures), BAND_COUNT, _BAND_ROWS)"


TEXT_CHAPTER = Chapter(
    "text",
    (
        GuideEntry(
            "quality-rules",
            r"""
\delta = \frac{\#\,\mathrm{digits}}{\#\,\mathrm{characters}} \le 0.3, \qquad
3 \le \frac{1}{n} \sum_{i=1}^{n} \lvert w_i \rvert \le 10
""",
            (
                SourceLines(f"{_QUALITY}:_has_digits"),
                SourceLines(f"{_QUALITY}:_has_odd_words", "low, high =", "return not low"),
                SourceLines(f"{_QUALITY}:_exceeds"),
            ),
            (digit_share, mean_word_length),
            "text-rules",
            rows=(25, 49),
        ),
        GuideEntry(
            "repetition",
            r"""
\frac{\lvert R \rvert}{\lvert Z \rvert} \le 0.3, \qquad
\frac{\sum_{z \in R} \lvert z \rvert}{\lvert x \rvert} \le 0.2
""",
            (SourceLines(f"{_QUALITY}:_repeats"),),
            (repeated_line_shares,),
            "text-rules",
            rows=(49,),
            equivalent={
                "1 → 2": "one line or one character repeats nothing, so the numerator is 0",
                "1 → 2 #2": "one line or one character repeats nothing, so the numerator is 0",
            },
        ),
        GuideEntry(
            "minhash",
            r"""
J(A, B) = \frac{\lvert A \cap B \rvert}{\lvert A \cup B \rvert}
= \mathrm{P}\left(\min_{x \in A} h(x) = \min_{x \in B} h(x)\right)
\approx \frac{1}{H} \sum_{k=1}^{H} \left[\min_{x \in A} h_k(x) = \min_{x \in B} h_k(x)\right]
""",
            (
                SourceLines(f"{_NEAR}:_smallest"),
                SourceLines(f"{_NEAR}:signature_similarity", "found =", "return found"),
            ),
            (jaccard, minimum_hash, agreement),
            "text-minhash",
            rows=(25,),
            equivalent={
                f"{_MINIMA}.astype(np.uint32) → {_MINIMA[1:-1]}": (
                    "the numbers are below 2^32 and go into an array of this type anyway"
                ),
            },
        ),
        GuideEntry(
            "banding",
            r"""
P(J) = 1 - \left(1 - J^r\right)^b
""",
            (SourceLines(f"{_NEAR}:band_keys"),),
            (agrees_in_a_band, chance_of_a_band),
            "text-banding",
            rows=(25,),
            equivalent={
                f"{_BANDS}.astype(np.uint64) → {_BANDS}": "the factors have 64 bits, so the product has, too",
            },
        ),
        GuideEntry(
            "split-by-hash",
            r"""
u = \frac{h(x)}{2^{64}}, \qquad x \in \begin{cases}
\mathrm{validation} & u < a \\
\mathrm{test} & a \le u < a + b \\
\mathrm{train} & \mathrm{otherwise}
\end{cases}
""",
            (
                SourceLines("weft.corpus.split:_split_position"),
                SourceLines("weft.corpus.split:divide", "if len(places) >= FEW_DOCUMENTS"),
                SourceLines("weft.corpus.split:Division.side", "return"),
            ),
            (side_of,),
            "text-split",
            rows=(49,),
        ),
        GuideEntry(
            "merges",
            r"""
(x, y)^* = \operatorname*{arg\,max}_{(x, y)} \sum_{w} n_w\, c_w(x, y)
""",
            (SourceLines("weft.tokenizer.train:_train_bpe", "trainer =", "engine.train_from"),),
            (pair_counts, merged),
            "text-merges",
            rows=(25,),
            equivalent={"False → True": "it would only show a progress bar"},
        ),
        GuideEntry(
            "bytes-per-token",
            r"""
\beta = \frac{\#\,\mathrm{bytes}}{\#\,\mathrm{tokens}}
""",
            (
                SourceLines("weft.tokenizer.report:report_on_tokenizer", "size += len", "counts.update"),
                SourceLines("weft.tokenizer.report:report_on_tokenizer", "tokens = counts"),
                SourceLines("weft.tokenizer.report:report_on_tokenizer", "return TokenizerReport"),
            ),
            (bytes_per_token,),
            "text-vocabulary",
            rows=(49,),
        ),
        GuideEntry(
            "mixing",
            r"""
s_k \approx R\, \frac{w_k}{\sum_j w_j}, \qquad \sum_k s_k = R
""",
            (
                SourceLines("weft.tokens.order:Order._round"),
                SourceLines("weft.tokens.order:Order._mixed", "rounds, places =", "return sources, rounds"),
            ),
            (slots_of,),
            "text-mixing",
            rows=(25,),
        ),
        GuideEntry(
            "shuffle",
            r"""
(L, R) \;\to\; \left(R,\; L \oplus f(R + k_i)\right), \qquad i = 1, \dots, 4
""",
            (SourceLines("weft.tokens.keyed_shuffle:_permute"),),
            (mixed_number, feistel, shuffled_place),
            "text-shuffle",
            rows=(38,),
        ),
        GuideEntry(
            "drift",
            r"""
D(p, q) = \frac{1}{2} \sum_x \lvert p(x) - q(x) \rvert
""",
            (
                SourceLines("weft.corpus.drift:_distribution"),
                SourceLines("weft.corpus.drift:_part"),
            ),
            (total_variation,),
            "text-drift",
            rows=(49,),
            equivalent={
                "_part(before, key) - _part(now, key) → _part(now, key) - _part(before, key)": (
                    "the absolute value is the same"
                ),
            },
        ),
    ),
    TEXT_PICTURES,
)
