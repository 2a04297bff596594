"""Talks to a tool server with the MCP project's own SDK, as a new client and as an old one.

Usage: mcp_client.py URL
"""

import asyncio
import sys

from mcp import Client


async def session(url: str, mode: str) -> None:
    """Lists and calls the tools of `clients.rs`."""
    async with Client(url, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == ["add", "explode", "slow_echo"], tools
        assert tools["add"].description == "Add two whole numbers.", tools["add"]
        schema = tools["add"].input_schema
        assert schema["properties"]["a"]["type"] == "integer", schema
        assert schema["required"] == ["a"], schema

        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert not result.is_error and result.content[0].text == "5", result
        result = await client.call_tool("add", {"a": 2})
        assert result.content[0].text == "42", "a default, through a helper and an import"

        result = await client.call_tool("add", {"a": "two"})
        assert result.is_error and "a" in result.content[0].text, result
        result = await client.call_tool("explode", {})
        assert result.is_error and "ValueError: boom" in result.content[0].text, result

        echoes = await asyncio.gather(
            *(client.call_tool("slow_echo", {"text": str(number)}) for number in range(4))
        )
        assert [echo.content[0].text for echo in echoes] == ["0", "1", "2", "3"], echoes


async def main(url: str) -> None:
    """Both generations of the protocol."""
    for mode in ("auto", "legacy"):
        await session(url, mode)
    print("ok")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
