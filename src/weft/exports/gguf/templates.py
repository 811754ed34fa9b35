"""The chat template of a model: that of its tokenizer, or one that frames turns as weft framed them in training."""

from weft.api.model import Model
from weft.generate.framing import Framing


def chat_template(model: Model) -> str | None:
    """A Jinja program. None: the model was not tuned to reply."""
    return None if model.own_tokenizer is None else model.own_tokenizer.chat_template or _from_framing(model)


def _from_framing(model: Model) -> str | None:
    """Prompt, separator, answer, end token, and so on. llama.cpp itself puts the start token before it."""
    framing, end = Framing.of(model.facts.get("task")), model.tokenizer.special.get("eos")
    if framing is None or not framing.is_reply or end is None or model.network.architecture.is_encoder_decoder:
        return None
    prefix, separator, last = map(_literal, (framing.prefix, framing.separator or end, end))
    return (
        "{% for message in messages %}"
        f"{{% if message['role'] == 'assistant' %}}{{{{ message['content'] + {last} }}}}"
        f"{{% else %}}{{{{ {prefix} + message['content'] + {separator} }}}}{{% endif %}}"
        "{% endfor %}"
    )


def _literal(text: str) -> str:
    """As a string of Jinja, whose escapes are Python's."""
    return repr(text)
