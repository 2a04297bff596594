"""Talks to an OpenAI-compatible server with OpenAI's own SDK.

Usage: openai_client.py agent|proxy BASE_URL MODEL
"""

import sys

import openai

MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiply two whole numbers: a times b.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
QUESTION = [{"role": "user", "content": "What is 1234 times 5678?"}]


def streamed(client: openai.OpenAI, **request) -> str:
    """The text of a streamed completion; every frame went through the SDK's parser."""
    parts, finish = [], None
    for chunk in client.chat.completions.create(stream=True, **request):
        assert chunk.object == "chat.completion.chunk", chunk
        for choice in chunk.choices:
            parts.append(choice.delta.content or "")
            finish = choice.finish_reason or finish
    assert finish == "stop", finish
    assert len([part for part in parts if part]) > 1, f"not streamed: {parts}"
    return "".join(parts)


def agent(client: openai.OpenAI, model: str) -> None:
    """The agent runs its own tools: the answer holds the product."""
    answer = client.chat.completions.create(model=model, messages=QUESTION)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    assert "7006652" in answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason == "stop", answer
    assert "7006652" in streamed(client, model=model, messages=QUESTION)
    quotes = [{"role": "user", "content": "It's \"None\", isn't it?\nA second line."}]
    assert streamed(client, model=model, messages=quotes)
    try:
        client.chat.completions.create(model=model, messages=[])
        raise AssertionError("an empty conversation was answered")
    except openai.BadRequestError as error:
        assert "messages are required" in str(error), error


def proxy(client: openai.OpenAI, model: str) -> None:
    """The proxy passes tools on and answers as the mock model."""
    assert model in [entry.id for entry in client.models.list()]
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=[MULTIPLY])
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls", answer
    assert call.function.name == "multiply", answer
    turn = QUESTION + [
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "7006652"},
    ]
    answer = client.chat.completions.create(model=model, messages=turn, tools=[MULTIPLY])
    assert "7006652" in answer.choices[0].message.content, answer
    assert answer.usage.total_tokens > 0, answer
    assert streamed(client, model=model, messages=[{"role": "user", "content": "hello there"}])
    with client.chat.completions.stream(model=model, messages=QUESTION, tools=[MULTIPLY]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "multiply", final
    try:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
        raise AssertionError("an unknown model was answered")
    except openai.NotFoundError as error:
        assert "no-such-model" in str(error), error


if __name__ == "__main__":
    role, base_url, model_name = sys.argv[1:]
    sdk = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=30)
    {"agent": agent, "proxy": proxy}[role](sdk, model_name)
    print("ok")
