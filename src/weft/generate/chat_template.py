"""A conversation as one text, by the template in the model's folder (tokenizer_config.json, or chat_template.jinja).

Templates are Jinja programs that came with the weights, so they run in a sandbox that changes nothing. The environment
is the one that `transformers` gives them: block tags leave no blank lines, `tojson` escapes no HTML, and there are
raise_exception, strftime_now and the special tokens (bos_token, eos_token …).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from weft.errors import InputError
from weft.generate.framing import Framing
from weft.tokenizer.tokenizer import TEMPLATE_FILE, Tokenizer

_MOST_CHARACTERS = 1_000_000  # of the rendered conversation


class ChatTemplate:
    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        """`special`: texts of the special tokens by their variable, such as bos_token."""
        self.source, self.special = source, dict(special)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise InputError(f"The model's chat template cannot be used: {error.message}.") from None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "ChatTemplate | None":
        """None if the tokenizer's folder has no template."""
        source = tokenizer.chat_template
        return (
            None if source is None else cls(source, {f"{role}_token": text for role, text in tokenizer.special.items()})
        )

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The text that the model reads. `messages`: {"role": …, "content": …} each, of plain JSON values. Raises
        InputError if the template refuses them.
        """
        given = {"tools": None, "documents": None, **self.special, **variables}
        try:
            text = self._template.render(
                **given, messages=[dict(one) for one in messages], add_generation_prompt=add_generation_prompt
            )
        except jinja2.TemplateError as error:
            raise InputError(f"The model's chat template refuses these messages: {error.message}.") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            # What a template does with values of kinds it does not expect.
            raise InputError(f"The model's chat template fails with these messages ({type(error).__name__}).") from None
        if len(text) > _MOST_CHARACTERS:
            raise InputError(f"The conversation has {len(text):,} characters; the limit is {_MOST_CHARACTERS:,}.")
        return text


def with_default_template(tokenizer: Tokenizer, end: int) -> Tokenizer:
    """With a template that any tokenizer can write: each message after a line with its role, the assistant's with the
    end token after it, so that no token has to be added.

        User:
        Hello.
        Assistant:
        Hello, Anna.<|endoftext|>User:
        …

    `end`: the model's end token. The file is where `transformers` looks for it.
    """
    files = {**tokenizer.saved_files(), TEMPLATE_FILE: default_template(tokenizer, end).encode()}
    return replace(tokenizer, files=files)


def default_template(tokenizer: Tokenizer, end: int) -> str:
    engine = tokenizer.engine
    opening = "".join(engine.id_to_token(token) or "" for token in Framing().opening(engine))  # Llama's <s>
    return (
        (f"{{{{ {opening!r} }}}}" if opening else "")
        + "{% for message in messages %}"
        + "{{ message['role'] | capitalize + ':\\n' + message['content'] | trim }}"
        + f"{{{{ {engine.id_to_token(end)!r} if message['role'] == 'assistant' else '\\n' }}}}"
        + "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif %}"
    )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment


class _GenerationBlock(Extension):
    """{% generation %} marks what the assistant wrote, for training; here its content is kept as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
