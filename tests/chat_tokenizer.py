"""A tokenizer with a chat template."""

import json

from weft.tokenizer.tokenizer import Tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}\n[{{ message.role }}] {{ message.content }}"
    "{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}\n[assistant]{% endif %}"
)


def with_template(tokenizer: Tokenizer) -> Tokenizer:
    config = json.loads(tokenizer.files["tokenizer_config.json"])
    files = {**tokenizer.files, "tokenizer_config.json": json.dumps({**config, "chat_template": TEMPLATE}).encode()}
    return Tokenizer(tokenizer.engine, tokenizer.special, files)
