"""The LSTM: one state that is carried from token to token."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.lstm import LSTM_PICTURES
from weft.theory.written.lstm import (
    first_cell_weight,
    gate_inputs,
    logistic,
    lstm_layer,
    lstm_parameters,
    lstm_stack,
    lstm_state,
    memory_slope,
    next_memory,
    next_output,
    reading_order,
    still_reading,
)

_CELL, _ROWS = "weft.generate.recurrent_rows:_Cell.__call__", "weft.generate.recurrent_rows:RecurrentRows"

_BINS = "bincount makes as many bins as the longest length needs anyway"

LSTM_CHAPTER = Chapter(
    "lstm",
    (
        GuideEntry(
            "gates",
            r"""
\begin{pmatrix} i_t \\ f_t \\ g_t \\ o_t \end{pmatrix} = W x_t + U h_{t-1} + b
""",
            (
                SourceLines(_CELL, "gates ="),
                SourceLines(_CELL, "i, f, g, o ="),
            ),
            (gate_inputs,),
            "lstm-cell",
            rows=(33,),
        ),
        GuideEntry(
            "cell",
            r"""
c_t = \sigma(f_t) \odot c_{t-1} + \sigma(i_t) \odot \tanh(g_t), \qquad h_t = \sigma(o_t) \odot \tanh(c_t)
""",
            (SourceLines(_CELL, "c = f.sigmoid()", "return o.sigmoid()"),),
            (logistic, next_memory, next_output),
            "lstm-brackets",
            rows=(33,),
        ),
        GuideEntry(
            "lstm-memory",
            r"""
\frac{\partial c_T}{\partial c_0} = \prod_{t=1}^{T} \sigma(f_t)
""",
            (SourceLines(_CELL, "c = f.sigmoid()"),),
            (memory_slope,),
            "lstm-memory",
        ),
        GuideEntry(
            "recurrence",
            r"""
h_t^{(\ell)},\, c_t^{(\ell)} = \operatorname{cell}^{(\ell)}\left(h_t^{(\ell-1)},\, h_{t-1}^{(\ell)},\,
c_{t-1}^{(\ell)}\right), \qquad h_t^{(0)} = x_t, \quad h_0^{(\ell)} = c_0^{(\ell)} = 0
""",
            (SourceLines(f"{_ROWS}.read", "starts, lengths =", "return out"),),
            (lstm_layer, lstm_stack),
            "lstm-brackets",
            rows=(33,),
        ),
        GuideEntry(
            "by-position",
            r"""
b_t = \left| \lbrace s : L_s > t \rbrace \right|, \qquad b_0 \ge b_1 \ge \dots
""",
            (
                SourceLines(
                    "weft.model.recurrent:Recurrent.forward", "if len(batch.runs)", "return self.dropout(hidden.data"
                ),
                SourceLines("weft.model.recurrent:_by_position", "count, lengths =", "return"),
            ),
            (still_reading, reading_order),
            "lstm-rows",
            equivalent={
                "True → False #2": "sequences of equal length may come in any order; `rank` follows it",
                "batch.longest + 1 → batch.longest - 1": _BINS,
                "batch.longest + 1 → batch.longest": _BINS,
                "batch.longest + 1 → 1": _BINS,
            },
        ),
        GuideEntry(
            "lstm-start",
            r"""
w = \frac{2u - 1}{\sqrt{d}}, \qquad u \sim U(0, 1)
""",
            (SourceLines("weft.model.initialize:initialize", "reach =", "parameter.copy_((draw_uniform"),),
            (first_cell_weight,),
            "lstm-start",
        ),
        GuideEntry(
            "lstm-size",
            r"""
N = l\,(8 d^2 + 8 d) + V d
""",
            (
                SourceLines("weft.model.recurrent:Recurrent.__init__", "self.lstm ="),
                SourceLines("weft.model.network:Network.__init__", "for head in self.heads"),
            ),
            (lstm_parameters,),
            "lstm-size",
        ),
        GuideEntry(
            "lstm-state",
            r"""
M = 2\, l\, d
""",
            (
                SourceLines(f"{_ROWS}.__init__", "self.state ="),
                SourceLines(f"{_ROWS}.open_row", "if slot", "self.state[:, :, slot]"),
                SourceLines(f"{_ROWS}.copy", "self.state"),
            ),
            (lstm_state,),
            "lstm-cost",
        ),
    ),
    LSTM_PICTURES,
)
