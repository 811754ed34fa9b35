"""`weft chat` on the command line: the command and its options."""

from typing import Annotated

import typer

from weft.commands import options as opt

SystemText = Annotated[
    str | None, typer.Option("--system", help="A system message, before the conversation: how to answer.")
]


def chat(
    model: opt.ModelFolder,
    system: SystemText = None,
    int8: opt.Int8 = False,
    device: opt.DeviceName = None,
    as_json: opt.AsJsonLines = False,
    max_new_tokens: opt.MaxAnswerTokens = None,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    seed: opt.Seed = None,
) -> None:
    """Converse with a model that has a chat template or was tuned to reply. Each line of input is a message.

    /reset begins anew, /quit or Ctrl-D ends, Ctrl-C stops an answer.
    """
    from weft.commands.chat import converse

    given = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    converse(model, system, settings, int8=int8, as_json=as_json)
