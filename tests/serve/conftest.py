"""One service with small random models, for all tests that do not need one of their own."""

from collections.abc import Iterator

import pytest
from running import Running, serving

import weft
from chat_tokenizer import with_template
from random_models import make_random
from task_models import make, save, tokenizer_of
from weft.tasks.reply import Reply


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, weft.Model]:
    """story continues texts, talk has a chat template, reply was tuned to it, source has an encoder, reader is one."""
    vocabulary = 500
    reply = Reply(head="causal", sample=True, most_new=8)
    folder = save(reply, *make(reply, "gpt2", 128), tmp_path_factory.mktemp("reply"))
    return {
        "story": make_random("gpt2", vocabulary=vocabulary, positions=256, tokenizer=tokenizer_of("gpt2")),
        "talk": make_random("llama", vocabulary=vocabulary, tokenizer=with_template(tokenizer_of("llama"))),
        "reply": weft.load(folder),
        "source": make_random("t5", vocabulary=vocabulary, tokenizer=tokenizer_of("t5")),
        "reader": weft.create("bert", layers=1, width=32, heads=2, tokenizer=tokenizer_of("bert")),
    }


@pytest.fixture(scope="session")
def running(models: dict[str, weft.Model]) -> Iterator[Running]:
    with serving(models) as found:
        yield found
