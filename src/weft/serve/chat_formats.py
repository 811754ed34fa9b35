"""The answers of /v1/chat/completions: OpenAI's chat.completion, whole or as chat.completion.chunk events."""

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from weft.generate.job import Job, News, TokenInfo
from weft.serve.answers import REASONS, Usage, WholeAnswers
from weft.serve.completion_formats import AnswerHead, CompletionDetails, compact_json, json_number
from weft.serve.token_text import TokenTexts


def chat_log_probs(tokens: Sequence[TokenInfo], texts: TokenTexts) -> dict[str, Any]:
    return {
        "content": [
            {
                **_token(token.id, token.log_prob, texts),
                "top_logprobs": [_token(id, log_prob, texts) for id, log_prob in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _token(id: int, log_prob: float, texts: TokenTexts) -> dict[str, Any]:
    return {"token": texts.text(id), "logprob": json_number(log_prob), "bytes": list(texts.raw(id))}


def chat_json(head: AnswerHead, whole: WholeAnswers, details: CompletionDetails) -> bytes:
    choices = []
    for number, answer in enumerate(whole.answers):
        choice = {
            "index": number,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": chat_log_probs(answer.tokens, details.texts) if details.log_probs else None,
            "finish_reason": answer.reason,
        }
        if details.token_ids:
            choice["token_ids"] = [token.id for token in answer.tokens]
        choices.append(choice)
    return compact_json({**head.as_json(), "choices": choices, "usage": whole.usage.as_json()}).encode()


class ChatEvents:
    """The events of a streamed chat completion: the role, pieces of content, an empty delta with the reason."""

    def __init__(self, head: AnswerHead, jobs: Sequence[Job], details: CompletionDetails) -> None:
        self.details = details
        self._start = f'data: {compact_json(head.as_json())[:-1]},"choices":['
        self._heads = [
            f'{self._start}{{"index":{number},"delta":'.encode() for number in range(sum(job.n for job in jobs))
        ]
        self._contents = [head + b'{"content":' for head in self._heads]
        self._end = b'],"usage":null}\n\n' if details.usage else b"]}\n\n"
        self._plain_tail = b'},"logprobs":null,"finish_reason":null}' + self._end

    def opening(self, number: int, job: Job) -> bytes:
        return self._event(number, {"role": "assistant", "content": ""}, {"logprobs": None, "finish_reason": None})

    def event(self, number: int, news: News) -> bytes:
        found = b""
        if not self.details.only_text and (news.tokens or news.text):
            found = self._detailed(number, news)
        elif news.text:
            found = self._contents[number] + encode_basestring_ascii(news.text).encode() + self._plain_tail
        if news.finish is not None:
            found += self._event(number, {}, {"logprobs": None, "finish_reason": REASONS[news.finish]})
        return found

    def closing(self, usage: Usage) -> bytes:
        if not self.details.usage:
            return b""
        return f'{self._start}],"usage":{compact_json(usage.as_json())}}}\n\n'.encode()

    def _detailed(self, number: int, news: News) -> bytes:
        rest: dict[str, Any] = {"logprobs": None, "finish_reason": None}
        if self.details.log_probs:
            rest["logprobs"] = chat_log_probs(news.tokens, self.details.texts)
        if self.details.token_ids:
            rest["token_ids"] = [token.id for token in news.tokens]
        return self._event(number, {"content": news.text}, rest)

    def _event(self, number: int, delta: dict[str, Any], rest: dict[str, Any]) -> bytes:
        return self._heads[number] + f"{compact_json(delta)},{compact_json(rest)[1:]}".encode() + self._end
