"""The peer of the benchmark of agents: one of Pydantic AI that answers chat completions behind uvicorn.

Usage: agent.py PORT MODEL_URL [MCP_URL]
"""

import sys
import time
import uuid
from contextlib import asynccontextmanager

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

port, model_url, *mcp_urls = sys.argv[1:]
agent = Agent(
    OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{model_url}/v1", api_key="none")),
    instructions="Be brief.",
    toolsets=[MCPToolset(url) for url in mcp_urls],
)


async def chat(request: Request) -> JSONResponse:
    """Answers the last message of a request."""
    body = await request.json()
    result = await agent.run(body["messages"][-1]["content"])
    message = {"role": "assistant", "content": result.output}
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model", "m"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    )


async def health(_: Request) -> JSONResponse:
    """It runs, and is connected to its tools."""
    return JSONResponse({"status": "healthy"})


@asynccontextmanager
async def connected(_: Starlette):
    """One session with the tool server for all chats, which is the fastest way there is."""
    async with agent:
        yield


routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/ready", health)]
if __name__ == "__main__":
    app = Starlette(routes=routes, lifespan=connected)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", access_log=False)
