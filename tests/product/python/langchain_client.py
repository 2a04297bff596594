"""Talks to an agent and to the proxy with LangChain, and runs an agent of LangChain on the proxy.

Usage: langchain_client.py agent|proxy BASE_URL MODEL
"""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

QUESTION = "What is 1234 times 5678?"
CALLS = []


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers: a times b."""
    CALLS.append((a, b))
    return a * b


async def agent(model: ChatOpenAI) -> None:
    """An agent is a chat model: asked once, streamed, in a batch, and in a conversation."""
    answer = model.invoke([("system", "Be brief."), ("human", QUESTION)])
    assert isinstance(answer, AIMessage) and "7006652" in answer.content, answer
    assert answer.response_metadata["finish_reason"] == "stop", answer
    parts = [chunk.content async for chunk in model.astream(QUESTION)]
    assert len([part for part in parts if part]) > 1, f"not streamed: {parts}"
    assert "7006652" in "".join(parts), parts
    answers = await model.abatch([QUESTION] * 4)
    assert all("7006652" in answer.content for answer in answers), answers
    answer = model.invoke([HumanMessage("Hello"), AIMessage("Hello!"), HumanMessage(QUESTION)])
    assert "7006652" in answer.content, answer


async def proxy(model: ChatOpenAI) -> None:
    """LangChain's own agent calls its tool as the model behind the proxy asks for it."""
    bound = model.bind_tools([multiply])
    answer = bound.invoke(QUESTION)
    assert [call["args"] for call in answer.tool_calls] == [{"a": 1234, "b": 5678}], answer
    gathered = None
    async for chunk in bound.astream(QUESTION):
        gathered = chunk if gathered is None else gathered + chunk
    assert [call["args"] for call in gathered.tool_calls] == [{"a": 1234, "b": 5678}], gathered

    calculator = create_agent(model, [multiply], system_prompt="Use the tool.")
    result = await calculator.ainvoke({"messages": [HumanMessage(QUESTION)]})
    messages = result["messages"]
    assert any(isinstance(message, ToolMessage) and message.content == "7006652" for message in messages)
    assert "7006652" in messages[-1].content, messages
    assert CALLS == [(1234, 5678)], CALLS


if __name__ == "__main__":
    role, base_url, name = sys.argv[1:]
    chat = ChatOpenAI(base_url=base_url, api_key="unused", model=name, max_retries=0, timeout=60)
    asyncio.run({"agent": agent, "proxy": proxy}[role](chat))
    print("ok")
